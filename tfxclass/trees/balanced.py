"""Trees of least depth."""

import numpy as np

from tfxclass.checks import check_positive_int
from tfxclass.trees.tree import Tree


def balanced(num_classes: int, arity: int = 2) -> Tree:
    """A tree of least depth, with classes in their order from left to right.

    Args:
        num_classes: int, number of classes.
        arity: int >= 2, largest number of children of a node. Defaults to 2.

    Returns:
        A `Tree`.

    Example:

    ```python
    tree = tfxclass.trees.balanced(1_000, arity=2)
    ```
    """
    num_classes = check_positive_int("num_classes", num_classes)
    arity = check_positive_int("arity", arity)
    if arity < 2:
        raise ValueError(f"`arity` must be at least 2. Received: {arity}")
    starts, sizes = np.array([0]), np.array([num_classes])
    degrees, classes = [], []
    while len(sizes):
        is_leaf = sizes == 1
        degrees.append(np.where(is_leaf, 0, np.minimum(sizes, arity)))
        classes.append(starts[is_leaf])
        starts, sizes = _split(starts[~is_leaf], sizes[~is_leaf], int(arity))
    return Tree(np.concatenate(degrees), np.concatenate(classes))


def _split(starts, sizes, arity):
    """Each range in up to `arity` parts, as equal as can be."""
    part = np.arange(arity)
    parts = sizes[:, None] // arity + (part < sizes[:, None] % arity)
    starts = starts[:, None] + np.cumsum(parts, axis=1) - parts
    return starts[parts > 0], parts[parts > 0]
