"""Models that the tests of the server serve, and ways to ask it."""

import http.client
import importlib.util
import json
import socket

import keras
import numpy as np
import pytest

import tfxclass
from tests.support.helpers import make_text_model

NUM_CLASSES = 50
NAMES = [f"name {i} \u00e9" for i in range(NUM_CLASSES)]
X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def make_model():
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,), name="x"), keras.layers.Dense(8)]
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    return keras.Sequential([*layers, head])


def make_pair_model():
    """Two inputs; answers fail where an id is out of range."""
    keras.utils.set_random_seed(0)
    a = keras.Input((2,), name="a")
    b = keras.Input((), dtype="int64", name="b")
    features = keras.layers.Concatenate()([a, keras.layers.Embedding(4, 2)(b)])
    return keras.Model([a, b], tfxclass.layers.FullSoftmax(9)(features))


def has_grpc():
    names = ("grpc", "tensorflow_serving")
    return all(importlib.util.find_spec(name) for name in names)


needs_grpc = pytest.mark.skipif(
    not has_grpc(), reason="the packages of gRPC are not installed"
)


def export_models(root):
    """Exports three models to the folder `root`."""
    export = tfxclass.export.saved_model
    export(
        make_model(),
        root / "numbers",
        top_k=3,
        verify=False,
        full_scores=True,
        warmup_batch_sizes=[1, 2] if has_grpc() else [],
    )
    text = make_text_model(NUM_CLASSES)
    export(text, root / "words", top_k=3, labels=NAMES, verify=False)
    pairs = make_pair_model()
    export(pairs, root / "pairs", 2, verify=False, exclude=3, only=True)


def call(server, method, path, body=None, headers=()):
    """`(status, document)` of a request."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.rest.port, timeout=30
    )
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)


def predict(server, body, model="numbers"):
    return call(server, "POST", f"/v1/models/{model}:predict", body)


def assert_refused(answer, status, message):
    assert answer[0] == status, answer
    assert list(answer[1]) == ["error"]
    assert message in answer[1]["error"]


def raw(server, data, wait=5.0):
    """What is answered to these bytes, until the end."""
    address = "127.0.0.1", server.rest.port
    with socket.create_connection(address, timeout=wait) as connection:
        connection.sendall(data)
        return read_all(connection)


def read_all(connection):
    """The bytes that come, until the other side ends."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)
