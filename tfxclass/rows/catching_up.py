"""How what reads rows finds the optimizer that may be behind with them."""

import functools
import weakref
from typing import Any

import keras

from tfxclass.types import Array
from tfxclass.types import Variable

_OPTIMIZER = "_tfxclass_lazy_optimizer"
_SHARED = "_tfxclass_shared_rows"


def catch_up(variable: Variable, ids: Array | None = None) -> None:
    """Applies the steps that rows skipped, before they are read.

    A head calls this in front of each gather from `variable`, and needs not
    know the optimizer: nothing happens unless one with `catch_up=True` was
    built for the variable. In a `tf.function` the gather has to come after
    this call in the Python code; automatic control dependencies keep the two
    in order, and the update after both. Gather from `variable.value`: a
    gather from the Keras variable itself first reads the whole matrix as a
    tensor, and a row update that runs while this tensor lives has to copy it.

    Build the optimizer before the function is traced (`fit` does).

    Args:
        variable: `keras.Variable`.
        ids: integer tensor of any shape, the rows about to be read. None
            means all of them: before an evaluation, an export, or a save that
            something other than this optimizer will read.
    """
    optimizer = _linked(variable)
    if optimizer is None or not optimizer.catch_up:
        return
    if ids is None:
        optimizer.catch_up_all(variable)
    else:
        optimizer.catch_up_rows(variable, ids)


def link(variable: Variable, optimizer: Any) -> None:
    """Makes `catch_up` find the optimizer, until that is gone.

    From then on rows are settled before they are assigned, too: they would
    else move on from their new place by steps that came before, and count with
    it in averages of these steps.
    """
    if isinstance(variable, keras.Variable) and not hasattr(
        variable, _OPTIMIZER
    ):
        for name in ("assign", "assign_add", "assign_sub"):
            setattr(variable, name, _after_settling(variable, name))
    setattr(variable, _OPTIMIZER, weakref.ref(optimizer))


def mark_shared(variable: Variable) -> None:
    """Says that a layer that knows nothing of `catch_up` reads the rows."""
    setattr(variable, _SHARED, True)


def check_alone(variable: Variable) -> None:
    """Raises ValueError for rows that `mark_shared` was called for."""
    if getattr(variable, _SHARED, False):
        raise ValueError(
            "Rows of a head with `tied_to` are read by an embedding, which "
            "does not bring them up to date. Fix: catch_up=False. Received: "
            f"catch_up=True for {variable.path!r}"
        )


def _linked(variable):
    reference = getattr(variable, _OPTIMIZER, None)
    return reference() if reference is not None else None


def _after_settling(variable, name):
    assign = getattr(type(variable), name)
    reference = weakref.ref(variable)

    @functools.wraps(assign)
    def assign_current(*args, **kwargs):
        variable = reference()
        optimizer = _linked(variable)
        if optimizer is not None:
            optimizer.before_assign(variable)
        return assign(variable, *args, **kwargs)

    return assign_current
