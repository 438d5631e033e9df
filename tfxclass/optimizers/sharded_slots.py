"""Optimizer state of class vectors that are split between replicas.

Each replica updates its own shard. The gradients of a shard are not summed over
the replicas, its slots are in the same shards, and files hold slots in the
order of all classes.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from tfxclass import shards as shards_lib
from tfxclass.rows import class_matrix
from tfxclass.types import Variable

_NEED_ALL_ROWS = ("clipnorm", "global_clipnorm", "gradient_accumulation_steps")


def keeps_shards(variable: Variable) -> bool:
    """Whether the optimizer was built with sharded optimizer state."""
    return class_matrix.of(variable).keeps_shards


def take_charge(optimizer: Any, variables: Sequence[Variable]) -> None:
    """Checks variables in shards and makes `keeps_shards` true of them."""
    for variable in variables:
        if shards_lib.shards_of(variable) is not None:
            _check(optimizer, variable)
            class_matrix.of(variable).set_shard_owner(optimizer)


def _check(optimizer, variable):
    """Refuses what needs the gradient or the variable as a whole."""
    options = {name: getattr(optimizer, name, None) for name in _NEED_ALL_ROWS}
    if optimizer.second_moment == "matrix":
        options["second_moment"] = "matrix"
    for name, value in options.items():
        if value:
            raise ValueError(
                f"`{name}` needs more than the rows of one replica, but "
                f"{variable.path!r} is in shards. Received: {name}={value}"
            )


def add(reference: Variable, make: Callable[[], Any]) -> Any:
    """Adds the state that `make()` returns, in the shards of `reference`."""
    shards = shards_lib.shards_of(reference)
    if shards is None:
        return make()
    with shards.creator():
        variable = make()
    shards.mark(variable)
    return variable
