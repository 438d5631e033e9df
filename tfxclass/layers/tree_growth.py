"""How the weights of a tree's nodes follow the classes of a head."""

import keras
import numpy as np

from tfxclass.core.class_update import ClassUpdate
from tfxclass.trees import growing
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.growing import rows_to_new


class TreeGrowth:
    """As `ClassGrowth`, for trees, whose vectors belong to nodes.

    Args:
        head: a built `HierarchicalSoftmax`.
    """

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
        for name in ("nodes", "leaves"):
            sources[name] = np.full(
                self._head.weights_by_name[name].shape[0], -1
            )
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
            values[rows.plus < 0] = rows_to_new(
                changed, rows, was, change.added, means, self._head.independent
            )

    def set_means(self, ids: np.ndarray, means: ClassMeans) -> None:
        """Sets rows to the mean directions of the classes below children.

        Where a node has one row, to their difference.
        """
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
