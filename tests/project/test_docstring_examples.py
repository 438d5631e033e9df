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


def examples_by_module():
    """`{module: [(name, code)]}`, without code that was printed before.

    A function may have a name in `tfxclass` and in its module.
    """
    seen, found = set(), {}
    for module in MODULES:
        found[module] = [
            (name, code)
            for name in names_of(module)
            for code in examples_of(name)
            if code not in seen
        ]
        seen |= {code for _, code in found[module]}
    return found


EXAMPLES = examples_by_module()


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if module in ("plot", "tfxclass"):
        pytest.importorskip("matplotlib").use("agg")
    names = {}
    for name, code in EXAMPLES[module]:
        # Blocks of one docstring follow from each other.
        names.setdefault(
            name, {"keras": keras, "np": np, "tf": tf, "tfxclass": tfxclass}
        )
        try:
            exec(code, names[name])  # noqa: S102
        except Exception as e:
            pytest.fail(f"tfxclass.{name}: {e!r}\n{code}")
    if module in ("plot", "tfxclass"):
        import matplotlib.pyplot as plt

        plt.close("all")


def test_most_names_have_an_example():
    """Examples of the fifty names that are used most, and others."""
    names = {name for module in MODULES for name in names_of(module)}
    assert sum(bool(examples_of(name)) for name in names) >= 75
