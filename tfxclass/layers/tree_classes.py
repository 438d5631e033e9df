"""How classes of a head whose rows are of a tree's nodes come and go."""

from typing import Any

import keras
import numpy as np

from tfxclass.core.change import Change
from tfxclass.layers.class_numbers import ClassNumbers
from tfxclass.layers.class_numbers import ClassWeight
from tfxclass.trees import growing
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.tree_rows import rows_to_new
from tfxclass.types import Config


class TreeClasses(ClassNumbers):
    """`ClassNumbers` of a head with a `Tree`: a class is a leaf.

    Attributes:
        tree: `tfxclass.trees.Tree`.
        independent: bool, whether each child of a node has a row.
        use_bias: bool, whether the last column of the rows is a bias.
        kernel: variable `[rows, dim]`.
        made: variables by name.
    """

    tree: Any
    independent: bool
    use_bias: bool
    kernel: Any
    made: dict[str, Any]

    def places_near(self, means: ClassMeans | None, count: int) -> np.ndarray:
        """The class that each mean is taken for, else those near the root."""
        depths = self.tree.depths()
        depths[self.tree.leaves < 0] = np.iinfo(np.int64).max
        shallow = np.argsort(depths, kind="stable")[: self.num_answers]
        places = np.resize(shallow, count)
        if means is not None:
            found, _ = self.top_k(means.of_parts[0], 1)
            found = found.numpy()[:, 0]
            places = np.where((means.counts > 0) & (found >= 0), found, places)
        return places

    def changed_config(self, change: Change) -> Config:
        tree = keras.saving.serialize_keras_object(self._changed(change).tree)
        return {**super().changed_config(change), "tree": tree}

    def _changed(self, change):
        """The tree after `change`, a `ChangedTree`."""
        if len(change.removed):
            return growing.without_classes(self.tree, change.removed)
        return growing.with_classes(
            self.tree, change.added, change.places, self.independent
        )

    def class_weights(self) -> list[ClassWeight]:
        """None: rows are of nodes."""
        return []

    def row_sources(
        self, old: "TreeClasses", change: Change
    ) -> dict[str, np.ndarray]:
        rows = growing.rows_of(old._changed(change), self.independent)
        # Slots of a difference of rows are of neither.
        sources = {"kernel": np.where(rows.minus < 0, rows.plus, -1)}
        for name in ("nodes", "leaves"):
            sources[name] = np.full(self.made[name].shape[0], -1)
        return sources

    def finish_rows(
        self,
        name: str,
        values: np.ndarray,
        old: "TreeClasses",
        change: Change,
        means: ClassMeans | None,
    ) -> None:
        """Differences of rows, and those that lead to new classes."""
        if name != "kernel":
            return
        changed = old._changed(change)
        rows = growing.rows_of(changed, self.independent)
        was, turned = old.kernel.numpy(), rows.minus >= 0
        values[turned] = was[rows.plus[turned]] - was[rows.minus[turned]]
        if means is not None:
            values[rows.plus < 0] = rows_to_new(
                changed, rows, was, change.added, means, self.independent
            )

    def set_means(self, ids: np.ndarray, means: ClassMeans) -> None:
        """Sets rows to the mean directions of the classes below children.

        Where a node has one row, to their difference.
        """
        tree, values = self.tree, self.kernel.numpy()
        below = np.zeros((tree.num_nodes, means.of_parts[0].shape[1]))
        has_leaf = tree.leaves[ids] >= 0
        below[tree.leaves[ids[has_leaf]]] = means.of_parts[0][has_leaf]
        for node in range(tree.num_nodes - 1, 0, -1):
            below[tree.parents[node]] += below[node]
        same = growing.ChangedTree(tree, tree, *[np.arange(tree.num_nodes)] * 2)
        children = growing.rows_of(same, self.independent).children
        rows = growing.row_directions(
            tree, directions(below), children, self.independent
        )
        is_known = np.any(rows != 0, axis=1)
        dim = below.shape[1]
        norm = median_norm(values[:, :dim])
        values[is_known, :dim] = norm * rows[is_known]
        self.kernel.assign(values)
