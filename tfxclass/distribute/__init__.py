"""Training with strategies that Keras' `fit` does not take, and more."""

from tfxclass.distribute.fit import fit

__all__ = ["fit"]


def __dir__() -> list[str]:
    return __all__
