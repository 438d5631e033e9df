"""The clients and the manifests of serving/."""

import json
import os
import pathlib
import re
import threading
from http import server
from urllib import parse
from urllib import request

import pytest
import tensorflow as tf

from serving import annif_backend
from serving import demo

SERVING = pathlib.Path(__file__).resolve().parents[2] / "serving"


def test_clients_agree(dictionary_folder, monkeypatch, capfd):
    pytest.importorskip("tensorflow_serving")
    # The clients are processes, which import our packages, too.
    path = os.pathsep.join([str(SERVING.parent), os.getenv("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    demo.main(str(dictionary_folder), "a tool", "nails")
    printed = capfd.readouterr()
    # Nothing but what its user reads.
    assert printed.err == ""
    _, rest, grpc = re.split(r"serving/.*\.py\n", printed.out)
    rest, grpc = rest.strip(), grpc.partition("\nTo go on")[0].strip()
    assert rest == grpc
    assert [x for x in rest.splitlines() if x[0] != " "] == ["a tool", "nails"]
    assert len(re.findall(r"\n  0\.\d\d\d  word\d+ \u00e9", rest)) == 6


@pytest.mark.parametrize("name", ["docker-compose.yml", "kubernetes.yaml"])
def test_manifests_name_the_files_of_config(name):
    text = (SERVING / name).read_text(encoding="utf-8")
    named = set(re.findall(r"/models/config/(\S+)", text))
    assert named == {path.name for path in (SERVING / "config").iterdir()}
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all(text))
    (container,) = (
        documents[0]["spec"]["template"]["spec"]["containers"]
        if "kind" in documents[0]
        else documents[0]["services"].values()
    )
    assert container["image"].startswith("tensorflow/serving:")
    flags = container.get("args") or container["command"]
    assert "--enable_batching=true" in flags


def test_the_models_of_config_are_read():
    pytest.importorskip("tensorflow_serving")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    page = (SERVING / "README.md").read_text(encoding="utf-8")
    added = re.findall(r"```text\n(.*?)```", page, re.S)
    text = (SERVING / "config" / "models.config").read_text(encoding="utf-8")
    for lines in ["", *added]:
        server = text_format.Parse(
            text.replace("model_platform:", f"{lines} model_platform:"),
            model_server_config_pb2.ModelServerConfig(),
        )
        (config,) = server.model_config_list.config
        assert config.base_path == f"/models/{config.name}"
    assert dict(config.version_labels) == {"stable": 3, "canary": 4}
    assert config.model_version_policy.specific.versions == [3, 4]


def test_annif_backend():
    """What Annif sends to its `http` backend, and what it takes."""
    http = server.HTTPServer(("127.0.0.1", 0), annif_backend.Handler)
    http.model = lambda text: {
        "labels": tf.constant([["uri:a", "uri:b", ""]]),
        "scores": tf.constant(
            [[0.75, 0.5 if text[0] == b"a & b" else 0.0, 0.0]]
        ),
    }
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}/suggest"
    form = parse.urlencode({"text": "a & b", "project": "p", "limit": 2})
    with http, request.urlopen(url) as told:
        with request.urlopen(url, form.encode()) as answer:
            found = json.load(answer)
        assert json.load(told) == {"is_trained": True}
        http.shutdown()
    best = [{"uri": "uri:a", "score": 0.75}, {"uri": "uri:b", "score": 0.5}]
    assert found == {"results": best}
