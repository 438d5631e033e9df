"""README's first model: the time of a step.

    python -m benchmarks.readme

runs README's block up to `fit`, as a user starts Python: TensorFlow decides by
the processor whether it uses oneDNN. It times each batch of `fit`, and the same
model with `Dense` and Adam in place of the head.
"""

import os
import pathlib
import re
import time

from benchmarks import measure

MODELS = ("README's block", "Dense, Adam")
README = pathlib.Path(__file__).parent.parent / "README.md"


def block():
    """README's first block of Python, before `fit`."""
    code = re.search(r"```python\n(.*?)```", README.read_text("utf8"), re.S)[1]
    return code[: code.index("model.fit(")]


def step(name):
    """Times of the batches of `fit`, without the first ones."""
    # As a user starts Python: nothing that speeds up TensorFlow is set.
    os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
    names = {}
    exec(block(), names)  # noqa: S102
    keras, model = names["keras"], names["model"]
    if name != MODELS[0]:
        head = names["head"]
        dense = keras.layers.Dense(head.num_classes, activation="softmax")
        model = keras.Sequential([*model.layers[:-1], dense])
        model.compile("adam", loss="sparse_categorical_crossentropy")
    times, begin = [], []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: begin.append(
            time.perf_counter()
        ),
        on_train_batch_end=lambda batch, logs: times.append(
            1e3 * (time.perf_counter() - begin[-1])
        ),
    )
    x, y = (names[x][: 256 * (60 if name == MODELS[0] else 8)] for x in "xy")
    model.fit(x, y, batch_size=256, verbose=0, callbacks=[clock])
    return {**measure.medians(times[3:]), "peak_gb": measure.peak_gb()}


if __name__ == "__main__":
    measure.compare("readme_step", step, measure.cases(model=MODELS))
