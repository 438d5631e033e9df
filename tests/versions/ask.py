"""Asks exports in a process of stock TensorFlow, without tfxclass.

    python -I tests/versions/ask.py C_LOADER FOLDER ...

Each FOLDER is what exports.py wrote. Each model is loaded twice: by
`tf.saved_model.load`, and through TensorFlow's C library as a server loads it
(C_LOADER is the path of tfxclass_serve/c_loader.py). Prints a
line of JSON for each folder: its name, TensorFlow's version and, for each
model, "equal" or what went wrong.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402


def through_python(folder, inputs):
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(**{x: tf.constant(y) for x, y in inputs.items()})
    return {key: answers[key].numpy() for key in ("ids", "scores")}


def through_c_library(folder, inputs, c_loader):
    signature = _signature(folder)
    with tempfile.TemporaryDirectory() as scratch:
        run = {
            "inputs": [signature.inputs[x].name for x in inputs],
            "outputs": {
                x: signature.outputs[x].name for x in ("ids", "scores")
            },
        }
        request = {"libraries": [], "model": folder, "runs": [run]}
        with open(os.path.join(scratch, "request.json"), "w") as f:
            json.dump(request, f)
        np.savez(os.path.join(scratch, "inputs_0.npz"), *inputs.values())
        libraries = os.path.dirname(tf.__file__)
        command = [sys.executable, "-I", c_loader, libraries, scratch]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        with np.load(os.path.join(scratch, "outputs_0.npz")) as answers:
            return dict(answers)


def _signature(folder):
    saved = saved_model_pb2.SavedModel()
    with open(os.path.join(folder, "saved_model.pb"), "rb") as f:
        saved.ParseFromString(f.read())
    return saved.meta_graphs[0].signature_def["serving_default"]


def compare(answers, expected):
    """Raises AssertionError unless the answers equal the live model's."""
    np.testing.assert_array_equal(answers["ids"], expected["ids"])
    # Another release may order the float32 sums of a product differently.
    np.testing.assert_allclose(
        answers["scores"], expected["scores"], rtol=1e-5, atol=1e-6
    )


def outcome(folder, c_loader):
    with np.load(os.path.join(folder, "inputs.npz")) as arrays:
        # Strings lie there as arrays of bytes; c_loader.py reads objects.
        inputs = {
            x: y.astype(object) if y.dtype.kind == "S" else y
            for x, y in arrays.items()
        }
    with np.load(os.path.join(folder, "expected.npz")) as arrays:
        expected = dict(arrays)
    model = os.path.join(folder, "1")
    try:
        compare(through_python(model, inputs), expected)
        compare(through_c_library(model, inputs, c_loader), expected)
    except Exception as e:
        return f"{type(e).__name__}: {str(e).strip()[:300]}"
    return "equal"


def ask(folder, c_loader):
    models = {
        os.path.basename(path): outcome(path, c_loader)
        for path in sorted(glob.glob(os.path.join(folder, "*")))
    }
    if "tfxclass" in sys.modules:
        raise RuntimeError("tfxclass was imported: this is no stock process.")
    made_with = os.path.basename(folder)
    return {
        "made_with": made_with,
        "tensorflow": tf.__version__,
        "models": models,
    }


def main(c_loader, *folders):
    for folder in folders:
        print(json.dumps(ask(folder, c_loader)))


if __name__ == "__main__":
    main(*sys.argv[1:])
