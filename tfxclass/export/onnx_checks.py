"""Whether an ONNX model answers as the model that it was made of."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.export import compare
from tfxclass.export import onnx_search
from tfxclass.export.searches import ExactSearch
from tfxclass.export.searches import ModelSearch
from tfxclass.export.signatures import Reference
from tfxclass.export.signatures import best_classes
from tfxclass.inference import filters


def verify(
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
    head, is_int8 = search.head, search.measured is not None
    reference = Reference(
        encoder, search if is_int8 else ModelSearch(head), examples
    )
    feeds, ids = reference.inputs, []
    if kind is not None:
        # The best, and padding.
        best, _ = head.top_k(reference.features, min(2, head.num_answers))
        ids = [np.pad(best, [[0, 0], [0, 1]], constant_values=-1)]
        feeds = {**feeds, filters.INPUTS[kind]: ids[0]}
    options = {}
    if is_int8:
        error = _logit_error(search, reference.features)
        options["score_error"] = lambda scores: (
            # The probability, and the sum by which it is divided.
            2 * error * np.abs(scores) if head.activation else error
        )
    expected = reference.expect(best_classes(k, kind), *ids, **options)
    found = dict(zip(("ids", "scores"), session.run(["ids", "scores"], feeds)))
    compare.check(found, expected)


def _logit_error(search, features):
    """The greatest error of a logit that is one of int8 products."""
    head, (rows,) = search.head, search.weights
    queries = head.answer_scale * head.queries(flatten(features))
    finite = tf.where(tf.math.is_finite(queries), queries, 0.0)
    most = float(tf.reduce_max(tf.abs(finite)))
    # An upper bound of the norm of a row.
    norm = 127 * rows.kernel.shape[1] * tf.reduce_max(rows.kernel.scales)
    return onnx_search.query_error(most, float(norm))
