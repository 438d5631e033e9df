"""The search of an ONNX model, in TensorFlow ops that tf2onnx converts.

Class vectors are inputs of the function, since a graph may have 2 GB at most.
"""

import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.export.signatures import Signature
from tfxclass.inference import filters
from tfxclass.layers.head_config import live_ids
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import nan_last
from tfxclass.rows.class_matrix import ClassRows

#: Names of the class vectors' tensors.
ROWS, BIAS = "tfxclass/rows", "tfxclass/bias"


def tensors_of(rows: ClassRows) -> dict[str, tf.Tensor]:
    """The tensors of served class vectors by name, float32."""
    found = {ROWS: bfloat16_rows.widen(tf.convert_to_tensor(rows.kernel))}
    if rows.bias is not None:
        found[BIAS] = tf.convert_to_tensor(rows.bias)
    return found


class OnnxSearch:
    """The best classes of features, given what `tensors_of` returns."""

    def __init__(
        self, head: OutputHead, kernel: tf.Tensor, bias: tf.Tensor | None = None
    ) -> None:
        self._head, self._kernel, self._bias = head, kernel, bias

    def answer(
        self, signature: Signature, features: tf.Tensor, *ids: tf.Tensor
    ) -> list[tf.Tensor]:
        """`[ids, scores]` of a `Signature` with a filter's ids, or without."""
        head, k, rows = self._head, signature.k, flatten(features)
        if signature.filter is None:
            found = self._best(rows, k)
        else:
            # ONNX does not reshape ids of no columns.
            named = tf.pad(ids[0], [[0, 0], [0, 1]], constant_values=-1)
            if signature.filter.kind == filters.ONLY:
                named = filters.distinct(live_ids(named, head.removed))
                logits = self._logits_of(rows, named)
                found = filters.among(head, logits, named, k)
            else:
                size = tf.minimum(k + tf.shape(named)[1], head.num_answers)
                best, scores = self._best(rows, size)
                found = filters.without(best, scores, named, k)
        return [unflatten(x, features) for x in found]

    def _best(self, features, k):
        logits, head = self._logits(features), self._head
        _, ids = tf.math.top_k(nan_last(logits), k)
        best = tf.gather(logits, ids, axis=1, batch_dims=1)
        if head.activation is not None:
            total = None
            if head.objective.needs_logsumexp:
                total = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
            best = head.objective.probabilities(best, total)
        return mask_missing(tf.cast(ids, tf.int64), best)

    def _logits(self, features):
        """Logits of all classes, times the head's `answer_scale`."""
        scale = self._head.answer_scale
        queries = scale * self._head.queries(features)
        logits = tf.matmul(queries, self._kernel, transpose_b=True)
        return logits if self._bias is None else logits + scale * self._bias

    def _logits_of(self, features, ids):
        """Logits of classes `[rows, q]`, of class 0 for padding."""
        # ONNX Runtime refuses a class past the last one.
        past = tf.constant(self._head.num_classes, tf.int64)
        at = tf.where(ids < -1, past, tf.maximum(ids, 0))
        queries = self._head.queries(features)
        rows = tf.gather(self._kernel, at)
        logits = tf.squeeze(tf.matmul(rows, queries[..., tf.newaxis]), 2)
        if self._bias is not None:
            logits += tf.gather(self._bias, at)
        return logits
