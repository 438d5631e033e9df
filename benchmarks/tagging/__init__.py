"""The tagger beside the linear tools of the field, on the same files."""
