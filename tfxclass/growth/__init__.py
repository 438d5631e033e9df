"""Adding, removing and initializing classes of a model."""
