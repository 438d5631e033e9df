"""The README's example runs as it stands, on fewer classes."""

import os
import re

import numpy as np

README = os.path.join(os.path.dirname(__file__), "..", "README.md")


def test_the_example(tmp_path, monkeypatch):
    with open(README, encoding="utf8") as f:
        text = f.read()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    code = code.replace("670_091", "2_000").replace("6_700", "300")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = {
        "x": rng.normal(size=(64, 16)).astype("float32"),
        "y": rng.integers(0, 2_000, 64),
    }
    exec(code, names)  # noqa: S102
    assert os.path.exists(tmp_path / "model.keras")
    assert os.listdir(tmp_path / "models" / "products") == ["1"]


def test_it_is_short_enough_to_read():
    with open(README, encoding="utf8") as f:
        assert len(f.read().splitlines()) <= 110
