"""Class vectors: where they are, how they are read, what is computed."""
