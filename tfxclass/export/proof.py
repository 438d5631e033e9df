"""Proves an export: stock ops only, and the model's own answers.

The export is loaded by `c_loader.py` in a process of its own, through the C
API of TensorFlow's library: the loader that TensorFlow Serving uses.
"""

import json
import os
import subprocess
import sys
import tempfile
import typing

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass.export import compare

LOADER = os.path.join(os.path.dirname(__file__), "c_loader.py")
_TEXTS = ("sample text", "", "Zwei W\u00f6rter")
# Where an input has a dimension of any size.
_ANY_SIZE = 8


class Question(typing.NamedTuple):
    """What the loaded export is asked, and who knows the answer.

    Attributes:
        live: model that returns `(ids, scores)`.
        inputs: list of arrays for it.
        names: list of str, the class names, or None.
        activation: the head's; None where scores are logits.
    """

    live: typing.Any
    inputs: list
    names: list | None
    activation: str | None


def examples(inputs, given=None):
    """Arrays to ask the model with, one for each of the symbolic `inputs`.

    Args:
        inputs: list of `keras.KerasTensor`.
        given: an array, a list, a dict by name, or None to make some up.

    Raises:
        ValueError: `given` does not fit the inputs.
    """
    if given is None:
        return [_made_up(x) for x in inputs]
    names = [x.name for x in inputs]
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(
                "`example_inputs` must have the model's inputs "
                f"{sorted(names)}. Received: {sorted(given)}"
            )
        given = [given[name] for name in names]
    elif len(inputs) == 1 and np.ndim(given) == len(inputs[0].shape):
        given = [given]
    elif not isinstance(given, (list, tuple)):
        given = [given]
    if len(given) != len(inputs):
        raise ValueError(
            "`example_inputs` must be one array for each of the model's "
            f"{len(inputs)} inputs. Received: {len(given)}"
        )
    return [_as_array(x, value) for x, value in zip(inputs, given)]


def _as_array(spec, value):
    dtype = tf.as_dtype(spec.dtype)
    try:
        return tf.convert_to_tensor(value, dtype).numpy()
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"`example_inputs` must be {dtype.name} for input {spec.name!r}. "
            f"Received: {type(value).__name__}: {e}"
        ) from e


def _made_up(spec):
    """Zeros, ones and random numbers; ids stay 0 or 1, likely in range."""
    shape = [_ANY_SIZE if size is None else size for size in spec.shape[1:]]
    dtype = tf.as_dtype(spec.dtype)
    if dtype == tf.string:
        texts = [text.encode() for text in _TEXTS]
        return np.stack([np.full(shape, text, object) for text in texts])
    rng = np.random.default_rng(0)
    random = rng.random(shape)
    if not dtype.is_floating:
        random = random > 0.5
    rows = [np.zeros(shape), np.ones(shape), random]
    return np.stack(rows).astype(dtype.as_numpy_dtype)


def check(folder, signature, question=None):
    """Raises unless the export in `folder` is sound; see `saved_model`.

    Args:
        folder: the SavedModel.
        signature: str, name of its signature.
        question: `Question`, or None to check the ops only.

    Raises:
        ValueError: the graph has ops that TensorFlow does not.
        RuntimeError: the export does not load, or answers otherwise.
    """
    graph = _meta_graph(folder)
    with tempfile.TemporaryDirectory() as scratch:
        if question is not None:
            _ask(scratch, folder, graph.signature_def[signature], question)
        done = _run_loader(scratch)
        _check_stock_ops(graph, scratch, done)
        if question is None:
            return
        answers = _answers(scratch, done)
    inputs = [tf.constant(x) for x in question.inputs]
    ids, scores = question.live(inputs, training=False)
    compare.check_same(
        answers,
        {"ids": ids.numpy(), "scores": scores.numpy()},
        question.names,
        question.activation,
    )


def _meta_graph(folder):
    with open(os.path.join(folder, "saved_model.pb"), "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    return saved.meta_graphs[0]


def _ask(scratch, folder, signature, question):
    """Leaves the question for the loader in `scratch`."""
    request = {
        "model": os.path.abspath(folder),
        "inputs": [signature.inputs[x.name].name for x in question.live.inputs],
        "outputs": {
            key: info.name for key, info in sorted(signature.outputs.items())
        },
    }
    with open(os.path.join(scratch, "request.json"), "w") as f:
        json.dump(request, f)
    np.savez(os.path.join(scratch, "inputs.npz"), *question.inputs)


def _run_loader(scratch):
    # The C API sees no GPU: this process may hold its memory.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run(
        [sys.executable, LOADER, tf.sysconfig.get_lib(), scratch],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
    )


def ops_of(graph):
    """Names of the ops of a MetaGraphDef, its functions' too; a set."""
    library = graph.graph_def.library.function
    ops = {node.op for node in graph.graph_def.node}
    for function in library:
        ops.update(node.op for node in function.node_def)
    # A function may be called by a node of its name.
    return ops - {function.signature.name for function in library}


def _check_stock_ops(graph, scratch, done):
    path = os.path.join(scratch, "ops.pb")
    if not os.path.exists(path):
        raise RuntimeError(_failure("TensorFlow's C API does not load", done))
    with open(path, "rb") as f:
        stock = {op.name for op in op_def_pb2.OpList.FromString(f.read()).op}
    foreign = sorted(ops_of(graph) - stock)
    if foreign:
        raise ValueError(
            "An export must have TensorFlow's own ops only, or TensorFlow "
            f"Serving cannot load it. Received a graph with: {foreign}. "
            "Replace the layer that uses them by one of stock ops."
        )


def _answers(scratch, done):
    if done.returncode:
        raise RuntimeError(
            _failure("The export does not load or run without tfxclass", done)
            + "\nIf the made-up inputs do not fit the model, give "
            "`example_inputs`."
        )
    path = os.path.join(scratch, "outputs.npz")
    # Written by our own process: strings are arrays of objects.
    with np.load(path, allow_pickle=True) as outputs:
        return dict(outputs)


def _failure(what, done):
    said = done.stderr.strip()[-4000:]
    return f"{what} (exit status {done.returncode}): {said}"
