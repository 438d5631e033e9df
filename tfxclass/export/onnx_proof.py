"""Whether an ONNX model answers as the model that it was made of."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import compare
from tfxclass.export import onnx_rows
from tfxclass.export import precision
from tfxclass.export import questions
from tfxclass.export.signatures import ExactSearch
from tfxclass.inference import filters
from tfxclass.layers.output_head import flatten


def check(
    path: str,
    encoder: keras.Model,
    search: ExactSearch,
    k: int,
    examples: Sequence[np.ndarray],
    kind: str | None,
) -> None:
    """Compares the answers of ONNX Runtime with the model's.

    Args:
        path: of the ONNX model.
        encoder: `keras.Model` from the inputs to the features.
        search: `ExactSearch` of the head.
        k: int, classes in an answer.
        examples: list of arrays for the encoder.
        kind: of the filter, or None.

    Raises:
        RuntimeError: they differ.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    head = search.head
    feeds = questions.served(encoder.inputs, examples)
    features = encoder([tf.constant(x) for x in examples], training=False)
    answers = head if search.measured is None else search

    def find(features):
        if kind is None:
            return answers.top_k(features, k)
        named = feeds[filters.INPUTS[kind]]
        return filters.answer(head, features, named, k, kind, answers)

    if kind is not None:
        # The best, and padding.
        best, _ = head.top_k(features, min(2, head.num_answers))
        named = np.pad(best, [[0, 0], [0, 1]], constant_values=-1)
        feeds[filters.INPUTS[kind]] = named
    wanted = precision.expect(
        find, features, precision.feature_error(encoder), head.activation
    )
    error = wanted.error
    if search.measured is not None:
        error = error + _score_error(search, features, wanted.answers["scores"])
    found = session.run(["ids", "scores"], feeds)
    compare.check_same(
        dict(zip(("ids", "scores"), found)),
        wanted.answers,
        None,
        head.activation,
        error,
        wanted.compared,
    )


def _score_error(search, features, scores):
    """How far scores `[..., k]` may be off, given the error of their logits."""
    error, scores = _query_error(search, features), np.abs(scores)
    if search.head.activation is None:
        return error
    # Of a probability, and of the sum that it is divided by.
    return 2 * error * scores.reshape(-1, scores.shape[-1])


def _query_error(search, features):
    """The greatest error of a logit that is one of int8 products."""
    head, (rows,) = search.head, search.weights
    queries = head.answer_scale * head.queries(flatten(features))
    finite = tf.where(tf.math.is_finite(queries), queries, 0.0)
    most = float(tf.reduce_max(tf.abs(finite)))
    # Of a row, at most.
    norm = 127 * rows.kernel.shape[1] * tf.reduce_max(rows.kernel.scales)
    return onnx_rows.query_error(most, float(norm))
