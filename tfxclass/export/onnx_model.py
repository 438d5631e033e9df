"""`onnx`: a trained classifier as a model of ONNX Runtime."""

import importlib.util
import io
import logging
import os
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Literal

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_k
from tfxclass.export import checks
from tfxclass.export import compare
from tfxclass.export import example_inputs as example_inputs_lib
from tfxclass.export import labels as labels_lib
from tfxclass.export import onnx_graph
from tfxclass.export import searches
from tfxclass.export import signatures
from tfxclass.export import version_folder
from tfxclass.inference import filters
from tfxclass.inference.graph import check_plain_logits
from tfxclass.inference.graph import encoder_of
from tfxclass.keras_internals import called_graphs
from tfxclass.keras_internals import with_constants
from tfxclass.types import Path

OPSET = 18
MODEL = "model.onnx"


def onnx(
    model: keras.Model,
    path: Path,
    top_k: int = 10,
    labels: Sequence[str] | Path | Literal[False] | None = None,
    verify: bool = True,
    example_inputs: Any = None,
    exclude: bool = False,
    only: bool = False,
) -> str:
    """Exports a model to ONNX, with the best classes of each request.

    Use it to answer requests with ONNX Runtime, without TensorFlow. The folder
    `path` appears complete or not at all, with these files:

    - `model.onnx` (opset 18), whose path is returned, from the inputs by their
      Keras names to `ids` (int64) and `scores` (float32), `[batch, top_k]`,
      best first.
    - `classes.bin`, the class matrix, which may be larger than the 2 GB limit
      of a protocol buffer.
    - `labels.txt`, with `labels`: the name of class i in line i.

    A request needs memory for `[batch, num_classes]` logits. Layers that
    compute in float16 or bfloat16 are float32 in the export. Where a score is
    NaN, the id is -1 and the score 0. It needs `pip install tf2onnx onnx
    onnxruntime`.

    Args:
        model: as for `saved_model`, with one class vector for each class. ONNX
            has no ops for text, so the inputs have to be numbers.
        path: str, folder to make. It must not exist.
        top_k: int, number of classes in an answer.
        labels: as for `saved_model`.
        verify: bool, whether to compare the answers of ONNX Runtime with the
            model's.
        example_inputs: inputs for `verify`; see `saved_model`.
        exclude, only: bool, whether to add an input `exclude_ids` or `only_ids`
            as `tfxclass.top_k` does. Not for sequences of features.

    Raises:
        ValueError: if an argument is out of range, the head is of another kind,
            an input has the name of an output, or ONNX does not have an op.
        RuntimeError: if the export answers differently.
        ImportError: if the extra is not installed.
    """
    check_extra()
    path = version_folder.new_path(path)
    encoder, head = encoder_of(model)
    top_k = check_k(top_k, head.num_answers, "top_k")
    check_plain_logits("ONNX export", head, "Use tfxclass.export.saved_model.")
    given = filters.single_filter(head, encoder, bool(exclude), only)
    encoder = example_inputs_lib.served_encoder(encoder)
    _check_names(encoder.inputs)
    if given is not None and len(encoder.output.shape) > 2:
        raise ValueError(
            f"`{given.kind}` needs features [batch, dim] in an ONNX model. "
            f"Received: features of shape {encoder.output.shape}"
        )
    names = labels_lib.of_head(labels, head)
    examples = example_inputs_lib.examples(encoder.inputs, example_inputs)
    signature = signatures.Signature(signatures.DEFAULT, top_k, given)
    tensors = onnx_graph.tensors_of(*head.export_weights())
    with progress.log_if_slow("Converting the model"):
        converted = _convert(encoder, head, tensors, signature)
    with version_folder.new_folder(path) as folder:
        file = _write(folder, converted, tensors)
        labels_lib.write(names, folder)
        if verify:
            with progress.log_if_slow("Comparing the answers"):
                _verify(file, encoder, head, signature, examples)
    return os.path.join(path, MODEL)


def check_extra() -> None:
    """Raises ImportError unless ONNX models can be written and asked."""
    extra = ("tf2onnx", "onnx", "onnxruntime")
    missing = [name for name in extra if not importlib.util.find_spec(name)]
    if missing:
        raise ImportError(
            "ONNX models need tf2onnx, onnx and onnxruntime. Received: no "
            f"{', '.join(missing)}. Fix: pip install {' '.join(extra)}"
        )


def _check_names(inputs):
    taken = {x.name for x in inputs} & {"ids", "scores"}
    if taken:
        raise ValueError(
            "An input of an ONNX model must not have the name of an output. "
            f"Received: {sorted(taken)}. Name it by keras.Input(name=...)."
        )


def _convert(encoder, head, tensors, signature):
    """ModelProto from the inputs, and the class vectors, to the answers."""
    specs = signature.specs(encoder)
    asked, count = len(specs), len(encoder.inputs)
    for name, x in tensors.items():
        specs.append(tf.TensorSpec(x.shape, x.dtype, name=name))

    def answer(*inputs):
        features = signatures.encode(encoder, inputs[:count])
        search = onnx_graph.OnnxSearch(head, *inputs[asked:])
        return search.answer(signature, features, *inputs[count:asked])

    return convert(answer, specs)


def convert(
    function: Callable[..., Any],
    specs: list[tf.TensorSpec],
    outputs: Sequence[str] = ("ids", "scores"),
) -> Any:
    """ModelProto of a function of tensors with names, to a list of tensors."""
    import tf2onnx

    traced = tf.function(function, specs, autograph=False)
    concrete = traced.get_concrete_function()
    _check_no_text(concrete.graph)
    # tf2onnx takes tensors that a function has captured for inputs.
    with checks.without_warnings():
        constant = with_constants(concrete)
    inputs = [x.name for x in constant.inputs]
    found = [x.name for x in constant.outputs]
    names = [spec.name for spec in specs]
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("tf2onnx")
    logger.addHandler(handler)
    try:
        with checks.without_warnings(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, _ = tf2onnx.convert.from_graph_def(
                constant.graph.as_graph_def(),
                input_names=inputs,
                output_names=found,
                opset=OPSET,
                custom_op_handlers=onnx_graph.HANDLERS,
                tensors_to_rename=dict(
                    zip([*inputs, *found], [*names, *outputs])
                ),
            )
    except Exception as e:
        raise ValueError(
            f"tf2onnx does not convert the model: {e}. {said.getvalue()}"
        ) from e
    finally:
        logger.removeHandler(handler)
    _check_ops(model)
    onnx_graph.to_float32(model.graph)
    return model


def _check_no_text(graph):
    found = {
        op.type
        for part in (graph, *called_graphs(graph))
        for op in part.get_operations()
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


def _check_ops(model):
    import onnx

    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    foreign = {node.op_type for node in model.graph.node} - known
    if foreign:
        raise ValueError(
            "tf2onnx does not convert these ops of the model: "
            f"{sorted(foreign)}. Replace the layers that use them."
        )


def _write(folder, model, tensors):
    """Writes the model, and its class vectors to a file of their own."""
    import onnx

    onnx_graph.finish_products(model.graph)
    onnx_graph.write_tensors(model.graph, folder, tensors)
    path = os.path.join(folder, MODEL)
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    onnx.checker.check_model(path)
    return path


def _verify(path, encoder, head, signature, examples):
    """Raises RuntimeError unless ONNX Runtime answers as the model does."""
    model = compare.Reference(encoder, searches.ModelSearch(head), examples)
    features = model.features()
    if compare.feature_error(encoder):
        # The model computes them in 16 bits, and its export in float32.
        embed = signatures.Signature(signatures.EMBED)
        encoded = convert(
            lambda *inputs: [signatures.encode(encoder, inputs)],
            embed.specs(encoder),
            ["features"],
        )
        answers = _ask(encoded.SerializeToString(), model.inputs, ["features"])
        features = answers["features"]
    model.check_features(features)
    answers = _ask(path, model.request(signature).inputs, ["ids", "scores"])
    model.check(signature, answers, features)


def _ask(model, inputs, outputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model, providers=["CPUExecutionProvider"]
    )
    return dict(zip(outputs, session.run(outputs, inputs)))
