"""Full-width class vectors for models with a `ProjectedSoftmax`."""

from tfxclass.recovery.recover import recover

__all__ = ["recover"]
__dir__ = __all__.copy  # For completion.
