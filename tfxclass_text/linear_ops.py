"""Linear one-vs-rest classifiers on sparse rows."""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.types import Array
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs
from tfxclass_text.sparse_rows import side_by_side
from tfxclass_text.sparse_rows import stack

tf.no_gradient("Tfxclass>LinearOneVsRest")


class SparseWeights(NamedTuple):
    """A sparse matrix `[num_features, num_columns]` and a bias a column."""

    #: int64: feature f has the entries `splits[f]` to `splits[f + 1]`.
    splits: Any
    #: int32 and float32 `[entries]`; columns ascend within a feature.
    columns: Any
    values: Any
    #: float32 `[num_columns]`.
    biases: Any

    @property
    def rows(self) -> SparseRows:
        """The weights of each feature, as a row of columns."""
        return SparseRows(self.splits, self.columns, self.values)


_NO_WEIGHTS = tuple(
    np.zeros(0, dtype) for dtype in ("int64", "int32", "float32", "float32")
)


def linear_one_vs_rest(
    rows: tuple[Array, Array, Array],
    labels: tuple[Array, Array],
    group_labels: tuple[Array, Array],
    group_rows: tuple[Array, Array],
    num_features: int,
    num_labels: int,
    c: float = 1.0,
    bias: float = 1.0,
    num_epochs: int = 8,
    tolerance: float = 0.0,
    threshold: float = 0.0,
    seed: int = 0,
    start: SparseWeights | None = None,
) -> SparseWeights:
    """Trains a linear classifier for each label, on the rows of its group.

    Minimises `|w|^2 / 2 + c sum_i max(0, 1 - y_i (w . x_i + b))^2` for each
    label by dual coordinate descent in random order. The bias is penalised as
    the weights are. Costs 4 flops for each nonzero, label and epoch; threads
    take 64 labels at a time, and the result does not depend on their number.

    `rows` are `(splits, features, values)`. `labels` are the `(splits, ids)` of
    the rows' labels, and so are the labels and rows of each group; a label is
    in one group at most. All rows have a feature of the value `bias`. Passes
    end when the mean step of a dual variable is below `tolerance`, and weights
    below `threshold` are dropped.

    With `start`, weights of `group_labels`, the penalty is on the distance from
    these. The result is the changes then, to which `threshold` applies. Its
    columns are `group_labels`, in order.

    References:
        Hsieh et al., A Dual Coordinate Descent Method for Large-scale Linear
        SVM, ICML 2008.
    """
    found = library.ops.tfxclass_linear_one_vs_rest(
        rows[0], tf.cast(rows[1], tf.int32), rows[2],
        *labels, *group_labels, *group_rows,
        *(_NO_WEIGHTS if start is None else start),
        num_features=num_features, num_labels=num_labels, c=c, bias=bias,
        num_epochs=num_epochs, tolerance=tolerance, threshold=threshold,
        seed=seed,
    )  # fmt: skip
    return SparseWeights(*found)


def sum_weights(one: SparseWeights, other: SparseWeights) -> SparseWeights:
    """`one + other`, of the same columns; quick if `other` has few features."""
    width, order = len(one.biases), np.arange(len(one.splits) - 1)
    changed = np.flatnonzero(np.diff(other.splits))
    parts = [x.rows.take(changed) for x in (one, other)]
    keys, places = np.unique(
        np.concatenate([x.row_ids() * width + x.ids for x in parts]),
        return_inverse=True,
    )
    sums = np.bincount(places, np.concatenate([x.values for x in parts]))
    rows = from_pairs(len(changed), keys // width, keys % width, sums)
    # The sums stand behind the rows that they replace.
    order[changed] = len(order) + np.arange(len(changed))
    rows = stack(one.rows, rows.with_ids(rows.ids.astype(np.int32)))
    return SparseWeights(*rows.take(order), one.biases + other.biases)


def take_columns(
    weights: SparseWeights, order: np.ndarray, used: np.ndarray | None = None
) -> SparseWeights:
    """The columns `order`, distinct ints, numbered by their order.

    `used` are the features whose weights are kept, bool; by default all.
    """
    place = np.full(len(weights.biases), -1, np.int32)
    place[order] = np.arange(len(order))
    rows = weights.rows
    if used is not None:
        rows = rows.where(np.repeat(used, np.diff(rows.splits)))
    splits, columns, values = rows.renumbered(place)
    if np.any(np.diff(order) < 0):
        features = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
        by_place = np.argsort(features * len(order) + columns, kind="stable")
        columns, values = columns[by_place], values[by_place]
    return SparseWeights(splits, columns, values, weights.biases[order])


def join(one: SparseWeights, other: SparseWeights) -> SparseWeights:
    """The columns of `one`, then the columns of `other`."""
    sizes = [len(one.biases), len(other.biases)]
    rows = side_by_side([one.rows, other.rows], sizes)
    return SparseWeights(*rows, np.concatenate([one.biases, other.biases]))
