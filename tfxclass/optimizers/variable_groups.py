"""Which variables an optimizer of several is for."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import path_of
from tfxclass.types import Variable

#: Layers, models, variables, paths of variables, or lists of them.
Owner = keras.Layer | Variable | str | Sequence[Any]


def flatten(owner: Owner) -> list[Owner]:
    """The layers, variables and paths in what a user named, one list."""
    if isinstance(owner, (list, tuple)):
        return [part for parts in owner for part in flatten(parts)]
    if isinstance(owner, (keras.Layer, keras.Variable, tf.Variable, str)):
        return [owner]
    raise ValueError(
        "Expected layers, models, variables or paths of variables, or lists "
        f"of them. Received: {owner!r}"
    )


class VariableGroups:
    """Numbers the groups that variables belong to.

    Args:
        owners: list, for each group what the user named.
        key_of: function that tells variables apart.
        order: list of pairs `(path, number)`, as `order()` gave it, or None.
    """

    def __init__(
        self,
        owners: Sequence[Owner],
        key_of: Callable[[Variable], Hashable],
        order: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        self._owners = [flatten(owner) for owner in owners]
        self._key_of = key_of
        self._order = order
        self._groups()  # tells at once of what is named twice

    def order(
        self, variables: Sequence[Variable] | None = None
    ) -> list[list[Any]]:
        """Path and number of each variable, in the order of `variables`.

        For a file: a model may come back with other paths ("model/dense" as
        "dense"), but not with its variables in another order.
        """
        if variables is not None:
            numbers = self.split(variables)
            return [[path_of(v), n] for v, n in zip(variables, numbers)]
        return [
            [part if isinstance(part, str) else path_of(part), number]
            for number, group in enumerate(self._parts())
            for part in group
        ]

    def split(self, variables: Sequence[Variable]) -> list[int]:
        """Numbers of the group of each variable, a list.

        Raises:
            ValueError: if one of them is in no group.
        """
        if self._order is not None and _fits(self._order, variables):
            return [number for _, number in self._order]
        groups = self._groups()
        found = [
            groups.get(self._key_of(v), groups.get(path_of(v)))
            for v in variables
        ]
        missing = [path_of(v) for v, g in zip(variables, found) if g is None]
        if missing:
            raise ValueError(
                "Each trainable variable must be named with one optimizer. "
                f"Received none for {missing}. Fix: name them or their "
                "layers, or set `trainable = False` before the model is "
                "compiled."
            )
        return found

    def number_of(self, layer: keras.Layer) -> int | None:
        """The group that names a layer, or a layer that has it; or None."""
        for number, group in enumerate(self._owners):
            for part in group:
                if isinstance(part, keras.Layer) and any(
                    inner is layer for inner in flat_layers(part)
                ):
                    return number
        return None

    def _parts(self):
        """Variables and paths of each group; layers may have been built since.

        All variables of a layer, so that it may be frozen and set free.
        """
        return [
            [
                part
                for owner in group
                for part in (
                    owner.weights if isinstance(owner, keras.Layer) else [owner]
                )
            ]
            for group in self._owners
        ]

    def _groups(self):
        """The number of the group by key of a variable, or by path."""
        found = {}
        for number, group in enumerate(self._parts()):
            for part in group:
                key = part if isinstance(part, str) else self._key_of(part)
                if found.setdefault(key, number) != number and not self._order:
                    path = part if isinstance(part, str) else path_of(part)
                    raise ValueError(
                        "A variable must be named with one optimizer. "
                        f"Received: '{path}' with numbers {found[key]} and "
                        f"{number}"
                    )
        return found


def _fits(order, variables):
    """Whether these are the variables, in this order."""
    names = [path.split("/")[-1] for path, _ in order]
    return names == [path_of(v).split("/")[-1] for v in variables]
