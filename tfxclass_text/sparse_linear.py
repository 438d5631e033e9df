"""A linear classifier with sparse weights on sparse features, for serving."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.sparse_dense import sparse_product
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text import terms
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.text_features import add_weight

tf.no_gradient("Tfxclass>SparseScores")

# An entry of a list costs as much as 40 columns of a dense row (measured), so
# longer lists are dense rows, the longest first, while these take little.
_DENSE_SHARE = 1 / 40
_MAX_DENSE_BYTES = 1 << 28
# Of the margin of a group, in the logit of its probability: for layers that
# were saved without one.
_GROUP_SLOPE = 3.0


@keras.saving.register_keras_serializable("tfxclass")
class SparseLinear(keras.layers.Layer):
    """One-vs-rest scores of sparse features by sparse weights.

    Weights are kept by feature, so that a row reads only the weights of its own
    features. Features with many weights are dense rows, `num_dense` of them,
    and the others lists with `num_entries` weights. It is trained by
    `train_linear`, not by gradients.

    The activation is None for margins, `"sigmoid"` for each label's own
    probability, and `"softmax"` where a row has one label. With a label tree,
    `num_groups` columns tell the group of the labels. A label's probability is
    multiplied by its group's, whose logit is `group_slope` times the margin.
    `initial` has weights by name, and is emptied; other weights are zeros.

    The layer is called with ids of features, int64 `[batch, n]`, and values,
    float32; where they are 0 there is no feature. The result is float32
    `[batch, num_labels]`. With `compiled`, an op of ours may compute it:
    quicker, and equal but for rounding. Exports need stock ops.
    """

    def __init__(
        self,
        num_features: int,
        num_labels: int,
        num_dense: int,
        num_entries: int,
        activation: str | None = None,
        num_groups: int = 0,
        group_slope: float = _GROUP_SLOPE,
        initial: dict[str, np.ndarray] | None = None,
        **kwargs: Any,
    ) -> None:
        # A policy of bfloat16 would round the values; nothing here is in it.
        super().__init__(autocast=False, **kwargs)
        # Weights that are made with their values: zeros that are replaced
        # would take the memory twice.
        initial = {} if initial is None else initial
        self.num_features, self.num_labels = num_features, num_labels
        self.num_dense, self.num_entries = num_dense, num_entries
        self.activation = activation
        self.num_groups, self.group_slope = num_groups, group_slope
        self.supports_jit = False
        width = self.width = num_labels + num_groups

        def add(name, shape, dtype="float32", initializer="zeros"):
            if name in initial:
                # Given away, so that it is freed as soon as it is copied.
                given = tf.convert_to_tensor(initial.pop(name), dtype)
                return add_weight(
                    self, name, shape, dtype, lambda *_, **__: given
                )
            return add_weight(self, name, shape, dtype, initializer)

        self.places = add("places", (num_features,), "int32")
        self.dense = add("dense", (max(num_dense, 1), width))
        self.splits = add("splits", (num_features + 1,), "int64")
        self.columns = add("columns", (num_entries,), "int32")
        self.entries = add("entries", (num_entries,))
        self.biases = add("biases", (width,))
        self.groups: Any = None
        if num_groups:
            self.groups = add("groups", (num_labels,), "int32")
        # Probability is sigmoid(slope * margin + intercept), or the softmax.
        self.slope = add("slope", (), initializer="ones")
        self.intercept = add("intercept", ())
        self.built = True

    def call(
        self, ids: tf.Tensor, values: tf.Tensor, compiled: bool = False
    ) -> tf.Tensor:
        ids = tf.cast(ids, tf.int64)
        values = tf.cast(values, tf.float32)
        # It has no GPU kernel: the weights would be copied at each call.
        on_gpu = placement.on_gpu(placement.device_of(self.entries))
        if not compiled or on_gpu or not library.has_op("sparse_scores"):
            return self.activated(self.margins(ids, values))
        weights = (
            self.places, self.dense, self.splits, self.columns, self.entries,
            self.biases,
        )  # fmt: skip
        groups = np.zeros(0, np.int32)
        if self.groups is not None:
            groups = self.groups.value
        # Threads share blocks of labels; the result is the same for any number.
        return library.ops.tfxclass_sparse_scores(
            ids, values, *(x.value for x in weights), groups, self.slope.value,
            self.intercept.value, num_labels=self.num_labels,
            activation=self.activation or "none", group_slope=self.group_slope,
        )  # fmt: skip

    def activated(self, margins: tf.Tensor) -> tf.Tensor:
        """The output, of `margins`."""
        if self.activation is None:
            return margins[:, : self.num_labels]
        if self.activation == "softmax":
            return tf.nn.softmax(self.logits(margins))
        if self.groups is None:
            return tf.sigmoid(self.logits(margins))
        scaled, of_groups = self._scaled(margins)
        of_groups = tf.gather(tf.sigmoid(of_groups), self.groups.value, axis=1)
        return tf.sigmoid(scaled) * of_groups

    def logits(self, margins: tf.Tensor) -> tf.Tensor:
        """What the softmax or the sigmoid is applied to, `[batch, labels]`."""
        scaled, of_groups = self._scaled(margins)
        if self.groups is None:
            return scaled
        log_p = tf.math.log_sigmoid(of_groups)
        log_p = tf.gather(log_p, self.groups.value, axis=1)
        if self.activation == "softmax":
            return scaled + log_p
        # Of the product of two probabilities.
        log_p += tf.math.log_sigmoid(scaled)
        return log_p - tf.math.log(-tf.math.expm1(log_p))

    def _scaled(self, margins):
        """The scaled margins of the labels, and of their groups."""
        labels, of_groups = tf.split(
            margins, [self.num_labels, self.num_groups], axis=1
        )
        scaled = self.slope * labels + self.intercept
        return scaled, self.group_slope * of_groups

    def weights_at(self, ids: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
        """Each feature's weight in the column of its row, `[batch, n]`."""
        columns = tf.broadcast_to(columns[:, tf.newaxis], tf.shape(ids))
        places = tf.cast(tf.gather(self.places.value, ids), tf.int64)
        at = tf.stack([tf.maximum(places, 0), columns], axis=-1)
        of_dense = tf.gather_nd(tf.convert_to_tensor(self.dense), at)
        splits = tf.convert_to_tensor(self.splits)
        flat = tf.reshape(ids, [-1])
        lists = tf.ragged.range(
            tf.gather(splits, flat), tf.gather(splits, flat + 1)
        )
        owner, entries = lists.value_rowids(), lists.flat_values
        wanted = tf.gather(tf.reshape(columns, [-1]), owner)
        found = tf.cast(tf.gather(self.columns.value, entries), tf.int64)
        values = tf.gather(self.entries.value, entries)
        of_lists = tf.math.unsorted_segment_sum(
            tf.where(found == wanted, values, 0.0), owner, tf.size(flat)
        )
        of_lists = tf.reshape(of_lists, tf.shape(ids))
        return tf.where(places >= 0, of_dense, of_lists)

    def margins(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """float32 `[batch, width]`, raw scores of all columns."""
        where = tf.where(values != 0)
        size = tf.shape(ids, tf.int64)[0]
        rows, values = where[:, 0], tf.gather_nd(values, where)
        ids = tf.gather_nd(ids, where)
        places = tf.gather(self.places.value, ids)
        is_dense = places >= 0
        at = tf.stack([rows, tf.cast(places, tf.int64)], axis=1)
        at, of_at = terms.of_mask(is_dense, at, values)
        dense = tf.convert_to_tensor(self.dense)
        # TensorFlow's sparse product divides by the number of rows.
        of_dense = sparse_product(at, of_at, tf.maximum(size, 1), dense)
        rows, ids, values = terms.of_mask(~is_dense, rows, ids, values)
        of_lists = self._of_lists(rows, ids, values, size)
        return of_dense[:size] + of_lists + self.biases.value

    def _of_lists(self, rows, ids, values, size):
        splits = tf.convert_to_tensor(self.splits)
        begins = tf.gather(splits, ids)
        lengths = tf.gather(splits, ids + 1) - begins
        # One range of numbers tells both the list, in the high bits, and the
        # place of its entry. Where the places end, the lists begin.
        bits = tf.constant(self.num_entries.bit_length(), tf.int64)
        begins += tf.bitwise.left_shift(tf.range(tf.size(ids, tf.int64)), bits)
        lists = tf.ragged.range(begins, begins + lengths)
        owner = tf.bitwise.right_shift(lists.flat_values, bits)
        places = lists.flat_values - tf.bitwise.left_shift(owner, bits)
        first = tf.searchsorted(rows, tf.range(size + 1))
        # Four times as fast as `tf.math.unsorted_segment_sum` (measured).
        summed = tf.raw_ops.RaggedBincount(
            splits=tf.gather(lists.row_splits, first),
            values=tf.gather(self.columns.value, places),
            size=self.width,
            weights=tf.gather(values, owner)
            * tf.gather(self.entries.value, places),
        )
        return tf.ensure_shape(summed, [None, self.width])

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape
    ) -> Shape:
        return (ids_shape[0], self.num_labels)

    def get_config(self) -> Config:
        names = (
            "num_features", "num_labels", "num_dense", "num_entries",
            "activation", "num_groups", "group_slope",
        )  # fmt: skip
        return super().get_config() | {x: getattr(self, x) for x in names}


def empty(data: LabeledRows) -> SparseLinear:
    """A `SparseLinear` that says the same of every text and label."""
    splits = np.zeros(data.num_features + 1, np.int64)
    none = np.zeros(0, np.int32), np.zeros(0, np.float32)
    weights = SparseWeights(splits, *none, np.zeros(data.num_labels))
    return from_weights(weights, data.num_labels, "softmax", name="tag-scores")


def from_weights(
    weights: SparseWeights,
    num_labels: int,
    activation: str | None = None,
    groups: np.ndarray | None = None,
    name: str | None = None,
    group_slope: float = _GROUP_SLOPE,
) -> SparseLinear:
    """A `SparseLinear` of weights, whose columns are labels, then groups."""
    splits, columns, entries, biases = weights
    del weights  # Its arrays are freed one by one: they may be gigabytes.
    width, lengths = len(biases), np.diff(splits)
    is_dense = np.zeros(len(lengths), bool)
    most = _MAX_DENSE_BYTES // (4 * width)
    is_dense[np.argsort(-lengths, kind="stable")[:most]] = True
    is_dense &= lengths > _DENSE_SHARE * width
    places = np.full(len(lengths), -1, np.int32)
    places[is_dense] = np.arange(is_dense.sum())
    dense = np.zeros((max(is_dense.sum(), 1), width), np.float32)
    for row, feature in zip(dense, np.flatnonzero(is_dense)):
        own = slice(*splits[[feature, feature + 1]])
        row[columns[own]] = entries[own]
    if is_dense.any():
        kept = np.repeat(~is_dense, lengths)
        splits = np.append(0, np.cumsum(lengths * ~is_dense))
        columns = columns[kept]
        entries = entries[kept]
    initial = {
        "places": places, "dense": dense, "splits": splits, "columns": columns,
        "entries": entries, "biases": biases,
    }  # fmt: skip
    if groups is not None:
        initial["groups"] = groups
    num_entries = len(entries)
    # They are freed as soon as the layer has copied them.
    del dense, columns, entries
    return SparseLinear(
        len(lengths), num_labels, int(is_dense.sum()), num_entries, activation,
        width - num_labels, group_slope, initial, name=name,
    )  # fmt: skip


def weights_of(layer: SparseLinear) -> SparseWeights:
    """The weights that a layer holds, as `from_weights` took them."""
    dense = layer.dense.numpy()[: layer.num_dense]
    in_lists = np.diff(layer.splits.numpy())
    dense_features = np.flatnonzero(layer.places.numpy() >= 0)
    lengths = in_lists.copy()
    lengths[dense_features] = np.count_nonzero(dense, axis=1)
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = np.empty(splits[-1], np.int32)
    values = np.empty(splits[-1], np.float32)
    is_listed = np.ones(len(columns), bool)
    for row, feature in zip(dense, dense_features):
        own = slice(splits[feature], splits[feature + 1])
        columns[own] = np.flatnonzero(row)
        values[own] = row[columns[own]]
        is_listed[own] = False
    columns[is_listed] = layer.columns.numpy()
    values[is_listed] = layer.entries.numpy()
    return SparseWeights(splits, columns, values, layer.biases.numpy())
