"""The ops of an export, its answers as a server gives them, and its warm-up."""

import contextlib
import glob
import os
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass.checks import as_positive_ints
from tfxclass.paths import local_path
from tfxclass.types import Config
from tfxclass.types import Path

# Requests that a server runs before a version is available, and their number.
WARMUP = os.path.join("assets.extra", "tf_serving_warmup_requests")
_MAX_RECORDS = 1_000
# They call a function of the Python process that made the graph.
_PYTHON_OPS = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


class Request(NamedTuple):
    """What a signature is asked: its name, and arrays by input name."""

    signature: str
    inputs: dict[str, np.ndarray]


def meta_graph(folder: str) -> Any:
    """The MetaGraphDef of the SavedModel in `folder`."""
    with open(os.path.join(folder, "saved_model.pb"), "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    return saved.meta_graphs[0]


def ops_of(graph: Any) -> set[str]:
    """Names of the ops of a MetaGraphDef, its functions' too; a set."""
    return {op.name for op in graph.meta_info_def.stripped_op_list.op}


def check_ops(folder: Path) -> None:
    """Raises ValueError where a SavedModel has ops that a server lacks."""
    ops = ops_of(meta_graph(local_path(folder, "folder")))
    stock = set(dir(tf.raw_ops)) | _text_ops()
    foreign = sorted(
        op
        for op in ops
        # Compiled parts of a model, which `raw_ops` leaves out.
        if not op.startswith("Xla")
        and (op in _PYTHON_OPS or op.replace(">", "_") not in stock)
    )
    if foreign:
        raise ValueError(
            "The graph of an export must have only ops of TensorFlow and "
            "TensorFlow Text, or TensorFlow Serving cannot load it. Received "
            f"a graph with: {foreign}. Replace the layer that uses them."
        )


def _text_ops():
    """Names of TensorFlow Text's ops, if it is imported: servers have them."""
    text = sys.modules.get("tensorflow_text")
    if text is None:
        return set()
    folder = os.path.join(os.path.dirname(text.__file__), "python")
    libraries = glob.glob(os.path.join(glob.escape(folder), "*", "_*.so"))
    # They are loaded already, so this returns their modules.
    return {
        name for path in libraries for name in dir(tf.load_op_library(path))
    }


def answers_of(
    folder: Path, requests: Sequence[Request]
) -> list[dict[str, np.ndarray]]:
    """Answers of the SavedModel in `folder`; RuntimeError without any."""
    folder = local_path(folder, "folder")
    signatures = meta_graph(folder).signature_def
    # No GPU: this process may hold its memory.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    try:
        with (
            # TensorFlow warns that this loader is deprecated; servers have it.
            without_warnings(),
            tf.Graph().as_default(),
            tf.compat.v1.Session(config=config) as session,
        ):
            tf.compat.v1.saved_model.load(session, ["serve"], folder)
            answers = []
            for name, given in requests:
                signature = signatures[name]
                fetches = {k: v.name for k, v in signature.outputs.items()}
                feeds = {signature.inputs[k].name: v for k, v in given.items()}
                answers.append(session.run(fetches, feeds))
            return answers
    except (tf.errors.OpError, ValueError) as e:
        raise RuntimeError(
            f"The export does not load or run without tfxclass: {e}\n"
            "If the made-up inputs do not fit the model, give "
            "`example_inputs`."
        ) from e


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """TensorFlow logs errors only: its warnings are not the user's."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


def check_warmup(batch_sizes: Sequence[int] | int) -> list[int]:
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


def write_warmup(
    folder: Path,
    signatures: Sequence[Any],
    inputs: Config,
    batch_sizes: Sequence[int],
) -> list[Request]:
    """Writes one request of each size for each `Signature`; returns them."""
    if not batch_sizes:
        return []
    if len(signatures) * len(batch_sizes) > _MAX_RECORDS:
        raise ValueError(
            f"`warmup_batch_sizes` must make at most {_MAX_RECORDS} requests. "
            f"Received: {len(batch_sizes)} with {len(signatures)} signatures."
        )
    requests = []
    for size in batch_sizes:
        batch = {key: x[np.arange(size) % len(x)] for key, x in inputs.items()}
        for signature in signatures:
            asked = batch
            if signature.ids_input is not None:
                asked = {**batch, signature.ids_input: np.full([size, 1], -1)}
            requests.append(Request(signature.name, asked))
    path = os.path.join(folder, WARMUP)
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
