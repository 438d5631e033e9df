"""Optimizer state of class vectors that are split between replicas.

Each replica updates its own shard. The gradients of a shard are not summed over
the replicas, its slots are in the same shards, and files hold slots in the
order of all classes.
"""

from collections.abc import Callable
from typing import Any

from tfxclass.owners import OWNERS
from tfxclass.shards import shards_of
from tfxclass.types import Variable

_NEED_ALL_ROWS = ("clipnorm", "global_clipnorm", "gradient_accumulation_steps")


def check(optimizer: Any, variable: Variable) -> None:
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
    shards = shards_of(reference)
    if shards is None:
        return make()
    with shards.creator():
        variable = make()
    OWNERS.set(variable, OWNERS.get(reference))
    return variable
