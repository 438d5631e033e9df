"""How the weights of a head with a row a class follow its classes."""

from typing import Any

import keras
import numpy as np

from tfxclass.core.class_update import ClassUpdate
from tfxclass.layers.class_set import REMOVED_LOGIT
from tfxclass.rows import sharded_rows
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.class_means import new_rows


class ClassGrowth:
    """Tells where the class vectors of new and kept classes come from.

    `tfxclass.add_classes` and its like call it.

    Args:
        head: a built head that gives `class_weights`.
    """

    def __init__(self, head: keras.layers.Layer) -> None:
        self._head = head

    def row_sources(
        self, old: Any, change: ClassUpdate
    ) -> dict[str, np.ndarray]:
        """The positions of weights in the head that they come from.

        Args:
            old: the head before `change`, of the same configuration but for
                it.
            change: `ClassUpdate`.

        Returns:
            int64 `[rows]` by name of a weight: rows of the old one, -1 for
            rows that are new. Weights that are not named are taken as they
            were.
        """
        before = {weight.name: weight for weight in old.class_weights()}
        sources = {}
        for weight in self._head.class_weights():
            classes = weight.first + np.arange(weight.size)
            rows = np.full(weight.size, -1)
            was = before.get(weight.name)
            if was is not None and not weight.name.startswith("offsets"):
                is_old = classes < was.first + was.size
                is_old &= ~np.isin(classes, change.added)
                is_old &= ~np.isin(classes, change.removed)
                rows[is_old] = classes[is_old] - was.first
            sources[weight.name] = rows
        return sources

    def finish_rows(
        self,
        name: str,
        values: np.ndarray,
        old: Any,
        change: ClassUpdate,
        means: ClassMeans | None,
    ) -> None:
        """Sets the rows of new and of removed classes in a weight.

        Rows of new classes are made of their features (`trees/class_means.py`),
        and their biases are the median; without data, as the initializer made
        them.

        Args:
            name: str, of the weight.
            values: its numbers, with the rows that `row_sources` names.
            old: the head before `change`.
            change: `ClassUpdate`.
            means: `ClassMeans` of the new classes, or None.
        """
        (weight,) = [x for x in self._head.class_weights() if x.name == name]
        classes = weight.first + np.arange(weight.size)
        is_gone = np.isin(classes, self._head.removed)
        others = values[~is_gone & ~np.isin(classes, change.added)]
        if name == "bias":
            places = np.isin(classes, change.added)
            values[places] = np.median(others) if len(others) else 0
            values[is_gone] = REMOVED_LOGIT
        elif weight.part is not None:
            values[is_gone] = 0
            if means is not None:
                rows = new_rows(others, means, weight.part, self._is_cosine)
                _set_rows(weight, values, change.added, means, rows)

    def set_means(self, ids: np.ndarray, means: ClassMeans) -> None:
        """Sets the rows of classes to the mean directions of their features.

        Args:
            ids: int64 `[n]`, rising.
            means: `ClassMeans` of them; classes without rows stay.
        """
        for weight in self._head.class_weights():
            if weight.part is None:
                continue
            variable = self._head.weights_by_name[weight.name]
            values = np.array(sharded_rows.read(variable))
            norm = 1.0 if self._is_cosine else median_norm(values)
            rows = norm * means.of_parts[weight.part]
            _set_rows(weight, values, ids, means, rows)
            sharded_rows.write(variable, values)

    @property
    def _is_cosine(self):
        return getattr(self._head, "similarity", "dot") == "cosine"

    def places_near(self, means: ClassMeans | None, count: int) -> Any:
        """An old class near each new one, where that matters; or None."""
        return None


def _set_rows(weight, values, ids, means, rows):
    """Rows of a weight, for the classes of `ids` that have data."""
    is_here = (ids >= weight.first) & (ids < weight.first + weight.size)
    is_here &= means.counts > 0
    values[ids[is_here] - weight.first] = rows[is_here]
