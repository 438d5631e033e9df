"""Arguments and functions of earlier versions, removed or renamed."""

import sys
import warnings
from typing import Any

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
            keras_name = kind.__name__.removeprefix("Lazy")
            message = message.format(own=kind.__name__, keras=keras_name)
            raise ValueError(f"{message} Received: {name}={value}")
    arguments.pop("catch_up", None)


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
        _warn("compact_slots", renamed)
    if "matrix" in kind.SECOND_MOMENTS and _is_set(
        arguments, "shared_second_moment"
    ):
        renamed["second_moment"] = "matrix"
        _warn("shared_second_moment", {"second_moment": "matrix"})
    return renamed


def _is_set(arguments, name):
    value = arguments.pop(name, False)
    check_choice(name, value, (False, True))
    return value


def _warn(old, new):
    text = ", ".join(f'{name}="{value}"' for name, value in new.items())
    warnings.warn(
        f"`{old}=True` is deprecated. Use {text}.",
        DeprecationWarning,
        stacklevel=_first_level_outside(),
    )


def _first_level_outside():
    """The `stacklevel` with which a warning names the user's line."""
    # _warn is 1, as it calls this function.
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("tfxclass."):
        frame, level = frame.f_back, level + 1
    return level


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
