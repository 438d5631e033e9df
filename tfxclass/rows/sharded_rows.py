"""Variables of which some are in shards: read, written and saved as a whole."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfxclass.rows.class_matrix import owner_of
from tfxclass.shards import Shards
from tfxclass.types import Store


def shards_of(variable: Any) -> Shards | None:
    """The `Shards` of class vectors, biases or optimizer state, or None."""
    if hasattr(variable, "parts"):
        return variable.shards
    matrix = owner_of(variable)
    shards = None if matrix is None else matrix.shards
    if shards is None or not shards.is_of_replicas or shards.count == 1:
        return None
    return shards


def read(variable: Any) -> np.ndarray:
    """All rows in their order, also of one in shards."""
    shards = shards_of(variable)
    return variable.numpy() if shards is None else shards.read(variable)


def write(variable: Any, values: np.ndarray) -> None:
    """Assigns all rows, also of one in shards."""
    _write_blocks(variable, [values], np.asarray)


def _write_blocks(variable, keys, read):
    shards = shards_of(variable)
    if shards is not None:
        return shards.write_blocks(variable, keys, read)
    rows = [read(key) for key in keys]
    variable.assign(rows[0] if len(rows) == 1 else np.concatenate(rows))


def save(variables: Sequence[Any], store: Store) -> None:
    """Writes variables by number; a large one in shards is never held whole."""
    for number, variable in enumerate(variables):
        shards = shards_of(variable)
        if shards is None or shards.num_blocks(variable) == 1:
            store[str(number)] = read(variable)
            continue
        for place, block in enumerate(shards.read_blocks(variable)):
            store[f"{number}.{place}"] = block


def load(variables: Sequence[Any], store: Store) -> None:
    """Reads what `save` wrote, for any number of shards."""
    names = set(store.keys())
    for number, variable in enumerate(variables):
        keys = [str(number)]
        if keys[0] not in names:
            places = range(sum(x.startswith(f"{number}.") for x in names))
            keys = [f"{number}.{place}" for place in places]
        if not keys:
            raise ValueError(f"No values are saved for {variable.path!r}.")
        _write_blocks(variable, keys, store.__getitem__)


def num_saved(store: Store) -> int:
    """How many variables `save` wrote."""
    return len({key.split(".")[0] for key in store.keys()})
