"""README's first model: the time of a step.

    python -m benchmarks.readme

runs README's block up to `fit`, as a user starts Python: TensorFlow decides by
the processor whether it uses oneDNN. It times each batch of `fit`, and the same
model with `Dense` and Adam in place of the head.

tests/project/test_readme.py also trains the block with 20,000 classes and 200
sampled classes. The data are separable: a class is a normal vector in 64
dimensions, and an example is its class plus noise with a standard deviation of
0.3. 200,000 examples are trained on once, in batches of 32. Accuracy is the
percentage of 2,000 new examples whose class is among the ten best. The test
fails if one of `ALTERNATIVES` is more than two points better than README's
optimizer.
"""

import os
import pathlib
import re
import statistics
import time

import numpy as np

from benchmarks import measure

MODELS = ("README's block", "Dense, Adam")
NUM_CLASSES, NUM_SAMPLED, DIM = 20_000, 200, 64
NUM_TRAIN, NUM_TEST = 200_000, 2_000
README = pathlib.Path(__file__).parent.parent / "README.md"
#: Settings that another user might choose for the same model.
ALTERNATIVES = (
    "tfxclass.optimizers.LazyAdam(3e-3)",
    "tfxclass.optimizers.LazyAdagrad(0.1)",
)


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
    times = times[3:]
    return {
        "median_ms": statistics.median(times),
        "least_ms": min(times),
        "most_ms": max(times),
        "peak_gb": measure.peak_gb(),
    }


def training_code():
    """README's block from the head to `fit`, for these classes."""
    # Without the lines before, which make README's own x and y.
    code = block()[block().index("head = ") :]
    code = "import keras\nimport tfxclass\n" + code
    for printed, here in (("670_091", NUM_CLASSES), ("6_700", NUM_SAMPLED)):
        if code.count(printed) != 1:
            raise ValueError(f"README's block must have {printed} once.")
        code = code.replace(printed, str(here))
    return code + "model.fit(x, y)"


def printed_optimizer():
    """The expression of README's optimizer."""
    (found,) = re.findall(
        r"tfxclass\.optimizers\.\w+\([^()]*\)", training_code()
    )
    return found


def examples(seed):
    """`(x, y, test_x, test_y)`, float32 `[rows, DIM]` and int64 `[rows]`."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(NUM_CLASSES, DIM))
    y = random.integers(0, NUM_CLASSES, NUM_TRAIN + NUM_TEST)
    x = means[y] + 0.3 * random.normal(size=(len(y), DIM))
    x = x.astype(np.float32)
    return x[:NUM_TRAIN], y[:NUM_TRAIN], x[NUM_TRAIN:], y[NUM_TRAIN:]


def accuracy_of(optimizer, seed=0):
    """Percentage of new examples whose class is among the ten best.

    Args:
        optimizer: str, an expression that takes the place of README's.
        seed: int, of data, weights and samples.
    """
    import keras

    import tfxclass

    keras.utils.set_random_seed(seed)
    x, y, test_x, test_y = examples(seed)
    names = {"x": x, "y": y}
    exec(training_code().replace(printed_optimizer(), optimizer), names)  # noqa: S102
    best = tfxclass.top_k(names["model"], k=10)
    ids, _ = best.predict(test_x, verbose=0)
    return 100 * float(np.mean(np.any(ids == test_y[:, np.newaxis], axis=1)))


if __name__ == "__main__":
    measure.compare("readme_step", step, [{"model": x} for x in MODELS])
