"""Full-width class vectors for models with a `ProjectedSoftmax`."""

from tfxclass.recovery.dual_recovery import DualRecovery
from tfxclass.recovery.recover import recover
from tfxclass.recovery.step_recovery import StepRecovery

__all__ = ["DualRecovery", "StepRecovery", "recover"]


def __dir__() -> list[str]:
    return __all__
