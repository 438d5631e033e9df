"""Exports of trained models, for TensorFlow Serving and ONNX Runtime."""

from tfxclass.export.inverted_lists import InvertedLists
from tfxclass.export.onnx_model import onnx
from tfxclass.export.serving import saved_model
from tfxclass.export.vector_files import vector_queries
from tfxclass.export.vector_files import vectors

__all__ = [
    "InvertedLists",
    "onnx",
    "saved_model",
    "vector_queries",
    "vectors",
]
__dir__ = __all__.copy  # For completion.
