"""A training step of README's block, as a user runs it, against Keras' `Dense`.

    python benchmarks/readme_step.py

Runs the Python of README's section "Use" up to `fit`, without environment
variables, and times each batch of `fit`; then the same model with `Dense` and
Adam in place of the head. Each is in a process of its own. TensorFlow decides
by the processor whether it uses oneDNN.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import measure

README = pathlib.Path(measure.FOLDER).parent / "README.md"
MODELS = ("README's block", "Dense, Adam")


def block():
    """README's code before `fit`."""
    code = re.search(r"```python\n(.*?)```", README.read_text("utf8"), re.S)[1]
    return code[: code.index("model.fit(")]


def child(name):
    """Median time of the batches of `fit`, without the first ones."""
    names = {}
    exec(block(), names)  # noqa: S102
    keras, model = names["keras"], names["model"]
    if name != MODELS[0]:
        head = names["head"]
        dense = keras.layers.Dense(head.num_classes, activation="softmax")
        model = keras.Sequential([*model.layers[:-1], dense])
        model.compile("adam", loss="sparse_categorical_crossentropy")
    times = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.start = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            times.append((time.perf_counter() - self.start) * 1e3)

    rows = 256 * (60 if name == MODELS[0] else 8)
    model.fit(
        names["x"][:rows],
        names["y"][:rows],
        batch_size=256,
        verbose=0,
        callbacks=[Clock()],
    )
    times = times[3:]
    return {
        "median_ms": statistics.median(times),
        "least_ms": min(times),
        "most_ms": max(times),
        "peak_gb": measure.peak_gb(),
    }


def main():
    # As a user starts Python: nothing that speeds up TensorFlow is set.
    environment = {k: v for k, v in os.environ.items() if "ONEDNN" not in k}
    rows = []
    for name in MODELS:
        done = subprocess.run(
            [sys.executable, __file__, "--child", name],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append({"model": name, **found})
        print(rows[-1], flush=True)
    measure.save("readme_step", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2])))
    else:
        main()
