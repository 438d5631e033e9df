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
from tfxclass.checks import check_k
from tfxclass.export import compare
from tfxclass.export import labels as labels_lib
from tfxclass.export import questions
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
    if exclude and len(features.shape) > 2:
        raise ValueError(
            "`exclude` needs features [batch, dim] in an ONNX model. Received: "
            f"features of shape {features.shape}"
        )
    names = labels_lib.of_head(labels, head)
    examples = questions.examples(inputs, example_inputs)
    for variable in model.trainable_variables:
        optimizers.catch_up(variable)
    encoder = keras.Model(inputs, features)
    graph = _convert(encoder, head)
    with new_folder(path) as folder:
        _write(folder, graph, head, top_k, len(features.shape), exclude)
        labels_lib.write(names, folder)
        if verify:
            _verify(folder, encoder, head, top_k, examples, exclude)
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


def _write(folder, model, head, k, rank, exclude):
    """Adds the classifier to `model`, and writes both."""
    import onnx
    from onnx import helper

    (served,) = head.export_weights()
    rows = half_rows.widen(tf.convert_to_tensor(served.kernel))
    bias = served.bias
    if bias is not None:
        bias = head.answer_scale * tf.convert_to_tensor(bias)
    graph, rest = model.graph, [None] * (rank - 2)
    queries, *leading = [output.name for output in graph.output]
    tensors = {"rows": rows} if bias is None else {"rows": rows, "bias": bias}
    graph.initializer.extend(_write_tensors(folder, tensors))
    constants = {"k": np.array([k]), "last_axis": np.array([1])}
    for name, value in constants.items():
        value = onnx.numpy_helper.from_array(value.astype("int64"), _own(name))
        graph.initializer.append(value)
    most = None
    if exclude:
        most = _own("most")
        graph.node.extend(_places(head, k, graph, most))
    nodes = _classifier(queries, list(tensors), head.activation, leading, most)
    graph.node.extend(nodes)
    del graph.output[:]
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param or "batch"
    for name, kind in (("ids", "INT64"), ("scores", "FLOAT")):
        kind = getattr(onnx.TensorProto, kind)
        shape = [batch, k] if not leading else [batch, *rest, k]
        info = helper.make_tensor_value_info(name, kind, shape)
        graph.output.append(info)
    with open(os.path.join(folder, MODEL), "wb") as f:
        f.write(model.SerializeToString())
    onnx.checker.check_model(os.path.join(folder, MODEL))


def _own(name):
    """A name that no tensor of an encoder has."""
    return "tfxclass/" + name


def _places(head, k, graph, most):
    """Adds the input of a filter; nodes to how many classes are found."""
    import onnx
    from onnx.helper import make_node

    name = filters.INPUTS[filters.EXCLUDE]
    int64 = onnx.TensorProto.INT64
    info = onnx.helper.make_tensor_value_info(name, int64, ["batch", "p"])
    graph.input.append(info)
    constants = {
        "one": [1],
        "two": [2],
        "answers": [head.num_answers],
        "padding": [0, 0, 0, k],
    }
    for constant, value in constants.items():
        value = np.array(value, np.int64)
        graph.initializer.append(
            onnx.numpy_helper.from_array(value, _own(constant))
        )
    none = np.array(-1, np.int64)
    graph.initializer.append(onnx.numpy_helper.from_array(none, _own("none")))
    low = np.array(-np.inf, np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(low, _own("low")))
    zero = np.array(0, np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(zero, _own("zero")))
    yield make_node("Shape", [name], [_own("width")], start=1, end=2)
    yield make_node("Add", [_own("width"), _own("k")], [_own("wanted")])
    yield make_node("Min", [_own("wanted"), _own("answers")], [most])


def _filtered(found, ids, scores):
    """Nodes to the best of `found`, (ids, logits, scores), not excluded."""
    from onnx.helper import make_node

    name = filters.INPUTS[filters.EXCLUDE]
    padded = [_own(f"padded_{x}") for x in ("ids", "logits", "scores")]
    fills = _own("none"), _own("low"), _own("zero")
    for x, filled, value in zip(found, padded, fills, strict=True):
        yield make_node("Pad", [x, _own("padding"), value], [filled])
    yield make_node("Unsqueeze", [padded[0], _own("two")], [_own("each")])
    yield make_node("Unsqueeze", [name, _own("one")], [_own("named")])
    yield make_node("Equal", [_own("each"), _own("named")], [_own("same")])
    # A column more: a maximum over none is not defined.
    yield make_node("Equal", [padded[0], _own("none")], [_own("is_none")])
    yield make_node(
        "Unsqueeze", [_own("is_none"), _own("two")], [_own("is_none_3")]
    )
    yield make_node(
        "Concat", [_own("same"), _own("is_none_3")], [_own("all_same")], axis=2
    )
    yield make_node("Cast", [_own("all_same")], [_own("counted")], to=1)
    yield make_node(
        "ReduceMax",
        [_own("counted"), _own("two")],
        [_own("most_same")],
        keepdims=0,
    )
    yield make_node("Cast", [_own("most_same")], [_own("is_out")], to=9)
    outs = [_own(f"left_{x}") for x in ("ids", "logits", "scores")]
    for x, out, value in zip(padded, outs, fills, strict=True):
        yield make_node("Where", [_own("is_out"), value, x], [out])
    yield make_node(
        "TopK", [outs[1], _own("k")], [_own("left"), _own("columns")], axis=1
    )
    for x, out in ((outs[0], ids), (outs[2], scores)):
        yield make_node("GatherElements", [x, _own("columns")], [out], axis=1)


def _classifier(queries, tensors, activation, leading, most=None):
    """Nodes from queries to `ids` and `scores`.

    `leading` names the dimensions of the answers before k, where they are not
    those of the queries.
    """
    from onnx.helper import make_node

    if leading:
        shape = _own("shape")
        yield make_node("Concat", [*leading, _own("k")], [shape], axis=0)
        flat = {name: _own(f"flat_{name}") for name in ("ids", "scores")}
        yield from _answers(queries, tensors, activation, **flat)
        for name, rows in flat.items():
            yield make_node("Reshape", [rows, shape], [name])
        return
    if most is None:
        yield from _answers(queries, tensors, activation)
        return
    found = _own("found_ids"), _own("found_scores")
    yield from _answers(queries, tensors, activation, *found, k=most)
    logits = found[1] if activation is None else _own("best")
    yield from _filtered((found[0], logits, found[1]), "ids", "scores")


def _answers(queries, tensors, activation, ids="ids", scores="scores", k=None):
    from onnx.helper import make_node

    names = [_own(name) for name in tensors]
    logits, best, k = _own("logits"), _own("best"), k or _own("k")
    yield make_node("Gemm", [queries, *names], [logits], transB=1)
    if activation is None:
        yield make_node("TopK", [logits, k], [scores, ids], axis=1)
        return
    yield make_node("TopK", [logits, k], [best, ids], axis=1)
    if activation == "sigmoid":
        yield make_node("Sigmoid", [best], [scores])
        return
    total, shifted = _own("logsumexp"), _own("shifted")
    # The best alone are exponentiated once more: no second pass over all.
    axis = _own("last_axis")
    yield make_node("ReduceLogSumExp", [logits, axis], [total], keepdims=1)
    yield make_node("Sub", [best, total], [shifted])
    yield make_node("Exp", [shifted], [scores])


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
                name=_own(name),
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


def _verify(folder, encoder, head, k, examples, exclude):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        os.path.join(folder, MODEL), providers=["CPUExecutionProvider"]
    )
    feeds = {x.name: value for x, value in zip(encoder.inputs, examples)}
    features = encoder([tf.constant(x) for x in examples], training=False)
    ids, scores = head.top_k(features, k)
    if exclude:
        # The best, and padding.
        named = np.pad(ids[:, :1], [[0, 0], [0, 1]], constant_values=-1)
        feeds[filters.INPUTS[filters.EXCLUDE]] = named
        found = head.top_k(features, min(k + 2, head.num_answers))
        ids, scores = filters.without(*found, tf.constant(named), k)
    answers = session.run(["ids", "scores"], feeds)
    compare.check_same(
        dict(zip(("ids", "scores"), answers)),
        {"ids": ids.numpy(), "scores": scores.numpy()},
        None,
        head.activation,
    )
