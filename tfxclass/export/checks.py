"""Checks an export: ops that a server has, and the model's own answers.

The export is loaded by `_c_loader.py` in a process of its own, through the C
API of TensorFlow's library: the loader that TensorFlow Serving uses. Its build
has TensorFlow Text's ops, too. The file belongs to `tfxclass_serve`, which is a
distribution of its own: a link here, a copy where tfxclass is installed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass.export import _c_loader
from tfxclass.export._libraries import text_libraries
from tfxclass.paths import local_path
from tfxclass.types import Path

LOADER = _c_loader.__file__
_TEXT = "tensorflow_text"


class SignatureCheck(NamedTuple):
    """Inputs for a signature, and whether its answers are right.

    Attributes:
        signature: str, the name of the signature.
        inputs: dict of arrays by input name.
        check: function of the answers, a dict of arrays. It raises
            RuntimeError where they differ from the model's.
    """

    signature: str
    inputs: dict[str, np.ndarray]
    check: Callable[[dict[str, np.ndarray]], None]


def verify(
    folder: Path,
    checks: Sequence[SignatureCheck] = (),
    records: Sequence[Any] = (),
) -> None:
    """Raises unless the export in `folder` is sound; see `saved_model`.

    Args:
        folder: the SavedModel.
        checks: list of `SignatureCheck`. Without checks and records, only the
            ops of the graph are looked at.
        records: warm-up, list of `(signature, inputs)`: run, not compared.

    Raises:
        ValueError: the graph has ops that neither TensorFlow nor TensorFlow
            Text has.
        RuntimeError: the export does not load, or answers otherwise.
    """
    folder = local_path(folder, "folder")
    graph = _meta_graph(folder)
    runs = [(check.signature, check.inputs) for check in checks]
    runs += records
    with tempfile.TemporaryDirectory() as scratch:
        _write_request(scratch, folder, graph.signature_def, runs)
        done = _run_loader(scratch)
        _check_stock_ops(graph, scratch, done)
        if not runs:
            return
        _check_done(done)
        answers = [_answers(scratch, i) for i in range(len(checks))]
    for check, found in zip(checks, answers):
        check.check(found)


def _meta_graph(folder):
    with open(os.path.join(folder, "saved_model.pb"), "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    return saved.meta_graphs[0]


def _write_request(scratch, folder, signatures, runs):
    """Writes to `scratch` what the loader has to run."""
    request = {
        # No graph made here has their ops without an import of them.
        "libraries": text_libraries() if _TEXT in sys.modules else [],
        "model": os.path.abspath(folder),
        "runs": [],
    }
    for number, (key, inputs) in enumerate(runs):
        signature = signatures[key]
        outputs = sorted(signature.outputs.items())
        request["runs"].append(
            {
                "inputs": [signature.inputs[name].name for name in inputs],
                "outputs": {name: info.name for name, info in outputs},
            }
        )
        path = os.path.join(scratch, f"inputs_{number}.npz")
        np.savez(path, *inputs.values())
    with open(os.path.join(scratch, "request.json"), "w") as f:
        json.dump(request, f)


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


def ops_of(graph: Any) -> set[str]:
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
            "The graph of an export must have only ops of TensorFlow and "
            "TensorFlow Text, or TensorFlow Serving cannot load it. Received "
            f"a graph with: {foreign}. Replace the layer that uses them."
        )


def _check_done(done):
    if done.returncode:
        raise RuntimeError(
            _failure("The export does not load or run without tfxclass", done)
            + "\nIf the made-up inputs do not fit the model, give "
            "`example_inputs`."
        )


def _answers(scratch, number):
    path = os.path.join(scratch, f"outputs_{number}.npz")
    # Written by our own process: strings are arrays of objects.
    with np.load(path, allow_pickle=True) as outputs:
        return dict(outputs)


def _failure(what, done):
    said = done.stderr.strip()[-4000:]
    return f"{what} (exit status {done.returncode}): {said}"
