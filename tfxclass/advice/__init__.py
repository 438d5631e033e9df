"""Recommends a head, an optimizer and a learning rate for a model."""

from tfxclass.advice.advise import advise
from tfxclass.advice.model_checks import check
from tfxclass.advice.report import Advice
from tfxclass.advice.report import Choice
from tfxclass.advice.report import RateTrial

__all__ = ["Advice", "Choice", "RateTrial", "advise", "check"]


def __dir__() -> list[str]:
    return __all__
