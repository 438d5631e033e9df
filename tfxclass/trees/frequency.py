"""Blocks of classes by frequency, for heads that treat the rare ones apart."""

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import check_positive_int
from tfxclass.trees.huffman import check_counts


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
    counts = check_counts(counts)
    num_blocks = check_positive_int("num_blocks", num_blocks)
    if len(counts) < num_blocks:
        raise ValueError(
            "`counts` must have shape [num_classes], with a class for each "
            f"block at least. Received: shape {counts.shape} with "
            f"num_blocks={num_blocks}."
        )
    if np.any(np.diff(counts) > 0):
        first = int(np.flatnonzero(np.diff(counts) > 0)[0])
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
