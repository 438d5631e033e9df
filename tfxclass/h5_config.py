"""Configurations that Keras' loader of HDF5 files (`.h5`) has changed."""

import inspect

from tfxclass.types import Config

# Values of these names may be functions that a user registered.
_OF_FUNCTIONS = ("initializer", "regularizer", "constraint")


def names_of_functions(config: Config) -> Config:
    """A configuration with strings where the loader put functions.

    The loader replaces each string that names a function of `keras.layers`, as
    `similarity="dot"` does, or one of `custom_objects`.
    """
    return config | {
        name: value.__name__
        for name, value in config.items()
        if inspect.isfunction(value) and not name.endswith(_OF_FUNCTIONS)
    }
