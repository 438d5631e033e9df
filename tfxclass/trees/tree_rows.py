"""Rows of a tree that lead to new leaves."""

import numpy as np

from tfxclass.trees import growing
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.new_rows import new_rows

# Of a row that is as strong as a row of a flat head. Rows of a node are learned
# from the features of its classes alone, so a whole one wins too often: 9 of
# 100 old answers were lost where the half loses none and finds 5 in 6 of the
# new classes that the whole one finds.
_STRENGTH = 0.5


def rows_to_new(
    changed: growing.ChangedTree,
    rows: growing.Rows,
    was: np.ndarray,
    added: np.ndarray,
    means: ClassMeans,
    independent: bool,
) -> np.ndarray:
    """The vectors that lead to new leaves and to the old one.

    In a node with a row for each child a new one is made as for a new class
    among the classes (`new_rows`), but half as strong: it is the mean of the
    node's rows and what tells the class from all others. Where two children
    have one row, it is what tells the one from the other.

    Args:
        changed: `ChangedTree`.
        rows: `Rows` of it.
        was: float32 `[rows, dim]`, or `[rows, dim + 1]` with biases.
        added: int64 `[n]`, the new classes.
        means: `ClassMeans` of these.
        independent: bool, as in `Tree.num_rows`.

    Returns:
        float32, of the rows without `plus`; in the other nodes' biases 0.
    """
    tree, dim = changed.tree, means.of_parts[0].shape[1]
    parents = tree.parents[rows.children]
    is_wide = (tree.num_children[parents] > 2) | independent
    is_new, kept = rows.plus < 0, is_wide & (rows.plus >= 0)
    common = _means(parents[kept], was[rows.plus[kept]], tree.num_nodes)
    others = was[rows.plus[kept]] - common[parents[kept]]
    others = (others if len(others) else was)[:, :dim]
    of_nodes = np.zeros((tree.num_nodes, dim), np.float32)
    of_nodes[tree.leaves[added]] = _STRENGTH * new_rows(others, means, 0, False)
    values = common[parents]
    values[:, :dim] += of_nodes[rows.children]
    split = is_new & ~is_wide
    of_nodes = directions(of_nodes)
    _add_old(of_nodes, changed, rows.children[split], was[:, :dim], independent)
    values[split, :dim] = median_norm(was[:, :dim]) * growing.row_directions(
        tree, of_nodes, rows.children[split], independent
    )
    return values[is_new]


def _means(groups, rows, count):
    """Mean row of each group, zeros of none; float32 `[count, dim]`."""
    sums = np.zeros((count, rows.shape[1]), np.float32)
    np.add.at(sums, groups, rows)
    sizes = np.bincount(groups, minlength=count)
    return sums / np.maximum(sizes, 1)[:, np.newaxis].astype(np.float32)


def _add_old(of_nodes, changed, children, was, independent):
    """Sets directions of the old leaves of nodes with one row, new ones."""
    tree = changed.tree
    # The first of the two children has the row.
    both = np.concatenate([children, children + 1])
    classes = np.flatnonzero(np.isin(tree.leaves, both))
    classes = classes[classes < changed.old.num_classes]
    classes = classes[changed.old.leaves[classes] >= 0]
    of_nodes[tree.leaves[classes]] = directions(
        growing.path_directions(changed.old, was, classes, independent)
    )
