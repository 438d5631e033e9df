"""A version of a model: its session, its signatures, its checks."""

import math
import os

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass_serve import c_loader
from tfxclass_serve.batching import Batcher
from tfxclass_serve.errors import NOT_FOUND
from tfxclass_serve.errors import invalid
from tfxclass_serve.errors import message_of
from tfxclass_serve.errors import short

DEFAULT_SIGNATURE = "serving_default"
_WARMUP = os.path.join("assets.extra", "tf_serving_warmup_requests")
_MOST_WARMUP_RECORDS = 1_000
_MOST_BYTES = 1 << 26


class Servable:
    """A loaded SavedModel.

    Args:
        api: `c_loader.CApi`.
        folder: the version's folder.
        batching: `Batching`, or None.
    """

    def __init__(self, api, folder, batching=None):
        with open(os.path.join(folder, "saved_model.pb"), "rb") as f:
            saved = saved_model_pb2.SavedModel.FromString(f.read())
        graphs = [
            graph
            for graph in saved.meta_graphs
            if list(graph.meta_info_def.tags) == ["serve"]
        ]
        if not graphs:
            raise c_loader.TensorFlowError(
                NOT_FOUND, f"{folder!r} has no graph with the tag 'serve'."
            )
        self.signatures = {
            key: signature
            for key, signature in graphs[0].signature_def.items()
            if signature.outputs
        }
        self._model = c_loader.Model(api, folder)
        self._batcher = Batcher(self._run, batching) if batching else None
        try:
            self._warm_up(folder)
        except BaseException:
            self.close()
            raise

    def close(self):
        """Frees the model; no request may be under way."""
        if self._batcher is not None:
            self._batcher.close()
        self._model.close()

    def signature(self, key):
        """The SignatureDef of `key`, or the default one."""
        key = key or DEFAULT_SIGNATURE
        if key not in self.signatures:
            raise invalid(
                f'Serving signature name: "{short(key)}" not found in '
                "signature def"
            )
        return self.signatures[key]

    def predict(self, key, inputs, output_filter=()):
        """Answers of a signature.

        Args:
            key: str; empty is the default.
            inputs: dict of arrays, strings as arrays of bytes objects; those
                with a default value in the signature may be missing.
            output_filter: names of the outputs wanted; empty is all.

        Returns:
            Dict of arrays.
        """
        signature = self.signature(key)
        inputs = _with_defaults(signature, inputs)
        _check_inputs(signature, inputs)
        outputs = sorted(output_filter) or sorted(signature.outputs)
        for name in outputs:
            if name not in signature.outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {short(name)}"
                )
        key = key or DEFAULT_SIGNATURE
        if self._batcher is None or not self._has_rows(key, outputs):
            return self._run(key, inputs, tuple(outputs))
        return self._batcher.run(key, inputs, tuple(outputs))

    def _has_rows(self, key, outputs):
        """Whether these outputs may have a row for each of the inputs."""
        told = self.signatures[key].outputs
        shapes = [tf.TensorShape(told[name].tensor_shape) for name in outputs]
        return all(x.rank is None or (x.rank and x[0] is None) for x in shapes)

    def _run(self, key, inputs, outputs):
        signature = self.signatures[key]
        feeds = [
            (signature.inputs[name].name, value)
            for name, value in inputs.items()
        ]
        fetches = [signature.outputs[name].name for name in outputs]
        return dict(zip(outputs, self._model.run(feeds, fetches)))

    def classify(self, key, examples):
        """`(classes, scores)` of serialised tf.Examples, a list of bytes.

        Either may be None, if the signature does not have it.
        """
        signature = self.signature(key)
        if list(signature.inputs) != ["inputs"] or not (
            {"classes", "scores"} & set(signature.outputs)
        ):
            raise invalid(
                "Expected a classification signature: one input 'inputs', "
                "outputs 'classes' or 'scores'. Signature "
                f"{key or DEFAULT_SIGNATURE!r} has the inputs "
                f"{sorted(signature.inputs)} and the outputs "
                f"{sorted(signature.outputs)}."
            )
        if not examples:
            raise invalid("Input is empty.")
        outputs = {"classes", "scores"} & set(signature.outputs)
        inputs = {"inputs": np.array(examples, object)}
        answers = self.predict(key, inputs, outputs)
        return answers.get("classes"), answers.get("scores")

    def regress(self, key, examples):
        """Values of serialised tf.Examples, float32 `[n]`."""
        signature = self.signature(key)
        sides = list(signature.inputs), list(signature.outputs)
        if sides != (["inputs"], ["outputs"]):
            raise invalid(
                "Expected a regression signature: one input 'inputs', one "
                "output 'outputs'. Signature "
                f"{key or DEFAULT_SIGNATURE!r} has the inputs "
                f"{sorted(sides[0])} and the outputs {sorted(sides[1])}."
            )
        if not examples:
            raise invalid("Input is empty.")
        inputs = {"inputs": np.array(examples, object)}
        values = self.predict(key, inputs)["outputs"]
        if values.shape not in [(len(examples),), (len(examples), 1)]:
            raise invalid(
                "Expected output Tensor shape to be either [batch_size] or "
                f"[batch_size, 1] but got {list(values.shape)}"
            )
        return values.reshape(-1)

    def _warm_up(self, folder):
        path = os.path.join(folder, _WARMUP)
        if not os.path.exists(path):
            return
        from tensorflow_serving.apis import prediction_log_pb2

        records = tf.data.TFRecordDataset(path).as_numpy_iterator()
        for number, record in enumerate(records):
            if number == _MOST_WARMUP_RECORDS:
                raise invalid("Number of warmup records exceeds the maximum.")
            self._replay(prediction_log_pb2.PredictionLog.FromString(record))

    def _replay(self, log):
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            request = log.predict_log.request
            key = request.model_spec.signature_name
            inputs = {k: to_array(v) for k, v in request.inputs.items()}
            self.predict(key, inputs, request.output_filter)
        elif kind == "classify_log":
            request = log.classify_log.request
            key = request.model_spec.signature_name
            self.classify(key, examples_of(request.input))
        elif kind == "regress_log":
            request = log.regress_log.request
            key = request.model_spec.signature_name
            self.regress(key, examples_of(request.input))
        else:
            raise invalid(f"A warm-up record of type {kind} is not supported.")


def to_array(tensor, most_bytes=_MOST_BYTES):
    """Array of a TensorProto, strings as bytes objects.

    Args:
        most_bytes: int, that it may stand for, TensorFlow's own of a string
            counted.
    """
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    try:
        dtype = tf.as_dtype(tensor.dtype)
    except TypeError as e:
        raise invalid(f"tensor parsing error: {message_of(e)}") from e
    each = dtype.size
    # One value may stand for all: what is sent does not bound what is made.
    if dtype == tf.string:
        each = c_loader.STRING_SIZE
        if len(tensor.string_val) == 1:
            each += len(tensor.string_val[0])
    if min(sizes, default=0) < 0 or math.prod(sizes) * each > most_bytes:
        raise invalid(
            f"A tensor may not have the shape {sizes}: as {dtype.name} it "
            f"takes more than {most_bytes} bytes."
        )
    try:
        return tf.make_ndarray(tensor)
    # What it may raise is not documented: KeyError and OverflowError, too.
    except Exception as e:
        raise invalid(f"tensor parsing error: {message_of(e)}") from e


def examples_of(proto):
    """Serialised tf.Examples of an Input proto, list of bytes."""
    if proto.WhichOneof("kind") == "example_list_with_context":
        given = proto.example_list_with_context
        merged = []
        for example in given.examples:
            whole = type(example)()
            whole.CopyFrom(given.context)
            whole.MergeFrom(example)
            merged.append(whole)
    else:
        merged = proto.example_list.examples
    return [example.SerializeToString() for example in merged]


def _with_defaults(signature, inputs):
    """`inputs`, and those that the signature has a value for."""
    missing = set(signature.defaults) - set(inputs)
    others = {name: to_array(signature.defaults[name]) for name in missing}
    return {**others, **inputs}


def _check_inputs(signature, inputs):
    wanted = set(signature.inputs)
    if set(inputs) != wanted:
        raise invalid(
            f"input size does not match signature: {len(inputs)}!="
            f"{len(wanted)}. Sent extra: "
            f"{short(str(sorted(set(inputs) - wanted)))}. "
            f"Missing but required: {sorted(wanted - set(inputs))}."
        )
    for name, value in inputs.items():
        info = signature.inputs[name]
        dtype = tf.as_dtype(info.dtype)
        if tf.as_dtype(value.dtype) != dtype:
            raise invalid(
                f"Input {name!r} must be {dtype.name}. Received: "
                f"{tf.as_dtype(value.dtype).name}."
            )
        shape = tf.TensorShape(info.tensor_shape)
        if not shape.is_compatible_with(value.shape):
            raise invalid(
                f"Input {name!r} must have shape {shape}. Received: "
                f"{value.shape}."
            )
