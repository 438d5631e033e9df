"""Training of linear one-vs-rest classifiers, flat or along a label tree."""

import numpy as np
import tensorflow as tf

from tfxclass.layers.sparse_dense import sparse_product
from tfxclass.trees import clustered
from tfxclass.types import Array
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.linear_ops import join
from tfxclass_text.linear_ops import linear_one_vs_rest
from tfxclass_text.linear_ops import sum_weights
from tfxclass_text.linear_ops import take_columns
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs

# CPU seconds for a nonzero, label and epoch: 4 flops at 15 GFLOP/s, what a
# core of a server does, rows of 166 features (measured).
_SECONDS = 2.5e-10
# A visit to a row costs as much as so many of its terms (measured).
_VISIT = 20
# Bytes at the peak for a nonzero, of about eight weights for each.
_ENTRY_BYTES = 230
#: Smaller weights are dropped.
MIN_WEIGHT = 0.05
# Labels of a group at most. Larger groups take longer to train: more rows that
# are easy. Smaller ones are less accurate (held-out titles of libraries).
_MAX_GROUP = 320
_MIN_GROUPS = 8
# Rows whose margin for a group is above are its hard negatives.
_HARD_MARGIN = -0.8
# With weights to begin with, changes of less than this part of the threshold
# are dropped: there are millions, of rows that were visited before the others.
_LEAST_CHANGE = 0.1
_BATCH = 4096
# Numbers that are made dense at a time.
_DENSE = 1 << 25
# The first level of a tree of so many weights is pruned, by this part of the
# threshold of the second.
_MAX_KEPT = 1 << 25
_FIRST_PART = 0.25


def seconds(num_entries: float, num_labels: float, num_epochs: int) -> float:
    """CPU seconds to train all labels on rows with so many nonzeros."""
    return _SECONDS * num_entries * num_labels * num_epochs


def num_groups(num_labels: int) -> int:
    """Number of groups of a label tree, 1 where labels are too few to part."""
    groups = _MIN_GROUPS
    while groups * _MAX_GROUP < num_labels:
        groups *= 2
    return groups if groups * 4 <= num_labels else 1


def cost(
    data: LabeledRows, num_groups: int, num_epochs: int
) -> tuple[float, float]:
    """CPU seconds and gigabytes of `train_linear`, within a factor of two."""
    rows, labels, _, num_labels = data
    entries, columns = len(rows.ids) + _VISIT * len(rows), float(num_labels)
    if num_groups > 1:
        # The rows of a group, and about as many hard negatives.
        share = 2 * len(labels.ids) / num_groups / max(len(rows), 1)
        columns = num_groups + min(share, 1.0) * num_labels
    memory = _ENTRY_BYTES * len(rows.ids) / 1e9
    return seconds(entries, columns, num_epochs), memory


def train_linear(
    data: LabeledRows,
    num_groups: int = 1,
    c: float = 0.5,
    num_epochs: int = 5,
    threshold: float = MIN_WEIGHT,
    seed: int = 0,
    among: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    start: SparseWeights | None = None,
) -> tuple[SparseWeights, np.ndarray | None]:
    """Trains a linear classifier for each label.

    With one group, each label is trained on all rows. With more groups, a power
    of 2, similar labels are in a group. A first level learns which rows have a
    label of the group. Each label is trained on the rows with a label of its
    group, and on rows that the first level mistakes for them (hard negatives).

    Weights below `threshold` are dropped. `among` are the rows that are learned
    from, ascending; by default all. `groups` are the group of each label, int32
    `[num_labels]`; by default they are chosen. `start` are weights to begin
    with; the penalty is on the distance from them.

    Returns:
        `(weights, groups)`: the weights, whose columns are the labels and then
        the groups; and the group of each label, None with one group.

    References:
        Prabhu et al., Parabel, WWW 2018. Yu et al., PECOS, JMLR 2022, 4.2, of
        the negatives that the matcher finds.
    """
    options = {"c": c, "num_epochs": num_epochs, "seed": seed}
    rows, _, num_features, num_labels = data
    every = np.arange(len(rows)) if among is None else among
    all_rows = from_pairs(1, np.zeros(len(every), np.int64), every)
    if num_groups == 1:
        groups = np.zeros(num_labels, np.int32)
        return _train(data, groups, all_rows, threshold, options, start), None
    if groups is None:
        groups = choose_groups(data, num_groups, every)
    of_groups = _with_groups(data, groups, num_groups)
    of_labels = of_first = None
    if start is not None:
        of_labels = take_columns(start, np.arange(num_labels))
        of_first = take_columns(start, num_labels + np.arange(num_groups))
    is_large = num_features * num_groups > _MAX_KEPT
    first = _train(
        of_groups, np.zeros(num_groups, np.int32), all_rows,
        _FIRST_PART * threshold * is_large, options, of_first,
    )  # fmt: skip
    own, found = of_groups.labels, hard_negatives(rows, first)
    # Pairs of group and row, each once.
    pairs = np.union1d(
        own.ids * len(rows) + own.row_ids(),
        found.ids * len(rows) + found.row_ids(),
    )
    is_learned = np.zeros(len(rows), bool)
    is_learned[every] = True
    pairs = pairs[is_learned[pairs % len(rows)]]
    group_rows = from_pairs(num_groups, pairs // len(rows), pairs % len(rows))
    del own, found, pairs
    second = _train(data, groups, group_rows, threshold, options, of_labels)
    return join(second, first), groups


def _train(data, groups, group_rows, threshold, options, start):
    """Weights of all labels; each learns from the rows of its group."""
    members = from_pairs(len(group_rows), groups, np.arange(len(groups)))
    order = members.ids.astype(np.int32)
    least, begin = threshold, None
    if start is not None:
        used = np.zeros(data.num_features, bool)
        used[data.rows.ids] = True
        least = _LEAST_CHANGE * threshold
        begin = take_columns(start, order, used)
    found = linear_one_vs_rest(
        data.rows, data.labels[:2], members[:2], group_rows[:2],
        data.num_features, data.num_labels, threshold=least, start=begin,
        **options,
    )  # fmt: skip
    splits, columns, values, biases = map(array_of, found)
    # By label again.
    of_labels = np.empty_like(biases)
    of_labels[order] = biases
    found = SparseWeights(splits, order[columns], values, of_labels)
    if start is None:
        return found
    found = sum_weights(start, found)
    rows = found.rows.where(np.abs(found.values) >= threshold)
    return SparseWeights(*rows, found.biases)


def array_of(tensor: tf.Tensor) -> np.ndarray:
    """The numbers of a tensor on the CPU, not copied as `numpy()` does."""
    return np.asarray(memoryview(tensor))


def label_vectors(data: LabeledRows, among: np.ndarray) -> np.ndarray:
    """A random projection of the sum of each label's rows, `[labels, 64]`."""
    rows, labels, num_features, num_labels = data
    counts = np.bincount(rows.ids, minlength=num_features)
    # A feature of one row makes no two labels alike.
    place = np.cumsum(counts > 1) - 1
    place[counts <= 1] = -1
    random = np.random.default_rng(0)
    size = max(int(np.count_nonzero(counts > 1)), 1)
    axes = random.standard_normal((size, 64), np.float32)
    axes = tf.constant(axes)  # once, not for each batch
    vectors = np.zeros((num_labels, 64), np.float32)
    for begin in range(0, len(among), _BATCH):
        part = among[begin : begin + _BATCH]
        some = rows.take(part).renumbered(place)
        own = labels.take(part)
        projected = products(some, axes)[own.row_ids()]
        order = np.argsort(own.ids, kind="stable")
        ids, firsts = np.unique(own.ids[order], return_index=True)
        if len(ids):
            vectors[ids] += np.add.reduceat(projected[order], firsts)
    return vectors


def choose_groups(
    data: LabeledRows, num_groups: int, among: np.ndarray
) -> np.ndarray:
    """The group of each label, int32 `[num_labels]`: like labels together."""
    vectors = label_vectors(data, among)
    # A label without rows has no direction.
    vectors[~vectors.any(axis=1), 0] = 1.0
    leaf_size = -(-data.num_labels // num_groups)
    tree = clustered(vectors, num_groups, leaf_size, seed=0)
    # Node 0 is the root, and its children follow.
    return np.asarray(tree.parents[tree.leaves] - 1, np.int32)


def hard_negatives(rows: SparseRows, weights: SparseWeights) -> SparseRows:
    """The groups that the first level takes each row for."""
    found = [(np.zeros(0, np.int64),) * 2]
    for begin, scores in _scores(rows, weights):
        of_rows, groups = np.nonzero(scores > _HARD_MARGIN)
        found.append((begin + of_rows, groups))
    return from_pairs(len(rows), *map(np.concatenate, zip(*found)))


def margins(rows: SparseRows, weights: SparseWeights) -> np.ndarray:
    """float32 `[rows, columns]`: scores by `SparseWeights`, biases too."""
    return np.concatenate([scores for _, scores in _scores(rows, weights)])


def _scores(rows, weights):
    """Yields `(first row, float32 [rows, columns])`, batch by batch."""
    width = len(weights.biases)
    # The weights of a batch's features are made dense.
    longest = max(len(rows.ids) // max(len(rows), 1), 1)
    size = min(max(_DENSE // (longest * width), 1), _BATCH)
    for begin in range(0, len(rows), size):
        some = rows.take(np.arange(begin, min(begin + size, len(rows))))
        features, places = np.unique(some.ids, return_inverse=True)
        own = weights.rows.take(features)
        dense = np.zeros((max(len(features), 1), width), np.float32)
        dense[own.row_ids(), own.ids] = own.values
        yield begin, products(some.with_ids(places), dense) + weights.biases


def products(rows: SparseRows, matrix: Array) -> np.ndarray:
    """Sparse rows times a dense matrix, float32."""
    at = np.stack([rows.row_ids(), rows.ids], axis=1)
    product = sparse_product(
        at, rows.values, np.int64(len(rows)), tf.convert_to_tensor(matrix)
    )
    return array_of(product)


def _with_groups(data, groups, num_groups):
    """The same rows, labeled with the groups of their labels, each once."""
    labels = data.labels
    pairs = np.unique(labels.row_ids() * num_groups + groups[labels.ids])
    rows = from_pairs(len(labels), pairs // num_groups, pairs % num_groups)
    return LabeledRows(data.rows, rows, data.num_features, num_groups)
