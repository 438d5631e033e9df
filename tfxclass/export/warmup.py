"""Warm-up requests: what a server runs before a version is available."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfxclass.checks import as_positive_ints
from tfxclass.export.checks import Request
from tfxclass.export.signatures import Signature
from tfxclass.types import Config
from tfxclass.types import Path

PATH = os.path.join("assets.extra", "tf_serving_warmup_requests")
# A server takes no more.
_MAX_RECORDS = 1_000


def check(batch_sizes: Sequence[int] | int) -> list[int]:
    """The sizes; raises unless they are positive, or without the extra."""
    batch_sizes = as_positive_ints("warmup_batch_sizes", batch_sizes)
    if batch_sizes:
        _prediction_log()
    return batch_sizes


def _prediction_log():
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as e:
        raise ImportError(
            "Warm-up requests need the protocol of TensorFlow Serving. Fix: "
            "pip install --no-deps 'tensorflow-serving-api==2.21.*'"
        ) from e
    return prediction_log_pb2


def write(
    folder: Path,
    signatures: Sequence[Signature],
    inputs: Config,
    batch_sizes: Sequence[int],
) -> list[Request]:
    """Writes one request of each size for each signature; returns them."""
    if not batch_sizes:
        return []
    if len(signatures) * len(batch_sizes) > _MAX_RECORDS:
        raise ValueError(
            f"`warmup_batch_sizes` must make at most {_MAX_RECORDS} requests."
            f" Received: {len(batch_sizes)} sizes with {len(signatures)} "
            "signatures."
        )
    requests = []
    for size in batch_sizes:
        batch = {key: x[np.arange(size) % len(x)] for key, x in inputs.items()}
        for signature in signatures:
            asked = batch
            if signature.ids_input is not None:
                asked = {**batch, signature.ids_input: np.full([size, 1], -1)}
            requests.append(Request(signature.name, asked))
    path = os.path.join(folder, PATH)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tf.io.TFRecordWriter(path) as writer:
        for request in requests:
            log = _prediction_log().PredictionLog()
            logged = log.predict_log.request
            for name, value in request.inputs.items():
                logged.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            # The server puts its own name of the model here.
            logged.model_spec.signature_name = request.signature
            writer.write(log.SerializeToString(deterministic=True))
    return requests
