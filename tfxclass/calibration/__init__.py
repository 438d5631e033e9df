"""Calibrated probabilities, and thresholds for them."""

from tfxclass.calibration.calibrate import Calibration
from tfxclass.calibration.calibrate import calibrate
from tfxclass.calibration.reliability import Reliability
from tfxclass.calibration.reliability import reliability_of

__all__ = [
    "Calibration",
    "Reliability",
    "calibrate",
    "reliability_of",
]
__dir__ = __all__.copy  # For completion.
