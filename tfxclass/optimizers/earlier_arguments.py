"""Arguments and functions of earlier versions, removed or renamed."""

import warnings
from typing import Any

import keras

from tfxclass.checks import check_choice
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Variable

# Removed arguments, and what to do instead.
_REMOVED = {
    "catch_up": (
        "Skipped steps of Adam are no longer applied: trained models gained "
        "under half a point at a good learning rate "
        "(benchmarks/results/catch_up.md). Fix: leave it out, or use "
        "keras.optimizers.{keras} for dense steps."
    ),
    "use_ema": (
        "A moving average changes all class vectors in each step, and {own} "
        "updates those that a step touches. Fix: use "
        "keras.optimizers.{keras}(use_ema=True), for a part of the model with "
        "tfxclass.optimizers.MultiOptimizer."
    ),
}


def check_removed(kind: type, arguments: Config) -> None:
    """Takes removed arguments out; ValueError for one that is set."""
    for name, message in _REMOVED.items():
        value = arguments.get(name)
        if value:
            keras_name = _keras_name(kind)
            message = message.format(own=kind.__name__, keras=keras_name)
            raise ValueError(f"{message} Received: {name}={value}")
    arguments.pop("catch_up", None)


def _keras_name(kind):
    """The optimizer of Keras that a class, or the first above it, extends."""
    names = (cls.__name__.removeprefix("Lazy") for cls in kind.__mro__)
    return next(name for name in names if hasattr(keras.optimizers, name))


def take_renamed(kind: type, arguments: Config) -> dict[str, Any]:
    """Takes old arguments out and returns the new ones in their place.

    Args:
        kind: an optimizer class with `SECOND_MOMENTS` and `SLOT_DTYPES`.
        arguments: dict, changed in place.
    """
    renamed = {}
    if _is_set(arguments, "compact_slots"):
        if "row" in kind.SECOND_MOMENTS:
            renamed["second_moment"] = "row"
        if "bfloat16" in kind.SLOT_DTYPES:
            renamed["slot_dtype"] = "bfloat16"
        _warn(kind, "compact_slots", renamed)
    if "matrix" in kind.SECOND_MOMENTS and _is_set(
        arguments, "shared_second_moment"
    ):
        renamed["second_moment"] = "matrix"
        _warn(kind, "shared_second_moment", {"second_moment": "matrix"})
    return renamed


def _is_set(arguments, name):
    value = arguments.pop(name, False)
    check_choice(name, value, (False, True))
    return value


def _warn(kind, old, new):
    text = ", ".join(f'{name}="{value}"' for name, value in new.items())
    # The user's line is above the constructors, `take_renamed` and this call.
    # RowOptimizer is the last constructor, which calls `take_renamed`.
    names = [cls.__name__ for cls in kind.__mro__]
    classes = kind.__mro__[: names.index("RowOptimizer") + 1]
    constructors = sum("__init__" in vars(cls) for cls in classes)
    warnings.warn(
        f"`{old}=True` is deprecated. Use {text}.",
        DeprecationWarning,
        stacklevel=3 + constructors,
    )


def translated(kind: type, config: Config) -> Config:
    """The config of a saved file, with today's arguments."""
    config = dict(config)
    for name in _REMOVED:
        if config.pop(name, False):
            warnings.warn(
                f"The file was saved with `{name}=True`, which "
                f"{kind.__name__} no longer has. The optimizer goes on "
                "without it and with a new state.",
                stacklevel=2,
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return {**config, **take_renamed(kind, config)}


def catch_up(variable: Variable, ids: Array | None = None) -> None:
    """Does nothing. It is kept for programs written for earlier versions.

    Args:
        variable: ignored.
        ids: ignored.
    """
    del variable, ids
    warnings.warn(
        "`tfxclass.optimizers.catch_up` is deprecated and does nothing: no "
        "optimizer defers updates. Leave the call out.",
        DeprecationWarning,
        stacklevel=2,
    )
