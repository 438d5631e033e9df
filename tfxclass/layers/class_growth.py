"""How the weights of a head follow its classes."""

from typing import Any

import keras
import numpy as np

from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.softmax import REMOVED_LOGIT
from tfxclass.rows import sharded_rows
from tfxclass.trees import growing
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.class_means import new_rows


class ClassGrowth:
    """Tells where the rows of new and kept classes come from, once built."""

    def __init__(self, head: keras.layers.Layer) -> None:
        self._head = head

    def row_sources(
        self, old: Any, change: ClassUpdate
    ) -> dict[str, np.ndarray]:
        """Where the rows of each weight come from, by its name, int64 `[rows]`.

        They are rows of the same weight in `old`, the head before `change`, and
        -1 for new ones. Weights that are not named are taken as they were.
        """
        before = {weight.name: weight for weight in old.class_weights()}
        sources = {}
        for weight in self._head.class_weights():
            classes = weight.classes
            rows = np.full(len(classes), -1)
            was = before.get(weight.name)
            if was is not None and not weight.name.startswith("offsets"):
                is_old = classes < was.first + was.shape[0]
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

        Rows of new classes are made of the `means` of their features, if there
        are any (`trees/class_means.py`), and their biases are the median.
        `values` has the rows that `row_sources` names.
        """
        (weight,) = [x for x in self._head.class_weights() if x.name == name]
        classes = weight.classes
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
        """Sets rows of rising `ids` with data to mean feature directions."""
        weights = [x for x in self._head.class_weights() if x.part is not None]
        if not weights:
            raise ValueError(
                "An encoder makes the class vectors of a "
                f"{type(self._head).__name__}. Fix: train without "
                "tfxclass.initialize_classes, or change the features with "
                "head.set_class_features(ids, class_features)"
            )
        for weight in weights:
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
    end = weight.first + weight.shape[0]
    is_here = (ids >= weight.first) & (ids < end) & (means.counts > 0)
    values[ids[is_here] - weight.first] = rows[is_here]


class TreeGrowth:
    """As `ClassGrowth`, for a tree, whose vectors belong to nodes."""

    def __init__(self, head: keras.layers.Layer) -> None:
        self._head = head

    def places_near(self, means: ClassMeans | None, count: int) -> np.ndarray:
        """The class that each mean is taken for, else those near the root."""
        depths = self._head.tree.depths()
        depths[self._head.tree.leaves < 0] = np.iinfo(np.int64).max
        shallow = np.argsort(depths, kind="stable")[: self._head.num_answers]
        places = np.resize(shallow, count)
        if means is not None:
            found, _ = self._head.top_k(means.of_parts[0], 1)
            found = found.numpy()[:, 0]
            places = np.where((means.counts > 0) & (found >= 0), found, places)
        return places

    def row_sources(
        self, old: keras.layers.Layer, change: ClassUpdate
    ) -> dict[str, np.ndarray]:
        rows = growing.rows_of(
            changed_tree(old, change), self._head.independent
        )
        # Optimizer state of a difference of vectors belongs to neither.
        sources = {"kernel": np.where(rows.minus < 0, rows.plus, -1)}
        for weight in (self._head.nodes, self._head.leaves):
            sources[weight.name] = np.full(weight.shape[0], -1)
        return sources

    def finish_rows(
        self,
        name: str,
        values: np.ndarray,
        old: keras.layers.Layer,
        change: ClassUpdate,
        means: ClassMeans | None,
    ) -> None:
        """Differences of rows, and those that lead to new classes."""
        if name != "kernel":
            return
        changed = changed_tree(old, change)
        rows = growing.rows_of(changed, self._head.independent)
        was, turned = old.kernel.numpy(), rows.minus >= 0
        values[turned] = was[rows.plus[turned]] - was[rows.minus[turned]]
        if means is not None:
            values[rows.plus < 0] = growing.rows_to_new(
                changed, rows, was, change.added, means, self._head.independent
            )

    def set_means(self, ids: np.ndarray, means: ClassMeans) -> None:
        """Sets rows to means below a child, or to their difference."""
        tree, values = self._head.tree, self._head.kernel.numpy()
        below = np.zeros((tree.num_nodes, means.of_parts[0].shape[1]))
        has_leaf = tree.leaves[ids] >= 0
        below[tree.leaves[ids[has_leaf]]] = means.of_parts[0][has_leaf]
        for node in range(tree.num_nodes - 1, 0, -1):
            below[tree.parents[node]] += below[node]
        same = growing.ChangedTree(tree, tree, *[np.arange(tree.num_nodes)] * 2)
        children = growing.rows_of(same, self._head.independent).children
        rows = growing.row_directions(
            tree, directions(below), children, self._head.independent
        )
        is_known = np.any(rows != 0, axis=1)
        dim = below.shape[1]
        norm = median_norm(values[:, :dim])
        values[is_known, :dim] = norm * rows[is_known]
        self._head.kernel.assign(values)


def changed_tree(
    head: keras.layers.Layer, change: ClassUpdate
) -> growing.ChangedTree:
    """The tree of a `HierarchicalSoftmax` after `change`."""
    if len(change.removed):
        return growing.without_classes(head.tree, change.removed)
    return growing.with_classes(
        head.tree, change.added, change.places, head.independent
    )
