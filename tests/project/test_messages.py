"""What messages tell a user to do exists: classes, functions, arguments."""

import ast
import inspect
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass import optimizers

ROOT = pathlib.Path(tfxclass.__file__).parent.parent
MODULES = {"tfxclass": tfxclass, "keras": keras, "np": np, "tf": tf}
ADVICE = re.compile(r"Fix:|\b[Uu]se |\b[Pp]ass |\b[Gg]ive |instead")
NAME = re.compile(r"\b(tfxclass|keras|np|tf)((?:\.[A-Za-z_]\w*)+)(\([^()]*\))?")
# What a string inserts, which is known only when it is written.
INSERTED = "\0"


def text_of(node):
    """The text of a string, of parts of an f-string, or of a sum; or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(x) or INSERTED for x in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [text_of(node.left), text_of(node.right)]
        return (
            None
            if sides == [None, None]
            else "".join(INSERTED if side is None else side for side in sides)
        )
    return None


def advice_of(path):
    """All strings of a file that say what to do, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        text = None if id(node) in docs else text_of(node)
        if text is not None and ADVICE.search(text):
            yield text


def problems_of(text):
    """Names in a message that nothing has, and arguments likewise."""
    for match in NAME.finditer(text):
        root, path, call = match.groups()
        end = text[match.end() : match.end() + 1]
        if end in ("{", INSERTED):
            continue
        found = MODULES[root]
        for part in path[1:].split("."):
            if inspect.ismodule(found) and not hasattr(found, part):
                yield f"{match.group()} in {text!r}"
                break
            found = getattr(found, part, None)
            if found is None:
                yield f"{match.group()} in {text!r}"
                break
        else:
            yield from unknown_arguments(found, call, text)


def test_extras_of_messages_exist():
    found = set()
    for folder in ("tfxclass", "tfxclass_text", "tfxclass_serve"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            found |= set(re.findall(r"tfxclass\[(\w+)\]", text))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = project.split("[project.optional-dependencies]")[1]
    known = set(re.findall(r"^(\w+) = ", known.split("\n[")[0], re.M))
    assert found and found <= known


def unknown_arguments(function, call, text):
    names = re.findall(r"(\w+)=(?!=)", call or "")
    if not names:
        return
    known = set()
    # What a class passes on by **kwargs is an argument of a base class.
    for each in getattr(function, "__mro__", [function])[::-1]:
        init = each.__init__ if inspect.isclass(each) else each
        if each is object:
            continue
        parameters = inspect.signature(init).parameters.values()
        known |= {p.name for p in parameters}
    for name in names:
        if name not in known:
            yield f"{name}= of {function} in {text!r}"


@pytest.mark.parametrize(
    "folder", ["tfxclass", "tfxclass_text", "tfxclass_serve"]
)
def test_what_messages_name_exists(folder):
    texts = {
        text
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in advice_of(path)
    }
    assert len(texts) > 10
    assert [p for text in sorted(texts) for p in problems_of(text)] == []


def test_this_test_finds_what_does_not_exist():
    for text in (
        "Fix: keras.optimizers.HeadAdam",
        "Fix: tfxclass.layers.FullSoftmax(3, names=1)",
        "Use tfxclass.tok_k",
    ):
        assert list(problems_of(text)), text
    right = "Fix: tfxclass.layers.SampledSoftmax(9, num_sampled=3, seed=1)"
    assert not list(problems_of(right))


OPTIMIZERS = [
    name
    for name in optimizers.__all__
    if name.startswith("Lazy") or name == "HeadAdam"
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_to_use_instead_exists(name):
    with pytest.raises(ValueError) as error:
        getattr(optimizers, name)(use_ema=True)
    text = str(error.value)
    assert "keras.optimizers." in text and not list(problems_of(text))
