"""Loads the scripts of docs/, which are in no package."""

import importlib.util
import pathlib

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def script(name):
    """A module of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site():
    """The module docs/site.py."""
    return script("site")
