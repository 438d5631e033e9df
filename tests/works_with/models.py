"""What each program is given: a function for each, named after it.

`ask` runs the program's script in its environment.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
import warnings

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass_serve.server import Server

DIM, CLASSES, K = 64, 20_000, 10
SUBJECT = "http://example.org/subject/"


def _model():
    """A model whose head has a bias, and an input without a name."""
    keras.utils.set_random_seed(0)
    head = tfxclass.layers.SampledSoftmax(CLASSES, use_bias=True)
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM), head]
    )
    head.kernel.assign(0.1 * np.random.normal(size=head.kernel.shape))
    head.bias.assign(np.random.normal(size=CLASSES))
    model.predict(np.zeros([1, DIM]), verbose=0)  # Keras' export needs a call.
    return model


def _questions(folder, model):
    x = np.random.normal(size=[64, DIM]).astype("float32")
    ids, scores = tfxclass.top_k(model, K).predict(x, verbose=0)
    np.savez(folder / "head.npz", x=x, ids=ids, scores=scores)


def _head(folder):
    """Exports of a head, and questions with our answers."""
    model = _model()
    _questions(folder, model)
    export = tfxclass.export
    lists = export.InvertedLists(min_recall=0.5, portable=True)
    export.saved_model(model, folder / "head", K, verify=False)
    export.onnx(model, folder / "head_onnx", K, verify=False)
    export.saved_model(
        model,
        folder / "head_int8",
        K,
        verify=False,
        quantize="int8",
        min_recall=0.5,
    )
    names = [f"class {i}" for i in range(CLASSES)]
    export.saved_model(model, folder / "named", K, names, verify=False)
    path = export.saved_model(
        model, folder / "lists", K, search=lists, verify=False
    )
    serve = tf.saved_model.load(path).signatures["serving_default"]
    x = np.load(folder / "head.npz")["x"]
    np.savez(folder / "lists.npz", **serve(features=tf.constant(x)))
    return model


def _tagger():
    """`(tagger, texts)`; the tags are URIs."""
    random = np.random.default_rng(0)
    tags = random.integers(0, 30, 1_500)
    words = np.array([f"word{i}" for i in range(400)])
    texts = [" ".join(random.choice(words[12 * t :][:30], 8)) for t in tags]
    tagger = tfxclass.text.Tagger(effort="fast", verbose=False)
    tagger.fit(texts, [[f"{SUBJECT}{t}"] for t in tags])
    return tagger, texts[:64]


def _tagged(folder):
    """Exports of a Tagger, and texts with our answers."""
    tagger, texts = _tagger()
    tagger.export(folder / "tagger", k=K)
    path = tagger.export_onnx(folder / "tagger_onnx", k=K)
    names = open(os.path.join(os.path.dirname(path), "labels.txt")).read()
    names = names.splitlines()
    found = [
        [names.index(name) for name, _ in answer]
        for answer in tagger.predict(texts, k=K)
    ]
    ids, values = tagger.features(texts)
    np.savez(
        folder / "tagger.npz", texts=texts, ids=ids, values=values, best=found
    )


def torch(folder, ask):
    """A linear layer of PyTorch becomes a head."""
    ask("torch", folder)
    given = np.load(folder / "linear.npz")
    head = tfxclass.layers.FullSoftmax(len(given["bias"]), use_bias=True)
    model = keras.Sequential([keras.Input([given["x"].shape[1]]), head])
    tfxclass.set_class_vectors(
        model, given["weight"], given["bias"], class_axis=0
    )
    error = np.abs(model.predict(given["x"], verbose=0) - given["y"]).max()
    print(f"  probabilities differ by {error:.1e} at most")


def openvino(folder, ask):
    _head(folder)
    _tagged(folder)
    ask("openvino", folder)


def litert(folder, ask):
    _head(folder).export(
        folder / "keras.tflite", format="litert", verbose=False
    )
    for name in ("head", "head_int8", "lists"):
        for kind, options in (("float32", []), ("int8", ["DEFAULT"])):
            path = folder / f"{name} {kind}.tflite"
            try:
                path.write_bytes(_converted(folder / name / "1", options))
            except Exception as e:
                print(f"  {path.stem} is not converted: {type(e).__name__}")
    ask("litert", folder)


def _converted(folder, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `tf.lite` moves to ai_edge_litert.
        converter = tf.lite.TFLiteConverter.from_saved_model(
            str(folder), signature_keys=["serving_default"]
        )
        converter.optimizations = [
            getattr(tf.lite.Optimize, x) for x in options
        ]
        return converter.convert()


def onnx(folder, ask):
    """Keras' own ONNX, and a tokenizer before ours."""
    model = _model()
    _questions(folder, model)
    path = folder / "keras.onnx"
    model.export(path, format="onnx", verbose=False)
    tokens = keras.Input([None], dtype="int64", name="tokens")
    encoder = keras.layers.Embedding(100, DIM)(tokens)
    pooled = keras.layers.GlobalAveragePooling1D()(encoder)
    words = keras.Model(tokens, tfxclass.layers.FullSoftmax(50)(pooled))
    tfxclass.export.onnx(words, folder / "words", K)
    # What the tokenizer makes of "red wine", between [CLS] and [SEP].
    ids, _ = tfxclass.top_k(words, K).predict(
        np.array([[2, 4, 5, 3]]), verbose=0
    )
    np.save(folder / "words.npy", ids)
    ask("onnx", folder)


def clients(folder, ask):
    """Clients of model servers ask `tfxclass-serve`."""
    model = _model()
    _questions(folder, model)
    names = [f"class {i}" for i in range(CLASSES)]
    served = folder / "models"
    tfxclass.export.saved_model(model, served / "head", K, names, verify=False)
    _tagger()[0].export(served / "tagger", k=K)
    server = Server(str(served), grpc_port=0)
    server.start()
    try:
        ask("clients", folder, server.rest.port, server.grpc.port)
        _ask_tensorflow_serving(folder, server.grpc.port)
    finally:
        server.close()


def _ask_tensorflow_serving(folder, port):
    """TensorFlow Serving's own client, as serving/grpc_client.py uses it."""
    from serving.grpc_client import Client

    given = np.load(folder / "head.npz")
    with Client(f"127.0.0.1:{port}") as client:
        found = client.predict("head", {"features": given["x"]})
    same = np.mean(found["ids"] == given["ids"])
    print(f"  tensorflow-serving-api: {same:.1%} of the best {K}")
    print(f"    {found['labels'][0, 0]}")


def annif(folder, ask):
    """Annif's `http` backend asks serving/annif_backend.py."""
    tagger, texts = _tagger()
    tagger.export(folder / "subjects", k=20)
    best = [answer[0][0] for answer in tagger.predict(texts, k=1)]
    np.savez(folder / "texts.npz", texts=texts, best=best)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["serving/annif_backend.py", folder / "subjects", str(port)]
    quiet = {"stderr": subprocess.DEVNULL}  # A line for each request.
    with subprocess.Popen([sys.executable, *command], **quiet) as backend:
        try:
            _wait_for(port)
            ask("annif", folder, port)
        finally:
            backend.terminate()


def _wait_for(port, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.5)
