"""Full-width class vectors for models with a `ProjectedSoftmax`."""

from tfxclass.recovery.recover import recover

__all__ = ["recover"]


def __dir__() -> list[str]:
    return __all__
