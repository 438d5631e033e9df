"""Training under distribution strategies that Keras' `fit` cannot use."""

from tfxclass.distribute.fit import fit

__all__ = ["fit"]
__dir__ = __all__.copy  # For completion.
