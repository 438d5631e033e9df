"""Status, metadata, versions, metrics: what is where."""

import http.client

import pytest
from prometheus_client import parser

from tests.support.serving_cases import X
from tests.support.serving_cases import assert_refused
from tests.support.serving_cases import call
from tests.support.serving_cases import predict


class TestPaths:
    def test_status(self, server):
        assert call(server, "GET", "/v1/models/numbers") == (
            200,
            {
                "model_version_status": [
                    {
                        "version": "1",
                        "state": "AVAILABLE",
                        "status": {"error_code": "OK", "error_message": ""},
                    }
                ]
            },
        )

    def test_metadata(self, server):
        status, answer = call(server, "GET", "/v1/models/words/metadata")
        assert status == 200
        assert answer["model_spec"] == {
            "name": "words",
            "signature_name": "",
            "version": "1",
        }
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        assert {"serving_default", "classify", "embed"} <= set(signatures)
        inputs = signatures["serving_default"]["inputs"]
        assert inputs["text"]["dtype"] == "DT_STRING"
        assert inputs["text"]["tensor_shape"]["dim"][0]["size"] == "-1"

    def test_versions(self, server):
        body = {"instances": X.tolist()}
        path = "/v1/models/numbers/versions/1:predict"
        assert call(server, "POST", path, body) == predict(server, body)
        assert call(server, "GET", "/V1/Models/numbers/versions/1")[0] == 200
        answer = call(server, "POST", path.replace("1:", "2:"), body)
        assert_refused(
            answer, 404, "Servable not found for request: Specific(numbers, 2)"
        )

    @pytest.mark.parametrize(
        "method, path, status, message",
        [
            ("POST", "/v1/models/no:predict", 404, "request: Latest(no)"),
            ("POST", "/v1/models/numbers/labels/no:predict", 400, "label: no"),
            ("POST", "/v1/models/numbers:no", 400, "Malformed request: POST"),
            ("POST", "/v1/models/numbers", 400, "Malformed request: POST"),
            ("POST", "/", 400, "Malformed request: POST /"),
            ("GET", "/v1/models", 400, "Missing model name in request."),
            ("GET", "/v1/models/no", 404, "any versions of model no"),
            ("GET", "/v1/models/numbers/versions/7", 404, "numbers version 7"),
            ("GET", "/v1/models/numbers/versions/-1", 400, "Malformed"),
            (
                "GET",
                "/v1/models/numbers/versions/" + "9" * 30,
                400,
                "to numeric",
            ),
            ("GET", "/v1/models/..%2f..%2fetc", 404, "any versions"),
            ("GET", "/../../etc/passwd", 400, "Malformed request: GET"),
            ("GET", "/v1/models/../numbers", 400, "Malformed request"),
            ("GET", "/v1/models/%00%ff", 404, "any versions"),
        ],
    )
    def test_errors(self, server, method, path, status, message):
        body = {"inputs": 1} if method == "POST" else None
        assert_refused(call(server, method, path, body), status, message)

    def test_metrics(self, server):
        predict(server, {"instances": X.tolist()})
        predict(server, {})
        predict(server, {}, "no")  # Names of clients are not counted.
        connection = http.client.HTTPConnection("127.0.0.1", server.rest.port)
        connection.request("GET", "/monitoring/prometheus/metrics")
        response = connection.getresponse()
        page = response.read().decode()
        assert response.getheader("Content-Type").startswith("text/plain")
        connection.close()
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(page)
            for sample in family.samples
        }
        model = ("model_name", "numbers")
        name = ":tensorflow:serving:request_count"
        assert samples[name, model, ("status", "INVALID_ARGUMENT")] >= 1
        name = ":tensorflow:serving:request_latency_count"
        labels = ("API", "Predict"), ("entrypoint", "REST"), model
        assert samples[(name, *labels)] >= 2
        assert '"no"' not in page

    @pytest.mark.parametrize(
        "method, path",
        [
            ("POST", "/v1/models/%s:predict"),
            ("GET", "/v1/models/%s"),
            ("GET", "/%s"),
            ("POST", "/v1/models/numbers/labels/%s:predict"),
            ("GET", "/v1/models/numbers/versions/%s"),
        ],
    )
    def test_long_names_are_not_echoed(self, server, method, path):
        path %= "7" * 20_000
        body = {} if method == "POST" else None
        status, answer = call(server, method, path, body)
        assert status in (400, 404)
        assert len(answer["error"]) < 250

    def test_long_names_in_bodies_are_not_echoed(self, server):
        name = "x" * 20_000
        for body in (
            {"signature_name": name, "instances": [1]},
            {"instances": [{name: 1}]},
            {"instances": name},
        ):
            status, answer = predict(server, body)
            assert status == 400
            assert len(answer["error"]) < 400

    def test_the_largest_version(self, server):
        path = f"/v1/models/numbers/versions/{2**63 - 1}"
        assert_refused(call(server, "GET", path), 404, f"version {2**63 - 1}")
        path = f"/v1/models/numbers/versions/{2**63}"
        assert_refused(call(server, "GET", path), 400, "to numeric")
        path = "/v1/models/numbers/versions/" + "0" * 30 + "1"
        assert call(server, "GET", path)[0] == 200
