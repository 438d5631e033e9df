"""The code of README and of serving/README runs as it is printed."""

import os
import pathlib
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from benchmarks import readme
from tests.support.helpers import make_text_model

ROOT = pathlib.Path(__file__).parents[2]


def blocks_of(path):
    """The Python of a page, block by block."""
    text = (ROOT / path).read_text(encoding="utf8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def run_use(code):
    """README's block "Use" in the current folder; it must learn."""
    names = {}
    exec(code, names)  # noqa: S102
    assert names["ids"][:, 0].tolist() == [0, 1, 2]
    assert os.path.exists("model.keras")
    assert os.listdir(pathlib.Path("models", "products")) == ["1"]


def test_the_example_with_fewer_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks_of("README.md")
    code = code.replace("670_091", "9_000").replace("6_700", "900")
    run_use(code)


@pytest.mark.slow
def test_the_example_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks_of("README.md")
    run_use(code)


# An example is its class, a normal vector, plus noise.
NUM_CLASSES, NUM_SAMPLED, DIM = 20_000, 200, 64
NUM_TRAIN, NUM_TEST = 200_000, 2_000
#: Settings that another user might choose for the same model.
ALTERNATIVES = (
    "tfxclass.optimizers.LazyAdam(3e-3)",
    "tfxclass.optimizers.LazyAdagrad(0.1)",
)


def training_code():
    """README's block from the head to `fit`, for these classes."""
    # Without the lines before, which make README's own x and y.
    code = readme.block()[readme.block().index("head = ") :]
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
    keras.utils.set_random_seed(seed)
    x, y, test_x, test_y = examples(seed)
    names = {"x": x, "y": y}
    exec(training_code().replace(printed_optimizer(), optimizer), names)  # noqa: S102
    best = tfxclass.top_k(names["model"], k=10)
    ids, _ = best.predict(test_x, verbose=0)
    return 100 * float(np.mean(np.any(ids == test_y[:, np.newaxis], axis=1)))


@pytest.mark.slow
def test_no_other_optimizer_is_much_better_in_the_example():
    printed = printed_optimizer()
    assert printed not in ALTERNATIVES
    accuracy = accuracy_of(printed)
    for other in ALTERNATIVES:
        assert accuracy_of(other) < accuracy + 2.0, other


class FlatIndex:
    """What the guide uses of faiss.IndexFlatIP."""

    def __init__(self, dim):
        self.rows = np.zeros((0, dim), "float32")

    def add(self, rows):
        self.rows = np.concatenate([self.rows, rows])

    def search(self, queries, k):
        scores = queries @ self.rows.T
        places = np.argsort(-scores, axis=1)[:, :k]
        return np.take_along_axis(scores, places, axis=1), places


def test_serving(tmp_path, monkeypatch):
    """An export, its class vectors and its conversion to LiteRT."""
    pytest.importorskip("tensorflow_serving")
    monkeypatch.chdir(tmp_path)
    head = tfxclass.layers.FullSoftmax(50)
    model = keras.Sequential([keras.Input([8]), head])
    random = np.random.default_rng(0)
    names = {
        "tfxclass": tfxclass,
        "tf": tf,
        "head": head,
        "model": model,
        "x": random.normal(size=(32, 8)).astype("float32"),
        "y": random.integers(0, 50, 32),
    }
    pathlib.Path("names.txt").write_text("\n".join(map(str, range(50))))
    names |= {"np": np, "faiss": types.SimpleNamespace(IndexFlatIP=FlatIndex)}
    *blocks, _ = blocks_of("serving/README.md")
    # tests/export/test_export_onnx.py runs the one that needs ONNX Runtime.
    blocks = [code for code in blocks if "onnxruntime" not in code]
    assert len(blocks) == 3
    for code in blocks:
        exec(code, names)  # noqa: S102
    assert os.listdir("models/products") == ["1"]
    best = tfxclass.top_k(model, 10).predict(names["x"], verbose=0)[0]
    assert np.mean(names["ids"] == best) > 0.99  # ties change places


def test_serving_without_a_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = make_text_model(20)
    tfxclass.export.saved_model(
        model,
        "models/reverse_dictionary",
        labels=[f"word{i}" for i in range(20)],
        verify=False,
    )
    code = blocks_of("serving/README.md")[-1]
    names = {"tf": tf}
    exec(code.replace("serve(text", "answer = serve(text"), names)  # noqa: S102
    assert names["answer"].shape == (1, 10)


def test_it_is_short_enough_to_read():
    text = (ROOT / "README.md").read_text(encoding="utf8")
    assert len(text.splitlines()) <= 160


@pytest.mark.parametrize("page", ["README.md", "serving/README.md"])
def test_pages_with_the_server_install_it(page):
    """The server is a package of its own, which tfxclass does not need."""
    text = (ROOT / page).read_text(encoding="utf8")
    install = text.find("pip install './tfxclass_serve[cpu]'")
    assert 0 <= install < text.find("tfxclass-serve models/")
