"""A tree whose leaves are the classes, as flat arrays."""

import base64
import zlib
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_array
from tfxclass.checks import check_positive_int
from tfxclass.types import Config

#: Columns of `Tree.nodes`.
PARENT, FIRST_CHILD, NUM_CHILDREN, FIRST_ROW, CLASS = range(5)


@keras.saving.register_keras_serializable("tfxclass")
class Tree:
    """A tree with one leaf for each class.

    Make one with `huffman`, `balanced`, `clustered` or `hierarchy`. Nodes are
    numbered level by level from the root, node 0, and the children of a node
    follow each other.

    Args:
        num_children: ints `[num_nodes]`: 0 for a leaf, else 2 or more.
        classes: ints, the class of each leaf, in the order of the leaves.
        num_classes: int. Defaults to the number of leaves. If it is greater,
            some classes have no leaf, since they were removed.

    Attributes:
        num_children, classes, num_classes: as given, int64 arrays and an int.
        num_nodes: int, leaves and inner nodes.
        parents: int64 `[num_nodes]`, -1 for the root.
        first_children: int64 `[num_nodes]`, undefined for leaves.
        leaves: int64 `[num_classes]`, the leaf of each class, or -1.

    Raises:
        ValueError: if the arrays do not describe such a tree.
    """

    def __init__(
        self,
        num_children: ArrayLike,
        classes: ArrayLike,
        num_classes: int | None = None,
    ) -> None:
        self.num_children = as_ints("num_children", num_children)
        self.classes = as_ints("classes", classes)
        self.num_classes = len(self.classes)
        if num_classes is not None:
            self.num_classes = check_positive_int("num_classes", num_classes)
        self._check()
        ends = np.cumsum(self.num_children) + 1
        self.first_children = ends - self.num_children
        inner = np.arange(self.num_nodes)
        self.parents = np.repeat(inner, self.num_children)
        self.parents = np.concatenate([[-1], self.parents])
        self.leaves = np.full(self.num_classes, -1)
        self.leaves[self.classes] = np.flatnonzero(self.num_children == 0)

    def _check(self):
        degrees, classes = self.num_children, self.classes
        if len(degrees) == 0 or degrees.min() < 0 or np.any(degrees == 1):
            raise ValueError(
                "`num_children` must be 0 for leaves and 2 or more for other "
                f"nodes, one node at least. Received: {_short(degrees)}"
            )
        # Nodes seen so far, less those that were looked at.
        waiting = np.cumsum(degrees - 1) + 1
        if waiting[-1] != 0 or np.any(waiting[:-1] < 1):
            raise ValueError(
                "`num_children` must be those of one tree, level by level: "
                f"node 0 reaches all. Received: {_short(degrees)}"
            )
        num_leaves = np.count_nonzero(degrees == 0)
        found = np.unique(classes)
        if (
            len(classes) != num_leaves
            or len(found) != num_leaves
            or found[0] < 0
            or found[-1] >= self.num_classes
        ):
            raise ValueError(
                "`classes` must be the numbers 0 to num_classes - 1, one for "
                f"each of the {num_leaves} leaves. Received: {_short(classes)}"
            )

    @property
    def num_nodes(self) -> int:
        return len(self.num_children)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        arrays = (self.num_children, self.first_children, self.parents)
        return sum(x.nbytes for x in (*arrays, self.classes, self.leaves))

    @property
    def live(self) -> np.ndarray:
        """Classes that have a leaf, in rising order, int64."""
        return np.flatnonzero(self.leaves >= 0)

    def depths(self) -> np.ndarray:
        """Number of edges to each class, int64 `[num_classes]`."""
        depths = np.zeros(self.num_nodes, np.int64)
        for depth, level in enumerate(levels_of(self.parents)):
            depths[level] = depth
        return np.where(self.leaves < 0, 0, depths[self.leaves])

    def path(self, class_id: int) -> list[int]:
        """Nodes from the root to the leaf of `class_id`, a list of ints."""
        path = [int(self.leaves[class_id])]
        while path[-1]:
            path.append(int(self.parents[path[-1]]))
        return path[::-1]

    def num_rows(self, independent: bool = False) -> int:
        """Number of weight vectors: one for each child of a node.

        Two children share one unless `independent` (probabilistic label tree).
        """
        return int(self._rows_of_nodes(independent).sum())

    def nodes(self, independent: bool = False) -> np.ndarray:
        """The tree as compiled ops read it; int64 `[num_nodes, 5]`.

        The columns are the parent, the first child, the number of children, the
        first weight vector, and the class of a leaf, by its place in `live`.
        """
        nodes = np.zeros((self.num_nodes, 5), np.int64)
        is_inner = self.num_children > 0
        nodes[:, PARENT] = self.parents
        nodes[is_inner, FIRST_CHILD] = self.first_children[is_inner]
        nodes[:, NUM_CHILDREN] = self.num_children
        nodes[is_inner, FIRST_ROW] = self.first_rows(independent)[is_inner]
        nodes[:, CLASS] = -1
        nodes[~is_inner, CLASS] = np.searchsorted(self.live, self.classes)
        return nodes

    def first_rows(self, independent: bool = False) -> np.ndarray:
        """The first weight vector of each inner node, int64 `[num_nodes]`."""
        rows = self._rows_of_nodes(independent)
        return np.cumsum(rows) - rows

    def shares_row(self, nodes: Any, independent: bool) -> np.ndarray:
        """Whether the two children of nodes share a weight vector, bool."""
        return (self.num_children[nodes] == 2) & (not independent)

    def _rows_of_nodes(self, independent):
        return self.num_children - self.shares_row(slice(None), independent)

    def __repr__(self):
        return f"<Tree of {self.num_classes} classes, {self.num_nodes} nodes>"

    def __eq__(self, other):
        return (
            isinstance(other, Tree)
            and np.array_equal(self.num_children, other.num_children)
            and np.array_equal(self.classes, other.classes)
            and self.num_classes == other.num_classes
        )

    __hash__ = None  # type: ignore[assignment]

    def get_config(self) -> Config:
        return {
            "num_children": _packed(self.num_children),
            "classes": _packed(self.classes),
            "num_classes": self.num_classes,
        }

    @classmethod
    def from_config(cls, config: Config) -> "Tree":
        return cls(
            _unpacked(config["num_children"]),
            _unpacked(config["classes"]),
            config.get("num_classes"),
        )


def from_parents(
    parents: np.ndarray, leaves: np.ndarray
) -> tuple[Tree, np.ndarray]:
    """A `Tree` of nodes in any order, and the given number of each of its own.

    Children of a node keep the order of their numbers. `parents` is -1 for the
    one root, and `leaves` has the leaf of each class, or -1.
    """
    order = np.concatenate(levels_of(parents))
    degrees = np.bincount(parents + 1, minlength=len(parents) + 1)[1:]
    classes = np.full(len(parents), -1)
    classes[leaves[leaves >= 0]] = np.flatnonzero(leaves >= 0)
    classes = classes[order]
    tree = Tree(degrees[order], classes[degrees[order] == 0], len(leaves))
    return tree, order


def levels_of(parents: np.ndarray) -> list[np.ndarray]:
    """The nodes below the root, which has the parent -1, level by level."""
    degrees = np.bincount(parents + 1, minlength=len(parents) + 1)[1:]
    starts = np.cumsum(degrees) - degrees
    by_parent = np.argsort(parents, kind="stable")[1:]  # without the root
    level, levels = np.flatnonzero(parents < 0), []
    while len(level):
        levels.append(level)
        sizes = degrees[level]
        # The ranges [start, start + size), one after the other.
        first = np.repeat(starts[level] - np.cumsum(sizes) + sizes, sizes)
        level = by_parent[np.arange(sizes.sum()) + first]
    return levels


def contracted(
    parents: np.ndarray, leaves: np.ndarray, by_edge: bool = False
) -> tuple[Tree, np.ndarray, np.ndarray]:
    """A `Tree` of leaves and of the nodes in which paths to them part.

    Arguments are as in `from_parents`; nodes without leaves below are left out.
    Returns `(tree, nodes, edges)`: for each node of the tree its given number,
    and the child of its parent by which it was reached. The children of a node
    are in the order of their numbers, or `by_edge` in the order of these.
    """
    degrees = np.zeros(len(parents), np.int64)
    is_used = np.isin(np.arange(len(parents)), leaves)
    for level in levels_of(parents)[:0:-1]:
        level = level[is_used[level]]
        np.add.at(degrees, parents[level], 1)
        is_used[parents[level]] = True
    is_passed = degrees == 1
    nodes = np.flatnonzero(is_used & ~is_passed)
    above, edges = parents[nodes], nodes.copy()
    while np.any(passed := (above >= 0) & is_passed[above]):
        edges[passed] = above[passed]
        above[passed] = parents[above[passed]]
    if by_edge:
        order = np.argsort(edges)
        nodes, above, edges = nodes[order], above[order], edges[order]
    # The last place is for -1: no parent, or no leaf.
    number = np.full(len(parents) + 1, -1)
    number[nodes] = np.arange(len(nodes))
    tree, order = from_parents(number[above], number[leaves])
    return tree, nodes[order], edges[order]


def as_ints(name: str, values: ArrayLike) -> np.ndarray:
    """`values` as int64 `[n]`."""
    array = as_array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"`{name}` must be integers of shape [n]. Received: "
            f"dtype={array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64)


def _short(array):
    return np.array2string(array, threshold=12, edgeitems=4)


def _packed(array):
    data = zlib.compress(array.astype("<i4").tobytes(), 6)
    return base64.b64encode(data).decode("ascii")


def _unpacked(text):
    data = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(data, "<i4").astype(np.int64)
