"""Which head and sampler a model needs, measured on the model itself."""

from tfxclass.advice.advise import advise
from tfxclass.advice.model_checks import check
from tfxclass.advice.report import Advice
from tfxclass.advice.report import Choice

__all__ = ["Advice", "Choice", "advise", "check"]
