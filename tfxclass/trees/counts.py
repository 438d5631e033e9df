"""What counts of classes give: Huffman's tree, and blocks of classes."""

import numpy as np
from numpy.typing import ArrayLike

from tfxclass import progress
from tfxclass.checks import as_numbers_of_classes
from tfxclass.checks import check_positive_int
from tfxclass.trees.tree import Tree
from tfxclass.trees.tree import from_parents


def huffman(counts: ArrayLike) -> Tree:
    """The binary tree with the least mean depth over all occurrences.

    Use it for the fastest training step. 2 million classes take two seconds.

    Args:
        counts: numbers >= 0, `[num_classes]`, how often each class occurs.

    Returns:
        A `Tree`.

    Example:

    ```python
    tree = tfxclass.trees.huffman([90, 50, 9, 4, 2, 1])
    ```

    References:
        Huffman, A method for the construction of minimum-redundancy codes,
        1952.
        van Leeuwen, On the construction of Huffman trees, 1976 (two queues).
    """
    counts = as_numbers_of_classes("counts", counts)
    if not len(counts):
        raise ValueError(
            "`counts` must have shape [num_classes], one class at least. "
            f"Received: shape {counts.shape}"
        )
    order = np.argsort(counts, kind="stable")
    num_classes = len(counts)
    with progress.log_if_slow(f"Making a tree of {num_classes:,} classes"):
        # Nodes by rising weight: the leaves, then what was merged.
        parents = np.array(_merge(counts[order].tolist()), np.int64)
    leaves = np.empty(num_classes, np.int64)
    leaves[order] = np.arange(num_classes)
    return from_parents(parents, leaves)[0]


def split_by_frequency(counts: ArrayLike, num_blocks: int) -> list[int]:
    """Sizes of blocks with about equal numbers of occurrences.

    Use it for `DifferentiatedSoftmax` (`blocks=zip(sizes, widths)`),
    `AdaptiveSoftmax` (`cutoffs=np.cumsum(sizes)[:-1]`) and
    `AdaptiveProjectedSoftmax` (`group_sizes=sizes`).

    Args:
        counts: numbers >= 0, `[num_classes]`, falling: how often each class
            occurs. Number the classes by frequency first.
        num_blocks: int, at most `num_classes`.

    Returns:
        List of `num_blocks` ints >= 1 whose sum is `num_classes`.

    Raises:
        ValueError: if counts are not falling, not finite or below zero.

    Example:

    ```python
    sizes = tfxclass.layers.split_by_frequency([90, 50, 9, 4, 2, 1], 2)
    ```
    """
    counts = as_numbers_of_classes("counts", counts)
    num_blocks = check_positive_int("num_blocks", num_blocks)
    if len(counts) < num_blocks:
        raise ValueError(
            "`counts` must have shape [num_classes], with a class for each "
            f"block at least. Received: shape {counts.shape} with "
            f"num_blocks={num_blocks}."
        )
    rises = np.flatnonzero(np.diff(counts) > 0)
    if len(rises):
        first = rises[0]
        raise ValueError(
            "`counts` must be falling: number the classes by frequency. "
            f"Received: {counts[first]} for class {first} and "
            f"{counts[first + 1]} for class {first + 1}."
        )
    shares = np.cumsum(counts)
    wanted = shares[-1] * np.arange(1, num_blocks) / num_blocks
    ends = np.searchsorted(shares, wanted) + 1
    # At least one class for each block, before and after.
    least = np.arange(1, num_blocks)
    ends = np.maximum.accumulate(np.maximum(ends - least, 0)) + least
    ends = np.minimum(ends, len(counts) - num_blocks + least)
    return np.diff([0, *ends, len(counts)]).tolist()


def _merge(weights):
    """Parents of the nodes whose first ones have these rising `weights`."""
    count = len(weights)
    parents = [-1] * (2 * count - 1)
    leaf, merged = 0, count
    for node in range(count, 2 * count - 1):
        total = 0.0
        for _ in range(2):
            # Among equal counts the leaf is first: this keeps the tree shallow.
            if leaf < count and (
                merged == node or weights[leaf] <= weights[merged]
            ):
                least, leaf = leaf, leaf + 1
            else:
                least, merged = merged, merged + 1
            total += weights[least]
            parents[least] = node
        weights.append(total)
    return parents
