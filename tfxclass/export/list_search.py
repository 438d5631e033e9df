"""The search in the lists of an export, with stock TensorFlow ops alone."""

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.core.forward import unflatten
from tfxclass.core.softmax import REMOVED_LOGIT
from tfxclass.export.searches import ModelSearch
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import nan_last
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Scalar


class ListSearch(ModelSearch):
    """The lists of a head, and the search in them.

    Class vectors `rows` are kept in their type, or in int8. `lists` are int
    `[num_classes]`, the list of each class. A `portable` search has only ops
    that LiteRT and OpenVINO have, too.
    """

    def __init__(
        self,
        head: OutputHead,
        rows: tf.Tensor,
        bias: tf.Tensor | None,
        lists: np.ndarray,
        quantize: bool = False,
        portable: bool = False,
    ) -> None:
        super().__init__(head)
        self._ranges = _plain_ranges if portable else _ranges
        order = np.argsort(lists, kind="stable")
        order = order[~np.isin(order, head.removed)]
        self.live = np.sort(order)
        sizes = np.bincount(lists[order])
        sizes = sizes[sizes > 0]
        self.num_lists = self.num_probes = len(sizes)
        self.order = _constant(order, tf.int64, "order")
        places = np.full(head.num_classes, -1)
        places[order] = np.arange(len(order))
        self.places = _constant(places, tf.int64, "places")
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self.starts = _constant(starts, tf.int64, "starts")
        self.rows = _constant(tf.gather(rows, order), rows.dtype, "rows")
        self.bias = None
        if bias is not None:
            bias = tf.gather(tf.convert_to_tensor(bias), order)
            self.bias = _constant(bias, tf.float32, "bias")
        means = _means(tf.convert_to_tensor(self.rows), sizes)
        self.centres = _constant(means, tf.float32, "centres")
        if quantize:
            self.rows = export_rows.quantize(self.rows)
        biases = tf.zeros(len(order)) if bias is None else bias
        of_list = np.repeat(np.arange(len(sizes)), sizes)
        greatest = tf.math.segment_max(biases, of_list)
        self.centre_bias = _constant(greatest, tf.float32, "centre_bias")
        self.state = [
            *(self.order, self.places, self.starts, self.rows, self.bias),
            *(self.centres, self.centre_bias, *head.query_weights()),
        ]

    @property
    def activation(self) -> str | None:
        """The head's, but no softmax, of which lists are not read."""
        return None if self.head.needs_logsumexp else self.head.activation

    def min_probes(self, k: int) -> int:
        """Lists to read that hold `k` classes whichever they are, int."""
        sizes = np.sort(np.diff(self.starts.numpy()))
        return int(np.searchsorted(np.cumsum(sizes), k)) + 1

    def top_k(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)`: int64 and float32 `[..., k]`, best first."""
        features = tf.convert_to_tensor(features)
        found = self.top_k_of(self.head.queries(features), k, self.num_probes)
        return tuple(unflatten(x, features) for x in found)

    def top_k_of(
        self, queries: tf.Tensor, k: int, num_probes: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`top_k` of queries, float32 `[batch, dim]`, in so many lists."""
        k = check_k(k, self.order.shape[0])
        means = tf.matmul(queries, self.centres, transpose_b=True)
        probes = tf.math.top_k(
            nan_last(means + self.centre_bias), num_probes, sorted=False
        ).indices
        starts, class_rows = tf.identity(self.starts), self._class_rows()

        def answer(query_and_lists):
            query, lists = query_and_lists
            at = self._ranges(
                tf.gather(starts, lists), tf.gather(starts, lists + 1)
            )
            rows = bfloat16_rows.take(class_rows.kernel, at)
            logits = tf.linalg.matvec(rows, query)
            if class_rows.bias is not None:
                logits += tf.gather(class_rows.bias, at)
            columns = tf.math.top_k(nan_last(logits), k).indices
            return tf.gather(at, columns), tf.gather(logits, columns)

        # One query at a time: the rows that all of a batch read at once would
        # be gigabytes.
        at, scores = tf.map_fn(
            answer,
            (queries, probes),
            fn_output_signature=(
                tf.TensorSpec([k], tf.int64),
                tf.TensorSpec([k], tf.float32),
            ),
            parallel_iterations=2,
        )
        return mask_missing(tf.gather(self.order, at), self.scores_of(scores))

    def scores_of(self, logits: tf.Tensor) -> tf.Tensor:
        """The scores of classes with these logits."""
        if self.activation is None:
            return logits
        return self.head.activate(logits)

    def _class_rows(self):
        """`ClassRows` in the order of the lists, read."""
        return ClassRows(self.rows, self.bias).whole()

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        at = tf.gather(self.places, tf.maximum(ids, 0))
        return logits_at(self.head.queries(features), self._class_rows(), at)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """All scores, exact, float32 `[..., num_classes]`."""
        logits = stock_search.all_logits(
            self.head.queries(features), self._class_rows()
        )
        logits = tf.pad(logits, [[0, 0], [1, 0]], constant_values=REMOVED_LOGIT)
        logits = tf.gather(logits, tf.identity(self.places) + 1, axis=1)
        logits = unflatten(logits, features)
        return self.head.activate(logits) if self.head.activation else logits


def _ranges(begins, ends):
    """Numbers of the ranges [begin, end), one range after the other."""
    return tf.ragged.range(begins, ends).flat_values


def _plain_ranges(begins, ends):
    """As `_ranges`, without its op; takes several times as long."""
    lengths = ends - begins
    first = tf.cumsum(lengths, exclusive=True)
    # Each number is one more than the number before it, except at a begin.
    jumps = begins - tf.concat([tf.zeros_like(ends[:1]), ends[:-1]], axis=0)
    total = tf.reduce_sum(lengths, keepdims=True)
    jumps = tf.scatter_nd(first[:, tf.newaxis], jumps, total)
    return tf.cumsum(jumps + 1) - 1


def _constant(value, dtype, name):
    # A variable, not a constant: those lie in saved_model.pb.
    value = tf.convert_to_tensor(value, dtype)
    return tf.Variable(value, trainable=False, name=name)


def _means(rows, sizes):
    """Means of consecutive rows, float32; some lists are widened at a time."""
    means, ends = [], np.cumsum(sizes)
    for lists in np.array_split(np.arange(len(sizes)), -(-len(sizes) // 256)):
        first = ends[lists[0]] - sizes[lists[0]]
        part = bfloat16_rows.widen(rows[first : ends[lists[-1]]])
        of_list = np.repeat(np.arange(len(lists)), sizes[lists])
        means.append(tf.math.segment_mean(part, of_list))
    return tf.concat(means, axis=0)
