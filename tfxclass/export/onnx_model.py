"""`onnx`: a trained classifier as a model of ONNX Runtime."""

import contextlib
import importlib.util
import io
import logging
import os
import shutil
import uuid
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import optimizers
from tfxclass import progress
from tfxclass.checks import check_k
from tfxclass.export import compare
from tfxclass.export import labels as labels_lib
from tfxclass.export import onnx_classifier
from tfxclass.export import questions
from tfxclass.export.onnx_classifier import own
from tfxclass.inference import filters
from tfxclass.inference.graph import encoder_of
from tfxclass.keras_internals import called_graphs
from tfxclass.rows import half_rows
from tfxclass.types import Path

OPSET = 18
MODEL = "model.onnx"
CLASSES = "classes.bin"
# Rows at a time: the temporaries stay small.
_BLOCK = 65_536


def onnx(
    model: keras.Model | Path,
    path: Path,
    top_k: int = 10,
    labels: Sequence[str] | Path | None = None,
    verify: bool = True,
    example_inputs: Any = None,
    exclude: bool = False,
    only: bool = False,
) -> str:
    """Writes `model` as an ONNX model with the best classes of each request.

    The folder `path` gets `model.onnx` (opset 18): the model's inputs by
    their Keras names to `ids` (int64) and `scores` (float32), `[batch,
    top_k]`, best first; `classes.bin`, the class matrix, which may be larger
    than the 2 GB that a protocol buffer holds; and, with `labels`,
    `labels.txt`, the name of class i in line i. An answer holds `[batch,
    num_classes]` logits. The folder appears whole or not at all. Needs the
    extra `tfxclass[onnx]`.

    Args:
        model: a built Sequential or functional model that ends in a head with
            one row a class, or the path of one in a `.keras` file. ONNX has
            no ops for text: begin it where there are numbers.
        path: folder to make; it must not exist.
        top_k: int, number of classes in an answer.
        labels: the name of each class, a sequence of str, or the path of a
            text file with one a line; by default the head's `class_names`.
        verify: whether to compare the answers of ONNX Runtime with the
            model's.
        example_inputs: what `verify` asks; see `saved_model`.
        exclude: whether the model has an input more, `exclude_ids`, int64
            `[batch, p]` padded with -1: classes that are no answers to the
            question; see `tfxclass.top_k`. Not for features of sequences.
        only: whether it has `only_ids` instead, in the same way: the classes
            that may be answers, whose rows alone are read.

    Returns:
        The path of `model.onnx`, str.

    Raises:
        ValueError: an argument out of range, another kind of head, an input
            that is named as an output, or an op that ONNX does not have.
        RuntimeError: the export answers otherwise.
        ImportError: the extra is not installed.
    """
    check_extra()
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: {path!r}")
    if isinstance(model, (str, os.PathLike)):
        model = keras.models.load_model(model)
    inputs, features, head = encoder_of(model)
    top_k = check_k(top_k, head.num_answers)
    _check_head(head)
    _check_names(inputs)
    kind = filters.kind_of(exclude, only, inputs)
    if kind is not None and len(features.shape) > 2:
        raise ValueError(
            f"`{kind}` needs features [batch, dim] in an ONNX model. Received: "
            f"features of shape {features.shape}"
        )
    names = labels_lib.of_head(labels, head)
    examples = questions.examples(inputs, example_inputs)
    for variable in model.trainable_variables:
        optimizers.catch_up(variable)
    encoder = keras.Model(inputs, features)
    with progress.told("Converting the encoder"):
        graph = _convert(encoder, head)
    with new_folder(path) as folder:
        _write(folder, graph, head, top_k, len(features.shape), kind)
        labels_lib.write(names, folder)
        if verify:
            with progress.told("Comparing the answers"):
                _verify(folder, encoder, head, top_k, examples, kind)
    return os.path.join(path, MODEL)


def check_extra() -> None:
    """Raises ImportError unless ONNX models can be written and asked."""
    extra = ("tf2onnx", "onnx", "onnxruntime")
    missing = [name for name in extra if not importlib.util.find_spec(name)]
    if missing:
        raise ImportError(
            "ONNX models need tf2onnx, onnx and onnxruntime. Received: no "
            f"{', '.join(missing)}. Fix: pip install 'tfxclass[onnx]'"
        )


def _check_head(head):
    if not getattr(head, "has_plain_logits", False):
        raise ValueError(
            "ONNX export needs a head with one row a class, and of its logits "
            f"softmax, sigmoid or nothing. Received: {type(head).__name__}. "
            "Use tfxclass.export.saved_model."
        )


def _check_names(inputs):
    taken = {x.name for x in inputs} & {"ids", "scores"}
    if taken:
        raise ValueError(
            "An input of an ONNX model may not have the name of an output, "
            f"'ids' or 'scores'. Received: {sorted(taken)}. Name it with "
            "keras.Input(..., name=...)."
        )


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """A folder to fill, which becomes `path` at the end."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = f"{path}-incoming-{uuid.uuid4().hex}"
    os.mkdir(scratch)
    try:
        yield scratch
        os.rename(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(encoder, head):
    """ModelProto from the inputs to `queries`, what the rows multiply."""
    specs = [
        tf.TensorSpec((None, *x.shape[1:]), x.dtype, name=x.name)
        for x in encoder.inputs
    ]

    def encode(*inputs):
        features = encoder(list(inputs), training=False)
        queries = head.answer_scale * head.queries(features)
        queries = tf.identity(queries, name="queries")
        if features.shape.rank == 2:
            return queries
        # Of the answers, which are computed row by row.
        leading = tf.shape(features, tf.int64)[:-1]
        return queries, tf.identity(leading, name="leading")

    return convert(encode, specs)


def convert(function: Callable[..., Any], specs: list[tf.TensorSpec]) -> Any:
    """ModelProto of a function of tensors.

    Args:
        function: of tensors, to one or a tuple; their names are the outputs'.
        specs: `tf.TensorSpec` of each, with names.

    Raises:
        ValueError: an op that ONNX does not have.
    """
    import tf2onnx

    function = tf.function(function, specs, autograph=False)
    _check_no_text(function.get_concrete_function().graph)
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("tf2onnx")
    logger.addHandler(handler)
    try:
        # Deprecations within tf2onnx are not the user's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, _ = tf2onnx.convert.from_function(
                function, input_signature=specs, opset=OPSET
            )
    except Exception as e:
        raise ValueError(
            f"tf2onnx does not convert the model: {e}. {said.getvalue()}"
        ) from e
    finally:
        logger.removeHandler(handler)
    _check_ops(model)
    return model


def _check_no_text(graph):
    found = {
        op.type
        for op in _ops_of(graph)
        if any(x.dtype == tf.string for x in [*op.inputs, *op.outputs])
        or "Table" in op.type
    }
    if found:
        raise ValueError(
            "ONNX Runtime has no ops for text and lookup tables. Received a "
            f"model with: {sorted(found)}. Begin the model where there are "
            "numbers, keras.Model(ids, head(encoder(ids))), and do what comes "
            "before outside of it; or use tfxclass.export.saved_model."
        )


def _ops_of(graph):
    """All ops of a FuncGraph, with those of the functions that it calls."""
    yield from graph.get_operations()
    for called in called_graphs(graph):
        yield from called.get_operations()


def _check_ops(model):
    import onnx

    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    foreign = {node.op_type for node in model.graph.node} - known
    if foreign:
        raise ValueError(
            "tf2onnx does not convert these ops of the model: "
            f"{sorted(foreign)}. Replace the layers that use them."
        )


def _write(folder, model, head, k, rank, kind):
    """Adds the classifier to `model`, and writes both."""
    import onnx

    (served,) = head.export_weights()
    rows = half_rows.widen(tf.convert_to_tensor(served.kernel))
    bias = served.bias
    if bias is not None:
        bias = head.answer_scale * tf.convert_to_tensor(bias)
    tensors = {"rows": rows} if bias is None else {"rows": rows, "bias": bias}
    model.graph.initializer.extend(_write_tensors(folder, tensors))
    onnx_classifier.add(
        model.graph, head, list(map(own, tensors)), k, rank, kind
    )
    with open(os.path.join(folder, MODEL), "wb") as f:
        f.write(model.SerializeToString())
    onnx.checker.check_model(os.path.join(folder, MODEL))


def _write_tensors(folder, tensors):
    """Writes float32 variables in blocks; returns TensorProtos without data."""
    import onnx

    protos = []
    with open(os.path.join(folder, CLASSES), "wb") as f:
        for name, variable in tensors.items():
            offset, tensor = f.tell(), tf.convert_to_tensor(variable)
            for start in range(0, tensor.shape[0], _BLOCK):
                tensor[start : start + _BLOCK].numpy().tofile(f)
            f.flush()
            proto = onnx.TensorProto(
                name=own(name),
                dims=tensor.shape.as_list(),
                data_type=onnx.TensorProto.FLOAT,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            where = {
                "location": CLASSES,
                "offset": offset,
                "length": f.tell() - offset,
            }
            for key, value in where.items():
                proto.external_data.add(key=key, value=str(value))
            protos.append(proto)
    return protos


def _verify(folder, encoder, head, k, examples, kind):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        os.path.join(folder, MODEL), providers=["CPUExecutionProvider"]
    )
    feeds = {x.name: value for x, value in zip(encoder.inputs, examples)}
    features = encoder([tf.constant(x) for x in examples], training=False)
    if kind is None:
        ids, scores = head.top_k(features, k)
    else:
        # The best, and padding.
        best, _ = head.top_k(features, min(2, head.num_answers))
        named = np.pad(best, [[0, 0], [0, 1]], constant_values=-1)
        feeds[filters.INPUTS[kind]] = named
        ids, scores = filters.answer(head, features, named, k, kind)
    answers = session.run(["ids", "scores"], feeds)
    compare.check_same(
        dict(zip(("ids", "scores"), answers)),
        {"ids": ids.numpy(), "scores": scores.numpy()},
        None,
        head.activation,
    )
