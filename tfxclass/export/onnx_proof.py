"""Whether an ONNX model answers as the model that it was made of."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import compare
from tfxclass.export import onnx_rows
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
    feeds = {x.name: value for x, value in zip(encoder.inputs, examples)}
    features = encoder([tf.constant(x) for x in examples], training=False)
    error, answers = 0.0, head
    if search.measured is not None:
        error, answers = _query_error(search, features), search
    if kind is None:
        ids, scores = answers.top_k(features, k)
    else:
        # The best, and padding.
        best, _ = head.top_k(features, min(2, head.num_answers))
        named = np.pad(best, [[0, 0], [0, 1]], constant_values=-1)
        feeds[filters.INPUTS[kind]] = named
        ids, scores = filters.answer(head, features, named, k, kind, answers)
    found = session.run(["ids", "scores"], feeds)
    compare.check_same(
        dict(zip(("ids", "scores"), found)),
        {"ids": ids.numpy(), "scores": scores.numpy()},
        None,
        head.activation,
        error,
    )


def _query_error(search, features):
    """The greatest error of a logit that is one of int8 products."""
    head, (rows,) = search.head, search.weights
    queries = head.answer_scale * head.queries(flatten(features))
    most = float(tf.reduce_max(tf.abs(queries)))
    # Of a row, at most.
    norm = 127 * rows.kernel.shape[1] * tf.reduce_max(rows.kernel.scales)
    return onnx_rows.query_error(most, float(norm))
