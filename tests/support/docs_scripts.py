"""Loads the scripts of docs/, which are in no package, and reads its code."""

import ast
import importlib.util
import inspect
import pathlib
import re

import tfxclass
from benchmarks.structure import arguments_of

DOCS = pathlib.Path(__file__).parents[2] / "docs"
# Arguments that no class of ours names: Keras or the base of all heads does.
_PASSED_ON = {"name", "dtype", "learning_rate", "removed"}


def script(name):
    """A module of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site():
    """The module docs/site.py."""
    return script("site")


def missing_names(code):
    """Names of tfxclass in code, and their arguments, that there are not."""
    tree, missing = ast.parse(code), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_ours(node):
            if _target_of(node) is None:
                missing.append(ast.unparse(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_ours(node.func):
            target = _target_of(node.func)
            if target is not None:
                missing += [
                    f"{ast.unparse(node.func)}({keyword.arg}=...)"
                    for keyword in node.keywords
                    if keyword.arg and keyword.arg not in _arguments(target)
                ]
    return missing


def _is_ours(node):
    return re.fullmatch(r"tfxclass(\.\w+)+", ast.unparse(node)) is not None


def _target_of(node):
    """What a dotted name stands for, or None."""
    target = tfxclass
    for part in ast.unparse(node).split(".")[1:]:
        target = getattr(target, part, None)
    return target


def _arguments(target):
    if inspect.isclass(target):
        return arguments_of(target) | _PASSED_ON
    return inspect.signature(target).parameters
