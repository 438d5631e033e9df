"""Training under distribution strategies that Keras' `fit` cannot use."""

from tfxclass.distribute.fit import fit

__all__ = ["fit"]


def __dir__() -> list[str]:
    return __all__
