"""What the gRPC API answers: PredictionService and ModelService."""

import logging
import threading
import time

import grpc
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis import regression_pb2

from tfxclass_serve import errors
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.model_config import sources_of
from tfxclass_serve.servable import examples_of
from tfxclass_serve.servable import to_array

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger("tfxclass_serve")


def _where(spec):
    """`(name, version, label)` of a ModelSpec."""
    kind = spec.WhichOneof("version_choice")
    if not spec.name:
        raise errors.invalid("Missing ModelSpec")
    return (
        spec.name,
        spec.version.value if kind == "version" else None,
        spec.version_label if kind == "version_label" else None,
    )


class OpenCalls:
    """Counts the calls whose answers have not left yet."""

    def __init__(self):
        self._count, self._changed = 0, threading.Condition()

    def add(self, context):
        """Counts the call of `context` until it has ended."""
        with self._changed:
            self._count += 1
        if not context.add_callback(self._note_end):
            self._note_end()

    def _note_end(self):
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_for_none(self, seconds):
        """Whether there are none, within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, seconds)


def _guarded(method):
    """A method whose exceptions become the status of the call."""

    def call(self, request, context):
        self._calls.add(context)
        try:
            return method(self, request)
        except TensorFlowError as e:
            code = _CODES.get(e.code, grpc.StatusCode.INTERNAL)
            context.abort(code, errors.message_of(e))
        except Exception as e:  # A bug of ours: the server goes on.
            _log.exception("A request failed.")
            context.abort(grpc.StatusCode.INTERNAL, errors.message_of(e))

    return call


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict, Classify, Regress, MultiInference and GetModelMetadata.

    Args:
        models, metrics: `Models`, `Metrics`.
        calls: `OpenCalls`.
        most_bytes: int, that a tensor of a request may stand for.
    """

    def __init__(self, models, metrics, calls, most_bytes):
        self._models = models
        self._metrics = metrics
        self._calls = calls
        self._most_bytes = most_bytes

    @_guarded
    def Predict(self, request):
        return self._timed("Predict", request.model_spec, request, self._ask)

    @_guarded
    def Classify(self, request):
        return self._timed("Classify", request.model_spec, request, _classify)

    @_guarded
    def Regress(self, request):
        return self._timed("Regress", request.model_spec, request, _regress)

    @_guarded
    def MultiInference(self, request):
        return self._timed(
            "MultiInference", _model_of(request.tasks), request, _several
        )

    @_guarded
    def GetModelMetadata(self, request):
        asked = set(request.metadata_field)
        if asked != {"signature_def"}:
            told = errors.short(str(sorted(asked)))
            raise errors.invalid(
                "GetModelMetadataRequest must have the metadata_field "
                f"'signature_def'. Received: {told}."
            )
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        where = _where(request.model_spec)
        with self._models.use(*where) as (servable, version):
            for key, signature in servable.signatures.items():
                signatures.signature_def[key].CopyFrom(signature)
        response.model_spec.name = where[0]
        response.model_spec.version.value = version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _ask(self, servable, request):
        key = request.model_spec.signature_name
        inputs = {
            name: to_array(x, self._most_bytes)
            for name, x in request.inputs.items()
        }
        answers = servable.predict(key, inputs, request.output_filter)
        response = predict_pb2.PredictResponse()
        for name, value in answers.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response

    def _timed(self, api, spec, request, answer):
        begin, status, where = time.perf_counter(), "INTERNAL", _where(spec)
        with self._models.use(*where) as (servable, version):
            try:
                response = answer(servable, request)
                status = "OK"
            except TensorFlowError as e:
                status = errors.NAMES.get(e.code, "UNKNOWN")
                raise
            finally:
                seconds = time.perf_counter() - begin
                self._metrics.add(where[0], api, "GRPC", status, seconds)
        if api == "MultiInference":
            told = [result.model_spec for result in response.results]
        else:
            told = [response.model_spec]
            told[0].signature_name = spec.signature_name
        for one in told:
            one.name = spec.name
            one.version.value = version
        return response


def _model_of(tasks):
    """The ModelSpec that tasks have in common, but for the signature."""
    if any(not task.model_spec.name for task in tasks):
        raise errors.invalid("Found ModelSpec with an empty model name.")
    if not tasks or len({_where(task.model_spec) for task in tasks}) > 1:
        raise errors.invalid(
            "All ModelSpecs in a MultiInferenceRequest must access the same "
            "model name, one at least."
        )
    return tasks[0].model_spec


def _several(servable, request):
    methods = {
        tf.saved_model.CLASSIFY_METHOD_NAME: _add_classes,
        tf.saved_model.REGRESS_METHOD_NAME: _add_values,
    }
    response = inference_pb2.MultiInferenceResponse()
    examples, asked = examples_of(request.input), set()
    for task in request.tasks:
        key = task.model_spec.signature_name
        if key in asked:
            raise errors.invalid(
                f"Duplicate evaluation of signature: {errors.short(key)}"
            )
        asked.add(key)
        if task.method_name not in methods:
            raise errors.unimplemented(
                "Unsupported signature method_name: "
                f"{errors.short(task.method_name)}"
            )
        result = response.results.add()
        result.model_spec.signature_name = key
        methods[task.method_name](servable, key, examples, result)
    return response


def _regress(servable, request):
    examples = examples_of(request.input)
    key = request.model_spec.signature_name
    response = regression_pb2.RegressionResponse()
    values = servable.regress(key, examples)
    response.result.regressions.extend(map(_regression, values))
    return response


def _regression(value):
    return regression_pb2.Regression(value=value)


def _add_values(servable, key, examples, result):
    values = servable.regress(key, examples)
    result.regression_result.regressions.extend(map(_regression, values))


def _classify(servable, request):
    key = request.model_spec.signature_name
    response = classification_pb2.ClassificationResponse()
    examples = examples_of(request.input)
    _write_classes(*servable.classify(key, examples), response.result)
    return response


def _add_classes(servable, key, examples, result):
    found = servable.classify(key, examples)
    _write_classes(*found, result.classification_result)


def _write_classes(classes, scores, found):
    """Writes arrays, of which one may be None, to a ClassificationResult."""
    for row in range(len(scores if classes is None else classes)):
        result = found.classifications.add()
        for place in range((scores if classes is None else classes).shape[1]):
            one = result.classes.add()
            if classes is not None:
                label = classes[row, place]
                one.label = label.decode("utf-8", errors="replace")
            if scores is not None:
                one.score = scores[row, place]


class Management(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus and HandleReloadConfigRequest."""

    def __init__(self, models, calls):
        self._models = models
        self._calls = calls

    @_guarded
    def GetModelStatus(self, request):
        response = get_model_status_pb2.GetModelStatusResponse()
        for row in self._models.status(*_where(request.model_spec)):
            version, state, error = row
            one = response.model_version_status.add(
                version=version, state=state
            )
            one.status.error_code = errors.code_of(error)
            one.status.error_message = (
                "" if error is None else errors.message_of(error)
            )
        return response

    @_guarded
    def HandleReloadConfigRequest(self, request):
        if not request.config.HasField("model_config_list"):
            raise errors.invalid("The config must have a model_config_list.")
        self._models.configure(sources_of(request.config))
        return model_management_pb2.ReloadConfigResponse()
