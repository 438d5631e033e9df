"""Trees in which classes that are alike are near each other."""

import numpy as np

from tfxclass.checks import check_positive_int
from tfxclass.trees.tree import Tree

# Rounds of 2-means end when the sum of the similarities grows by less.
_LEAST_GAIN = 1e-4
# Vectors copied at a time, where the groups are smaller.
_MOST_ROWS = 1 << 17


def clustered(vectors, arity=2, leaf_size=1, num_iterations=10, seed=0):
    """A tree of least depth that keeps classes with like vectors together.

    Groups are halved, level by level, by a spherical 2-means with parts of
    equal size. Time O(C log C dim num_iterations): 10 s for 147,306 classes
    and 64 dimensions.

    Args:
        vectors: floats `[num_classes, dim]`: the mean of the features of each
            class' rows, or class rows of a short training.
        arity: int, a power of 2: children of a node.
        leaf_size: int: a node of at most this many classes has them all as
            its children (Parabel: 100).
        num_iterations: int, most rounds of a 2-means.
        seed: int.

    Returns:
        A `Tree`.

    References:
        Prabhu et al., Parabel, WWW 2018, section 3.2. Khandagale et al.,
        Bonsai, 2020, of wider and shallower trees.
    """
    _check(arity, leaf_size, num_iterations)
    vectors = _directions(vectors)
    halver = _Halver(vectors, num_iterations, np.random.default_rng(seed))
    order, sizes = np.arange(len(vectors)), np.array([len(vectors)])
    degrees, classes = [], []
    while len(sizes):
        is_leaf = sizes == 1
        of_leaf = np.repeat(is_leaf, sizes)
        classes.append(order[of_leaf])
        order, sizes = order[~of_leaf], sizes[~is_leaf]
        degree = np.zeros(len(is_leaf), np.int64)
        is_small = sizes <= leaf_size
        order, sizes, owners = halver.split(order, sizes, is_small, arity)
        degree[~is_leaf] = np.bincount(owners, minlength=len(is_small))
        degrees.append(degree)
    return Tree(np.concatenate(degrees), np.concatenate(classes))


def _check(arity, leaf_size, num_iterations):
    check_positive_int("arity", arity)
    check_positive_int("leaf_size", leaf_size)
    check_positive_int("num_iterations", num_iterations)
    if arity < 2 or arity & (arity - 1):
        raise ValueError(f"`arity` must be a power of 2. Received: {arity}")


def _directions(vectors):
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or not len(vectors):
        raise ValueError(
            "`vectors` must have shape [num_classes, dim], one class at least. "
            f"Received: shape {vectors.shape}"
        )
    if not np.all(np.isfinite(vectors)):
        raise ValueError("`vectors` must be finite. Received: NaN or infinity")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


class _Halver:
    """Splits groups of classes, given one after the other in `order`."""

    def __init__(self, vectors, num_iterations, random):
        self.vectors = vectors
        self.num_iterations = num_iterations
        self.random = random

    def split(self, order, sizes, is_small, arity):
        """Each group in `arity` parts, small ones in single classes.

        Returns:
            `(order, sizes, owners)` of the parts; owners are group numbers.
        """
        owners = np.arange(len(sizes))
        for _ in range(arity.bit_length() - 1):
            splits = (sizes > 1) & ~is_small[owners]
            order, sizes = self._halve(order, sizes, splits)
            owners = np.repeat(owners, 2)[sizes > 0]
            sizes = sizes[sizes > 0]
        is_small = is_small[owners]
        copies = np.where(is_small, sizes, 1)
        sizes = np.repeat(np.where(is_small, 1, sizes), copies)
        return order, sizes, np.repeat(owners, copies)

    def _halve(self, order, sizes, splits):
        """Two sizes a group, the second 0 where it is not split."""
        order = order.copy()
        starts = np.cumsum(sizes) - sizes
        groups = np.flatnonzero(splits)
        if len(groups):
            step = max(_MOST_ROWS // sizes[groups].max(), 1)
            for i in range(0, len(groups), step):
                some = groups[i : i + step]
                self._sort(order, starts[some], sizes[some])
        left = np.where(splits, (sizes + 1) // 2, sizes)
        return order, np.stack([left, sizes - left], axis=1).ravel()

    def _sort(self, order, starts, sizes):
        """Puts the classes of the left half of each group first."""
        places = starts[:, None] + np.arange(sizes.max())
        inside = np.arange(sizes.max()) < sizes[:, None]
        classes = order[np.where(inside, places, starts[:, None])]
        x = self.vectors[classes] * inside[..., None]
        ranks = self._two_means(x, inside, sizes)
        classes = np.take_along_axis(classes, ranks, axis=1)
        # The padding of a group is ranked last.
        order[places[inside]] = classes[inside]

    def _two_means(self, x, inside, sizes):
        """Order of the rows of `x` `[groups, m, dim]`, the left half first."""
        in_left = np.arange(x.shape[1]) < (sizes[:, None] + 1) // 2
        one = self.random.integers(0, sizes)
        other = (one + self.random.integers(1, sizes)) % sizes
        group = np.arange(len(x))
        axis, total, gained = x[group, other] - x[group, one], x.sum(1), 0.0
        for _ in range(self.num_iterations):
            scores = np.matmul(x, axis[..., None])[..., 0]
            scores[~inside] = np.inf
            ranks = np.argsort(scores, axis=1, kind="stable")
            is_left = np.zeros_like(inside)
            np.put_along_axis(is_left, ranks, in_left, axis=1)
            left = np.matmul(is_left[:, None].astype(np.float32), x)[:, 0]
            right = total - left
            norms = [np.linalg.norm(v, axis=1) + 1e-30 for v in (left, right)]
            # The sum of the cosines with the centres.
            gain = sum(float(norm.sum()) for norm in norms)
            if gain - gained <= _LEAST_GAIN * gain:
                break
            gained = gain
            axis = right / norms[1][:, None] - left / norms[0][:, None]
        return ranks
