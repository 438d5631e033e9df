"""The user's own hierarchy as a tree of classes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import check_choice
from tfxclass.trees.tree import Tree
from tfxclass.trees.tree import as_ints
from tfxclass.trees.tree import contracted
from tfxclass.trees.tree import levels_of


def hierarchy(
    parents: np.ndarray | Sequence[int | Sequence[int]],
    classes: ArrayLike | None = None,
    several_parents: str = "refuse",
) -> Tree:
    """A tree of classes from the parent of each node.

    Use it if a taxonomy of the classes is known. Several roots get a common
    one. A class with classes below it gets a leaf next to them, for "this
    class, and no narrower one". Nodes without classes below them are left out,
    and nodes with one child are replaced by it.

    Args:
        parents: for each node the number of its parent, or a list of parents.
            -1 or an empty list for a root.
        classes: ints `[num_classes]`, the node of each class. Defaults to the
            nodes without children, in rising order.
        several_parents: `"refuse"` raises if a node has several parents.
            `"first"` keeps the first of them.

    Returns:
        A `Tree`.

    Raises:
        ValueError: if there is a cycle, a parent is not a node, a node has
            several parents, or classes are not nodes or share one.

    Example:

    ```python
    # Node 0 is the root, 1 and 2 are groups, 3 to 6 are the classes.
    tree = tfxclass.trees.hierarchy([-1, 0, 0, 1, 1, 2, 2])
    assert tree.num_classes == 4
    ```
    """
    check_choice("several_parents", several_parents, ("refuse", "first"))
    parent_of = _single(parents, several_parents)
    count = len(parent_of)
    if not count or parent_of.min() < -1 or parent_of.max() >= count:
        raise ValueError(
            f"`parents` must be in [-1, {count}), one node at least. Received: "
            f"{parent_of.tolist()[:12]}"
        )
    if classes is None:
        classes = np.setdiff1d(np.arange(count), parent_of)
    # One root above all; a cycle is found before a lack of leaves is.
    top = count
    below = np.where(parent_of < 0, top, parent_of)
    parent_of = np.concatenate([below, [-1]])
    _check_root(parent_of)
    nodes = _check_classes(classes, count)
    # A leaf for each class below its node.
    parent_of = np.concatenate([parent_of, nodes])
    leaves = np.arange(top + 1, len(parent_of))
    return contracted(parent_of, leaves)[0]


def _single(parents, several_parents):
    if all(np.ndim(x) == 0 for x in parents):
        return as_ints("parents", list(parents))
    single = []
    for node, given in enumerate(parents):
        given = np.atleast_1d(given).tolist()
        if len(set(given)) > 1 and several_parents == "refuse":
            raise ValueError(
                f"Each node must have one parent. Received: node {node} with "
                f"parents {given}. Choose one, or pass "
                'several_parents="first".'
            )
        single.append(given[0] if given else -1)
    return as_ints("parents", single)


def _check_classes(classes, count):
    classes = as_ints("classes", classes)
    if not len(classes) or classes.min() < 0 or classes.max() >= count:
        raise ValueError(
            f"`classes` must be nodes in [0, {count}), one class at least. "
            f"Received: {classes.tolist()[:12]}"
        )
    nodes, times = np.unique(classes, return_counts=True)
    if times.max() > 1:
        raise ValueError(
            "`classes` must be different nodes. Received: node "
            f"{nodes[times.argmax()]} {times.max()} times."
        )
    return classes


def _check_root(parents):
    """Raises ValueError if some nodes are not below the root."""
    below = np.concatenate(levels_of(parents))
    is_below = np.isin(np.arange(len(parents)), below)
    if not is_below.all():
        raise ValueError(
            "`parents` must lead from each node to a root. Received: a cycle "
            f"that node {int(np.argmin(is_below))} is in or leads to."
        )
