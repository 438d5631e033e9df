"""How samplers find out that the replicas of a class matrix differ."""

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass.types import Variable

_OPTIMIZER = "_tfxclass_steps_apart"
_FOLLOWER = "_tfxclass_follower"


def steps_apart(variable: Variable) -> bool:
    """Whether an optimizer was built that moves each replica by itself."""
    reference = getattr(variable, _OPTIMIZER, None)
    return reference is not None and reference() is not None


def mark(variable: Variable, optimizer: Any) -> None:
    """Makes `steps_apart` true of it while the optimizer is there."""
    setattr(variable, _OPTIMIZER, weakref.ref(optimizer))


def follow(variable: Variable, told: Callable[[tf.Tensor], None]) -> None:
    """Has the method `told` called with the rows that an average moves."""
    setattr(variable, _FOLLOWER, weakref.WeakMethod(told))


def tell(variable: Variable, ids: tf.Tensor) -> None:
    """Tells the follower of rows, int64 `[n]`, that were moved."""
    reference = getattr(variable, _FOLLOWER, None)
    told = reference() if reference is not None else None
    if told is not None:
        told(ids)
