"""Saving and loading of variables of which some are in shards."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfxclass.shards.shards import shards_of
from tfxclass.types import Store


def read(variable: Any) -> np.ndarray:
    """All rows, also of one in shards."""
    shards = shards_of(variable)
    if shards is not None:
        return shards.read(variable)
    return variable.numpy()


def write(variable: Any, values: np.ndarray) -> None:
    """Assigns all rows, also of one in shards."""
    shards = shards_of(variable)
    if shards is not None:
        shards.write(variable, values)
    else:
        variable.assign(values)


def save(variables: Sequence[Any], store: Store) -> None:
    """Writes variables into `store` by number, rows in their global order."""
    for number, variable in enumerate(variables):
        shards = shards_of(variable)
        store[str(number)] = (
            variable.numpy() if shards is None else shards.read(variable)
        )


def load(variables: Sequence[Any], store: Store) -> None:
    """Reads what `save` wrote, for any number of shards."""
    for number, variable in enumerate(variables):
        shards = shards_of(variable)
        if shards is None:
            variable.assign(store[str(number)])
        else:
            shards.write(variable, np.asarray(store[str(number)]))
