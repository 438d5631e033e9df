"""What the REST API answers: paths, models, and their status."""

import re
import time
import urllib.parse

from google.protobuf import json_format

from tfxclass_serve import errors
from tfxclass_serve import json_codec
from tfxclass_serve import kserve
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.folders import to_version
from tfxclass_serve.models import STATES

_WHERE = r"(?:/versions/(\d+)|/labels/([^/:]+))?"

_PREDICTION = re.compile(
    rf"(?i:/v1/models)/([^/:]+){_WHERE}:(?i:(classify|regress|predict))"
)

_STATUS = re.compile(rf"(?i:/v1/models)(?:/([^/:]+))?{_WHERE}(/metadata)?")


class RestApi:
    """Answers requests of the REST API; thread-safe.

    Args:
        models: `Models`.
        metrics: `Metrics`.
    """

    def __init__(self, models, metrics):
        self.models = models
        self.metrics = metrics

    def answer(self, method, path, body):
        """The document that answers; TensorFlowError if there is none."""
        if path == "/v2" or path.startswith("/v2/"):
            return self._kserve(method, path, body)
        pattern = _PREDICTION if method == "POST" else _STATUS
        found = pattern.fullmatch(path)
        if not found:
            raise errors.invalid(
                f"Malformed request: {method} {errors.short(path)}"
            )
        name, version, label, what = found.groups()
        if name is None:
            raise errors.invalid("Missing model name in request.")
        name = urllib.parse.unquote(name, errors="replace")
        label = label and urllib.parse.unquote(label, errors="replace")
        if version is not None:
            number = to_version(version)
            if number is None:
                raise errors.invalid(
                    f"Failed to convert version: {errors.short(version)} to "
                    "numeric."
                )
            version = number
        where = name, version, label
        if method == "GET":
            return self._metadata(where) if what else self._status(where)
        what = what.lower()
        return self._timed(
            what, where, lambda servable, _: _ANSWERS[what](servable, body)
        )

    def _kserve(self, method, path, body):
        if kserve.is_server_path(method, path):
            return kserve.about_server()
        name, version, what = kserve.parse(method, path)
        if what == "infer":
            return self._timed(
                "predict",
                (name, version),
                lambda servable, used: kserve.infer(servable, name, used, body),
            )
        with self.models.use(name, version) as (servable, used):
            return kserve.describe(servable, name, used)

    def _timed(self, what, where, answer):
        begin, status = time.perf_counter(), "INTERNAL"
        with self.models.use(*where) as (servable, version):
            try:
                result = answer(servable, version)
                status = "OK"
                return result
            except TensorFlowError as e:
                status = errors.NAMES.get(e.code, "UNKNOWN")
                raise
            finally:
                seconds = time.perf_counter() - begin
                api = what.capitalize()
                self.metrics.add(where[0], api, "REST", status, seconds)

    def _status(self, where):
        rows = self.models.status(*where)
        return {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": STATES[state],
                    "status": {
                        "error_code": errors.NAMES[errors.code_of(error)],
                        "error_message": (
                            "" if error is None else errors.message_of(error)
                        ),
                    },
                }
                for number, state, error in rows
            ]
        }

    def _metadata(self, where):
        with self.models.use(*where) as (servable, version):
            signatures = {
                key: json_format.MessageToDict(
                    signature,
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                )
                for key, signature in servable.signatures.items()
            }
        return {
            "model_spec": {
                "name": where[0],
                "signature_name": "",
                "version": str(version),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }


def _predict(servable, body):
    document = json_codec.parse_object(body)
    key = document.get("signature_name", "")
    infos = servable.signature(key).inputs
    inputs, is_rows = json_codec.predict_inputs(document, infos)
    return json_codec.predict_answer(servable.predict(key, inputs), is_rows)


def _classify(servable, body):
    document = json_codec.parse_object(body)
    examples = json_codec.examples_in(document, "classify")
    key = document.get("signature_name", "")
    return json_codec.classify_answer(*servable.classify(key, examples))


def _regress(servable, body):
    document = json_codec.parse_object(body)
    examples = json_codec.examples_in(document, "regress")
    key = document.get("signature_name", "")
    values = servable.regress(key, examples)
    return {"results": json_codec.to_lists(values)}


_ANSWERS = {"predict": _predict, "classify": _classify, "regress": _regress}
