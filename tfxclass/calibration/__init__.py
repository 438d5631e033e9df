"""Probabilities that are meant, and thresholds on them."""

from tfxclass.calibration.calibrate import Calibration
from tfxclass.calibration.calibrate import calibrate
from tfxclass.calibration.reliability import Reliability
from tfxclass.calibration.reliability import plot_reliability
from tfxclass.calibration.reliability import reliability

__all__ = [
    "Calibration",
    "Reliability",
    "calibrate",
    "plot_reliability",
    "reliability",
]
