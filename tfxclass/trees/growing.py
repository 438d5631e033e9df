"""Trees that get more leaves, or lose some, and where their rows come from."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.class_means import new_rows
from tfxclass.trees.tree import Tree
from tfxclass.trees.tree import contracted
from tfxclass.trees.tree import from_parents

# Part of the strength of a row of a flat head. Rows of a node are learned from
# its classes alone, so a whole one wins too often: 9 of 100 old answers were
# lost. The half loses none, and finds 5 in 6 of the new classes.
_STRENGTH = 0.5


class ChangedTree(NamedTuple):
    """A tree that was made of another one, with int64 `[num_nodes]` of it."""

    tree: Tree
    old: Tree
    #: The old node that was reached as this one is; -1 for a new one.
    edges: np.ndarray
    #: The old inner node that this one was; -1 for leaves and new ones.
    inner: np.ndarray


class Rows(NamedTuple):
    """Where the rows of a changed tree come from, int64 `[num_rows]`."""

    #: Row of the old tree; -1 for a new one.
    plus: np.ndarray
    #: The row that is taken off it, where a wide node has two children left.
    minus: np.ndarray
    #: The child that a row leads to; of a node with one row its first child.
    children: np.ndarray


def with_classes(
    tree: Tree, added: np.ndarray, places: Any, independent: bool
) -> ChangedTree:
    """A tree with leaves for distinct classes that have none in it.

    A new leaf becomes a sister of the leaf of its place, an old class, where
    their parent has a row for each child. Else that leaf becomes a node, with
    itself and the new leaves as children.
    """
    near = tree.leaves[places]
    parents = tree.parents[near]
    grows = (parents >= 0) & ~tree.shares_row(parents, independent)
    # A leaf that becomes a node keeps its number, as which child it is counts.
    split = np.unique(near[~grows])
    moved = tree.num_nodes + np.arange(len(split))
    new = tree.num_nodes + len(split) + np.arange(len(added))
    num_classes = max(tree.num_classes, int(added.max()) + 1)
    leaves = np.full(num_classes, -1)
    leaves[: tree.num_classes] = tree.leaves
    of_split = np.isin(leaves, split)
    leaves[of_split] = moved[np.searchsorted(split, leaves[of_split])]
    leaves[added] = new
    grown, order = from_parents(
        np.concatenate([tree.parents, split, np.where(grows, parents, near)]),
        leaves,
    )
    edges = np.where(order < tree.num_nodes, order, -1)
    was_inner = tree.num_children[edges] > 0
    return ChangedTree(
        grown, tree, edges, np.where((edges >= 0) & was_inner, edges, -1)
    )


def without_classes(tree: Tree, removed: np.ndarray) -> ChangedTree:
    """A tree without the leaves of some classes, distinct and not all."""
    leaves = tree.leaves.copy()
    leaves[removed] = -1
    smaller, nodes, edges = contracted(tree.parents, leaves, by_edge=True)
    inner = np.where(tree.num_children[nodes] > 0, nodes, -1)
    return ChangedTree(smaller, tree, edges, inner)


def rows_of(changed: ChangedTree, independent: bool) -> Rows:
    """`Rows` of the weights of a changed tree."""
    tree, old = changed.tree, changed.old
    children = np.arange(1, tree.num_nodes)
    parents = tree.parents[children]
    has_one = tree.shares_row(parents, independent)
    is_first = children == tree.first_children[parents]
    is_row = ~has_one | is_first
    source = _old_rows(changed, children, independent)
    was = changed.inner[parents]
    was_wide = (was >= 0) & (old.num_children[was] > 2)
    minus = np.full(len(children), -1)
    turned = has_one & is_first & was_wide
    minus[turned] = _old_rows(changed, children[turned] + 1, independent)
    return Rows(source[is_row], minus[is_row], children[is_row])


def _old_rows(changed, children, independent):
    """The rows that led to children, or -1 for new ones."""
    old = changed.old
    was = changed.inner[changed.tree.parents[children]]
    edges = changed.edges[children]
    first = old.first_rows(independent)[was]
    has_one = old.shares_row(was, independent)
    column = np.where(has_one, 0, edges - old.first_children[was])
    return np.where((was >= 0) & (edges >= 0), first + column, -1)


def _path_directions(
    tree: Tree, rows: np.ndarray, classes: np.ndarray, independent: bool
) -> np.ndarray:
    """Sum of the directions of `rows` that lead to classes, `[n, dim]`."""
    rows, first = directions(rows), tree.first_rows(independent)
    total = np.zeros((len(classes), rows.shape[1]), np.float32)
    nodes = tree.leaves[classes]
    while np.any(nodes > 0):
        parents = np.maximum(tree.parents[nodes], 0)
        place = nodes - tree.first_children[parents]
        has_one = tree.shares_row(parents, independent)
        row = first[parents] + np.where(has_one, 0, place)
        sign = np.where(has_one & (place == 1), -1.0, 1.0) * (nodes > 0)
        total += sign[:, np.newaxis].astype(np.float32) * rows[row]
        nodes = np.where(nodes > 0, parents, 0)
    return total


def row_directions(
    tree: Tree, of_nodes: np.ndarray, children: np.ndarray, independent: bool
) -> np.ndarray:
    """Directions of the vectors that lead to `Rows.children`, float32.

    `of_nodes` `[num_nodes, dim]` has the direction of each node.
    """
    parents = tree.parents[children]
    has_one = tree.shares_row(parents, independent)
    second = np.minimum(children + 1, tree.num_nodes - 1)
    other = np.where(has_one[:, np.newaxis], of_nodes[second], 0)
    return directions(of_nodes[children] - other)


def rows_to_new(
    changed: ChangedTree,
    rows: Rows,
    was: np.ndarray,
    added: np.ndarray,
    means: ClassMeans,
    independent: bool,
) -> np.ndarray:
    """The rows without `plus`: they lead to new leaves and to the old one.

    In a node with a row for each child a new one is made as for a new class
    (`new_rows`), but half as strong, and added to the mean of the node's rows.
    Where two children share a row, it tells them apart, with a bias of 0.

    `means` are of the `added` classes, and `was` has the old rows, float32
    `[rows, dim]`, or `[rows, dim + 1]` with biases.
    """
    tree, dim = changed.tree, means.of_parts[0].shape[1]
    parents = tree.parents[rows.children]
    is_wide = ~tree.shares_row(parents, independent)
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
    values[split, :dim] = median_norm(was[:, :dim]) * row_directions(
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
        _path_directions(changed.old, was, classes, independent)
    )
