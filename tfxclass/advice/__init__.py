"""Recommends a head, an optimizer and a learning rate for a model."""

from tfxclass.advice.advise import Advice
from tfxclass.advice.advise import Trial
from tfxclass.advice.advise import advise
from tfxclass.advice.model_checks import check

__all__ = ["Advice", "Trial", "advise", "check"]
__dir__ = __all__.copy  # For completion.
