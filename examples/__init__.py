"""Runnable documentation: `python -m examples.<name>`."""

# First: what they print is for a reader, without TensorFlow's start-up notes.
from tfxclass_serve import quiet  # noqa: F401
