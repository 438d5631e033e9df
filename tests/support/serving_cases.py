"""Models that the tests of the server serve, and ways to ask it."""

import http.client
import importlib.util
import json
import os
import shutil
import socket
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

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


def serialize(inputs):
    """Rows of a dict of arrays as serialized tf.Examples, list of bytes."""
    found = []
    for row in zip(*inputs.values()):
        example = tf.train.Example()
        for name, values in zip(inputs, row):
            feature = example.features.feature[name]
            values = np.ravel(values)
            if values.dtype == object:
                feature.bytes_list.value.extend(values)
            else:
                feature.float_list.value.extend(values)
        found.append(example.SerializeToString())
    return found


def add_classify(folder, features):
    """Adds a signature of the Classify API to an export, for tf.Examples."""
    loaded = tf.saved_model.load(folder)
    serve = loaded.signatures["serving_default"]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def classify(inputs):
        answers = serve(**tf.io.parse_example(inputs, features))
        classes = answers.get("labels")
        if classes is None:
            classes = tf.strings.as_string(answers["ids"])
        return {"classes": classes, "scores": answers["scores"]}

    loaded.classify = classify
    signatures = {**loaded.signatures, "classify": classify}
    with tempfile.TemporaryDirectory() as scratch:
        tf.saved_model.save(loaded, scratch, signatures=signatures)
        shutil.copytree(scratch, folder, dirs_exist_ok=True)
    path = os.path.join(folder, "saved_model.pb")
    with open(path, "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    signature = saved.meta_graphs[0].signature_def["classify"]
    signature.method_name = tf.saved_model.CLASSIFY_METHOD_NAME
    with open(path, "wb") as f:
        f.write(saved.SerializeToString())


def export_models(root):
    """Exports three models to the folder `root`."""
    export = tfxclass.export.saved_model
    numbers = export(
        make_model(),
        root / "numbers",
        top_k=3,
        verify=False,
        full_scores=True,
        warmup_batch_sizes=[1, 2] if has_grpc() else [],
    )
    add_classify(numbers, {"x": tf.io.FixedLenFeature([3], tf.float32)})
    text = make_text_model(NUM_CLASSES)
    words = export(text, root / "words", top_k=3, labels=NAMES, verify=False)
    add_classify(words, {"text": tf.io.FixedLenFeature([], tf.string)})
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
