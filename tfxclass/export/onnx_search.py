"""The search of an ONNX model, in TensorFlow ops that tf2onnx converts.

The class vectors are inputs of the converted function, since a graph may have
2 GB at most. `tfxclass.export.onnx_model` writes them to a file.
"""

import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.export.searches import ExactSearch
from tfxclass.export.signatures import Signature
from tfxclass.inference import filters
from tfxclass.layers.head_config import live_ids
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import nan_last
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.int8_rows import Int8Rows

#: Names of the class vectors' tensors: of float32, or of int8.
ROWS, CODES, SCALES, BIAS = (
    f"tfxclass/{name}" for name in ("rows", "codes", "scales", "bias")
)
# Queries are two digits of so many steps either way. Shifted by ZERO they are
# 1..127, and the sum of two products with an int8 is less than 2**15:
# processors without VNNI add two at a time in 16 bits.
_STEPS, ZERO = 63, 64


def tensors_of(rows: ClassRows, scale: float) -> dict[str, tf.Tensor]:
    """The tensors of served class vectors by name; a bias times `scale`."""
    if isinstance(rows.kernel, Int8Rows):
        found = {CODES: rows.kernel.codes, SCALES: rows.kernel.scales}
    else:
        kernel = tf.convert_to_tensor(rows.kernel)
        found = {ROWS: bfloat16_rows.widen(kernel)}
    if rows.bias is not None:
        found[BIAS] = scale * tf.convert_to_tensor(rows.bias)
    return {name: tf.convert_to_tensor(x) for name, x in found.items()}


class OnnxSearch:
    """The best classes of features, given the class vectors.

    Args:
        head: the head.
        tensors: symbolic tensors, by name, as those of `tensors_of`; int8
            codes are transposed, `[dim, num_classes]`.
    """

    def __init__(self, head: OutputHead, tensors: dict[str, tf.Tensor]) -> None:
        self._head, self._tensors = head, tensors

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
                logits = self._logits_of(rows, named)
                named = live_ids(named, head.removed)
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

    def _queries(self, features):
        return self._head.answer_scale * self._head.queries(features)

    def _logits(self, features):
        """Logits of all classes, times the head's `answer_scale`."""
        queries, given = self._queries(features), self._tensors
        if ROWS in given:
            logits = tf.matmul(queries, given[ROWS], transpose_b=True)
        else:
            logits = _int8_products(queries, given[CODES]) * given[SCALES]
        return logits + given[BIAS] if BIAS in given else logits

    def _logits_of(self, features, ids):
        """Logits of classes `[rows, q]`, of class 0 for padding."""
        # ONNX Runtime refuses a class past the last one.
        past = tf.constant(self._head.num_classes, tf.int64)
        at = tf.where(ids < -1, past, tf.maximum(ids, 0))
        given, queries = self._tensors, self._queries(features)
        if ROWS in given:
            rows = tf.gather(given[ROWS], at)
        else:
            codes = tf.cast(tf.gather(given[CODES], at, axis=1), tf.float32)
            scales = tf.gather(given[SCALES], at)
            rows = tf.transpose(codes, [1, 2, 0]) * scales[..., tf.newaxis]
        logits = tf.squeeze(tf.matmul(rows, queries[..., tf.newaxis]), 2)
        if BIAS in given:
            logits += tf.gather(given[BIAS], at)
        return logits / self._head.answer_scale


def _int8_products(queries, codes):
    """Products of queries with int8 codes `[dim, n]`, float32 `[batch, n]`.

    A query is made two digits of 7 bits, which are rows of one product: the
    class vectors are read once, and what is rounded is 1/15,876 of the query's
    greatest number.
    """
    most = tf.reduce_max(tf.abs(queries), axis=1, keepdims=True)
    # A query of zeros may have any scale.
    unit = tf.maximum(most, 1e-30) / _STEPS
    steps = queries / unit
    high = tf.round(steps)
    low = tf.round((steps - high) * (2.0 * _STEPS))
    digits = tf.cast(tf.concat([high, low], axis=0) + ZERO, tf.uint8)
    # ONNX has a zero point of digits, which `onnx_graph` sets.
    sums = tf.raw_ops.BatchMatMulV3(x=digits, y=codes, Tout=tf.int32)
    high, low = tf.split(tf.cast(sums, tf.float32), 2, axis=0)
    products = (high + low / (2.0 * _STEPS)) * unit
    # A NaN has no digits.
    return products + tf.reduce_sum(0.0 * queries, axis=1, keepdims=True)


def query_error(most: float, norm: float) -> float:
    """The greatest error of a logit by the rounding of its query.

    Args:
        most: greatest absolute number of a query.
        norm: greatest sum of absolute numbers of a class vector.
    """
    return most * norm / (4 * _STEPS * _STEPS)


def logit_error(search: ExactSearch, features: tf.Tensor) -> float:
    """The greatest error of a logit that is one of int8 products."""
    head, (rows,) = search.head, search.weights
    queries = head.answer_scale * head.queries(flatten(features))
    finite = tf.where(tf.math.is_finite(queries), queries, 0.0)
    most = float(tf.reduce_max(tf.abs(finite)))
    # An upper bound of the norm of a row.
    norm = 127 * rows.kernel.shape[1] * tf.reduce_max(rows.kernel.scales)
    return query_error(most, float(norm))
