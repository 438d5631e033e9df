"""The examples in docstrings of public names run as they are printed."""

import inspect
import re
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.docs_scripts import site

BLOCK = re.compile(r"```python\n(.*?)```", re.S)
#: Names of the top level that are modules have their own docstrings.
TOP_LEVEL = [
    name
    for name in tfxclass.__all__
    if not inspect.ismodule(getattr(tfxclass, name))
]


def examples_of(name):
    """Python blocks in the docstring of a public name."""
    target = tfxclass
    for part in name.split("."):
        target = getattr(target, part)
    text = inspect.getdoc(target) or ""
    return [textwrap.dedent(code) for code in BLOCK.findall(text)]


def names_of(module):
    if module == "tfxclass":
        return TOP_LEVEL
    return [f"{module}.{name}" for name in site().public_names(module)]


MODULES = ["tfxclass", *site().MODULES]


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if module in ("plot", "tfxclass"):
        pytest.importorskip("matplotlib").use("agg")
    for name in names_of(module):
        names = {"keras": keras, "np": np, "tf": tf, "tfxclass": tfxclass}
        for code in examples_of(name):
            try:
                exec(code, names)  # noqa: S102
            except Exception as e:
                pytest.fail(f"tfxclass.{name}: {e!r}\n{code}")
    if module in ("plot", "tfxclass"):
        import matplotlib.pyplot as plt

        plt.close("all")


def test_most_names_have_an_example():
    """Examples of the fifty names that are used most, and others."""
    names = {name for module in MODULES for name in names_of(module)}
    assert sum(bool(examples_of(name)) for name in names) >= 75
