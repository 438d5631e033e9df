"""Training of linear one-vs-rest classifiers, flat or along a label tree."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.layers.sparse_dense import sparse_product
from tfxclass.trees import clustered
from tfxclass.types import Array
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.linear_ops import linear_one_vs_rest
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import ragged

# CPU seconds for a nonzero, label and epoch: 4 flops at 15 GFLOP/s, what a
# core of a server does, rows of 166 features (measured).
_SECONDS = 2.5e-10
# Labels that are trained side by side; seconds of a visit to a row, and for
# each of its terms, in the cache and from memory; size of a cache (measured).
_TILE, _VISIT, _CACHED_TERM, _TERM, _CACHE = 64, 3e-7, 1.2e-8, 3e-8, 1 << 26
# Seconds for a nonzero and group, of finding hard negatives.
_PRODUCT = 5e-9
# Weights that are kept for each nonzero, and bytes of each at the peak.
_WEIGHTS, _WEIGHT_BYTES = 8, 26
#: GB of a process that has imported TensorFlow.
PROCESS = 0.7
# Labels of a group at most. Larger groups take longer to train: more rows that
# are easy. Smaller ones are less accurate (held-out titles of libraries).
_MAX_GROUP = 320
_MIN_GROUPS = 8
# Rows whose margin for a group is above are its hard negatives.
_HARD_MARGIN = -0.5
_BATCH = 4096
# Features whose weights are moved at a time.
_FEATURES = 1 << 14
# Columns that are made dense at a time, and numbers.
_COLUMNS = 256
_DENSE = 1 << 25
# The first level of a tree of so many weights is pruned, by this part of the
# threshold of the second.
_MAX_KEPT = 1 << 25
_FIRST_PART = 0.25


def seconds(rows: SparseRows, num_labels: int, num_epochs: int) -> float:
    """CPU seconds that training all labels on all rows takes, roughly."""
    return seconds_of(len(rows.ids), num_labels, num_epochs)


def seconds_of(num_entries: int, num_labels: int, num_epochs: int) -> float:
    """`seconds` of rows with so many nonzeros."""
    return _SECONDS * num_entries * num_labels * num_epochs


def choose_groups(
    rows: SparseRows, num_labels: int, num_epochs: int, max_seconds: float
) -> int:
    """Number of groups of a label tree, 1 where none is needed."""
    if seconds(rows, num_labels, num_epochs) <= max_seconds:
        return 1
    groups = _MIN_GROUPS
    while groups * _MAX_GROUP < num_labels:
        groups *= 2
    return groups if groups * 4 <= num_labels else 1


def cost(
    data: LabeledRows, num_groups: int, num_epochs: int
) -> tuple[float, float]:
    """CPU seconds and gigabytes that training takes, within a factor of two.

    Args:
        data: `LabeledRows`.
        num_groups: int, as in `train_linear`.
        num_epochs: int.
    """
    rows, labels, num_features, num_labels = data
    visited, features, spent = float(len(rows)), float(num_features), 0.0
    tiles = -(-num_labels // (_TILE * num_groups)) * num_groups
    if num_groups > 1:
        spent = _visits(rows, -(-num_groups // _TILE) * len(rows), num_features)
        spent = num_epochs * spent + _PRODUCT * len(rows.ids) * num_groups
        # The rows of a group, and about as many hard negatives.
        visited = min(2 * len(labels.ids) / num_groups, len(rows))
        features = min(4 * num_features / num_groups, num_features)
    spent += num_epochs * _visits(rows, visited * tiles, features)
    memory = 8 * _TILE * (features + visited)
    memory += _WEIGHT_BYTES * _WEIGHTS * len(rows.ids) + 20 * len(rows.ids)
    return spent, memory / 1e9 + PROCESS


def _visits(rows, count, num_features):
    """Seconds of so many visits of a row, by a tile of labels."""
    terms = len(rows.ids) / max(len(rows), 1)
    from_memory = min(4 * _TILE * num_features / _CACHE, 1.0)
    return count * (_VISIT + terms * (_CACHED_TERM + _TERM * from_memory))


def train_linear(
    rows: SparseRows,
    labels: SparseRows,
    num_features: int,
    num_labels: int,
    num_groups: int = 1,
    loss: str = "squared_hinge",
    c: float = 0.5,
    num_epochs: int = 5,
    threshold: float = 0.05,
    seed: int = 0,
    among: np.ndarray | None = None,
) -> tuple[SparseWeights, np.ndarray | None]:
    """Trains a linear classifier for each label.

    With one group, each label is trained on all rows. With more groups, similar
    labels are in a group. A first level learns which rows have a label of the
    group. Each label is trained on the rows with a label of its group, and on
    rows that the first level mistakes for them (hard negatives).

    Args:
        rows: `SparseRows`.
        labels: `SparseRows`, ids of the labels of each row; the values do not
            count.
        num_features: int.
        num_labels: int.
        num_groups: int, a power of 2.
        loss: `"squared_hinge"` or `"logistic"`.
        c: float > 0, weight of the losses.
        num_epochs: int, passes over the rows.
        threshold: float, weights of less than this are dropped.
        seed: int.
        among: int array, the rows that are learned from, with one group; by
            default all.

    Returns:
        `(weights, groups)`: `SparseWeights` of arrays, whose columns are the
        labels and then the groups; and int32 `[num_labels]`, the group of
        each label, None without.

    References:
        Prabhu et al., Parabel, WWW 2018. Yu et al., PECOS, JMLR 2022, 4.2, of
        the negatives that the matcher finds.
    """
    options = {
        "loss": loss, "c": c, "num_epochs": num_epochs, "seed": seed,
    }  # fmt: skip
    # The labels of a pandas.Series are no places.
    rows, labels = (SparseRows(*map(np.asarray, x)) for x in (rows, labels))
    every = np.arange(len(rows)) if among is None else np.asarray(among)
    if num_groups == 1:
        members = [np.arange(num_labels)]
        flat = train_groups(
            rows, labels, members, [every], num_features, threshold, options
        )
        return flat, None
    data = LabeledRows(rows, labels, num_features, num_labels)
    members = part_labels(data, num_groups)
    groups = np.zeros(num_labels, np.int32)
    for group, ids in enumerate(members):
        groups[ids] = group
    of_groups = groups_of_rows(labels, groups)
    is_large = num_features * len(members) > _MAX_KEPT
    first = train_groups(
        rows, of_groups, [np.arange(len(members))], [every], num_features,
        _FIRST_PART * threshold * is_large, options,
    )  # fmt: skip
    negatives = hard_negatives(rows, first)
    group_rows = [
        np.union1d(*pair)
        for pair in zip(members_of(of_groups, len(members)), negatives)
    ]
    second = train_groups(
        rows, labels, members, group_rows, num_features, threshold, options
    )
    del group_rows, negatives
    order = np.concatenate(members).astype(np.int32)
    return join(reorder(second, order), first), groups


def train_groups(
    rows: SparseRows,
    labels: SparseRows,
    members: list[np.ndarray],
    group_rows: list[np.ndarray],
    num_features: int,
    threshold: float,
    options: dict[str, Any],
    start: SparseWeights | None = None,
) -> SparseWeights:
    """`linear_one_vs_rest` of lists, as arrays.

    Args:
        rows: `SparseRows`.
        labels: `SparseRows`.
        members: int arrays, the labels of each group.
        group_rows: int arrays, the rows of each group.
        num_features: int.
        threshold: float.
        options: other options of the op.
        start: `SparseWeights` to begin with.
    """
    weights = linear_one_vs_rest(
        rows,
        labels[:2],
        ragged(members),
        ragged(group_rows),
        num_features,
        1 + int(max(x.max(initial=0) for x in [labels.ids, *members])),
        threshold=threshold,
        start=start,
        **options,
    )
    return SparseWeights(*map(array_of, weights))


def array_of(tensor: tf.Tensor) -> np.ndarray:
    """The numbers of a tensor on the CPU, not copied as `numpy()` does."""
    return np.asarray(memoryview(tensor))


def label_vectors(data: LabeledRows, seed: int = 0) -> np.ndarray:
    """A random projection of the sum of each label's rows.

    Returns:
        float32 `[num_labels, 64]`.
    """
    rows, labels, num_features, num_labels = data
    counts = np.bincount(rows.ids, minlength=num_features)
    # A feature of one row makes no two labels alike.
    place = np.cumsum(counts > 1) - 1
    place[counts <= 1] = -1
    random = np.random.default_rng(seed)
    size = max(int(np.count_nonzero(counts > 1)), 1)
    axes = random.standard_normal((size, 64), np.float32)
    axes = tf.constant(axes)  # once, not for each batch
    vectors = np.zeros((num_labels, 64), np.float32)
    for begin in range(0, len(rows), _BATCH):
        part = np.arange(begin, min(begin + _BATCH, len(rows)))
        some = rows.take(part).renumbered(place)
        own = labels.take(part)
        projected = products(some, axes)[own.row_ids()]
        order = np.argsort(own.ids, kind="stable")
        ids, firsts = np.unique(own.ids[order], return_index=True)
        if len(ids):
            vectors[ids] += np.add.reduceat(projected[order], firsts)
    return vectors


def part_labels(
    data: LabeledRows, num_groups: int, seed: int = 0
) -> list[np.ndarray]:
    """Groups of like labels, int arrays: by the sum of a label's rows.

    `label_vectors` are halved by spherical 2-means
    (`tfxclass.trees.clustered`).
    """
    vectors, num_labels = label_vectors(data, seed), data.num_labels
    # A label without rows has no direction.
    vectors[~vectors.any(axis=1), 0] = 1.0
    leaf_size = -(-num_labels // num_groups)
    tree = clustered(vectors, num_groups, leaf_size, seed=seed)
    # Node 0 is the root, and its children follow.
    groups = tree.parents[tree.leaves] - 1
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=num_groups)
    return np.split(order, np.cumsum(sizes)[:-1])


def hard_negatives(
    rows: SparseRows, weights: SparseWeights
) -> list[np.ndarray]:
    """Rows that the first level takes for each group's, int arrays."""
    by_feature = SparseRows(weights.splits, weights.columns, weights.values)
    num_groups = len(weights.biases)
    # The weights of a batch's features are made dense.
    longest = max(len(rows.ids) // max(len(rows), 1), 1)
    size = min(max(_DENSE // (longest * num_groups), 1), _BATCH)
    found_rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin in range(0, len(rows), size):
        some = rows.take(np.arange(begin, min(begin + size, len(rows))))
        features, places = np.unique(some.ids, return_inverse=True)
        own = by_feature.take(features)
        dense = np.zeros((max(len(features), 1), num_groups), np.float32)
        dense[own.row_ids(), own.ids] = own.values
        scores = products(some.with_ids(places), dense) + weights.biases
        of_rows, groups = np.nonzero(scores > _HARD_MARGIN)
        found_rows.append(begin + of_rows)
        found.append(groups)
    groups = np.concatenate(found)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=num_groups))
    return np.split(np.concatenate(found_rows)[order], ends[:-1])


def products(rows: SparseRows, matrix: Array) -> np.ndarray:
    """Sparse rows times a dense matrix, float32."""
    at = np.stack([rows.row_ids(), rows.ids], axis=1)
    product = sparse_product(
        at, rows.values, np.int64(len(rows)), tf.convert_to_tensor(matrix)
    )
    return array_of(product)


def margins(rows: SparseRows, weights: SparseWeights) -> np.ndarray:
    """float32 `[rows, columns]`: scores by `SparseWeights`, biases too."""
    result = np.empty((len(rows), len(weights.biases)), np.float32)
    for begin, dense in dense_blocks(weights):
        result[:, begin : begin + dense.shape[1]] = products(rows, dense)
    return result + weights.biases


def dense_blocks(
    weights: SparseWeights, size: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields `(first column, float32 [num_features, columns])`.

    All columns at once would be gigabytes.

    Args:
        weights: `SparseWeights`.
        size: int, most columns of a block; by default as many as 128 MB hold.
    """
    lengths = np.diff(weights.splits)
    if size is None:
        size = min(max(_DENSE // len(lengths), 1), _COLUMNS)
    features = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    for begin in range(0, len(weights.biases), size):
        end = min(begin + size, len(weights.biases))
        some = (weights.columns >= begin) & (weights.columns < end)
        at = features[some], weights.columns[some] - begin
        dense = np.zeros((len(lengths), end - begin), np.float32)
        dense[at] = weights.values[some]
        yield begin, dense


def groups_of_rows(labels: SparseRows, groups: np.ndarray) -> SparseRows:
    """The groups that each row has labels in, once."""
    size = int(groups.max()) + 1
    pairs = np.unique(labels.row_ids() * size + groups[labels.ids])
    rows = pairs // size
    splits = np.searchsorted(rows, np.arange(len(labels) + 1))
    return SparseRows(
        splits.astype(np.int64), pairs % size, np.ones(len(pairs), np.float32)
    )


def members_of(labels: SparseRows, size: int) -> list[np.ndarray]:
    """The rows that have each label."""
    rows = labels.row_ids()
    order = np.argsort(labels.ids, kind="stable")
    ends = np.cumsum(np.bincount(labels.ids, minlength=size))
    return np.split(rows[order], ends[:-1])


def reorder(weights: SparseWeights, order: np.ndarray) -> SparseWeights:
    """Weights whose column i is of label `order[i]`, by label."""
    biases = np.zeros(len(order), np.float32)
    biases[order] = weights.biases
    return weights._replace(columns=order[weights.columns], biases=biases)


def join(one: SparseWeights, other: SparseWeights) -> SparseWeights:
    """The columns of `one`, then the columns of `other`."""
    splits = one.splits + other.splits
    columns = np.empty(splits[-1], np.int32)
    values = np.empty(splits[-1], np.float32)
    for first in range(0, len(splits) - 1, _FEATURES):
        last = min(first + _FEATURES, len(splits) - 1)
        # A feature's entries of `one`, then the ones of `other`.
        before = other.splits[first:last], one.splits[first + 1 : last + 1]
        for part, offset, added in zip(
            (one, other), before, (0, len(one.biases)), strict=True
        ):
            ends = part.splits[first : last + 1]
            at = np.arange(ends[0], ends[-1])
            to = at + np.repeat(offset, np.diff(ends))
            columns[to] = part.columns[at] + added
            values[to] = part.values[at]
    biases = np.concatenate([one.biases, other.biases])
    return SparseWeights(splits, columns, values, biases)
