"""Trained classifiers as SavedModels that stock TensorFlow Serving loads."""

from tfxclass.export.inverted_lists import InvertedLists
from tfxclass.export.server_config import server_config
from tfxclass.export.serving import saved_model

__all__ = ["InvertedLists", "saved_model", "server_config"]
