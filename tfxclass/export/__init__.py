"""Trained classifiers as SavedModels that stock TensorFlow Serving loads."""

from tfxclass.export.serving import saved_model

__all__ = ["saved_model"]
