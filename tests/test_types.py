"""Annotations of what users call."""

import importlib
import inspect
import pkgutil
import typing

import numpy as np
import pytest
import tensorflow as tf

import tfxclass
import tfxclass_text
from tfxclass import types


def modules():
    """Names of all modules of the package but those of private names."""
    found = [
        *pkgutil.walk_packages(tfxclass.__path__, "tfxclass."),
        *pkgutil.walk_packages(tfxclass_text.__path__, "tfxclass_text."),
    ]
    return [x.name for x in found if "._" not in x.name]


def is_ours(thing):
    return thing.__module__.startswith(("tfxclass.", "tfxclass_text."))


def functions_of(thing):
    """The functions that a user can call, of a function, class or module."""
    if inspect.ismodule(thing):
        names = getattr(thing, "__all__", None) or [
            name
            for name, value in vars(thing).items()
            if getattr(value, "__module__", None) == thing.__name__
            and not name.startswith("_")
        ]
        for name in names:
            yield from functions_of(getattr(thing, name))
    elif not is_ours(thing):
        return
    elif inspect.isclass(thing):
        for base in thing.__mro__:
            if is_ours(base):
                yield from filter(None, map(_function, vars(base).items()))
    elif inspect.isfunction(thing):
        yield thing


def _function(named):
    name, value = named
    if name.startswith("_") and name not in ("__init__", "__call__"):
        return None
    value = getattr(value, "__func__", getattr(value, "fget", value))
    return value if inspect.isfunction(value) and is_ours(value) else None


def missing(function):
    """Names of parameters without a type, and "return"."""
    signature = inspect.signature(function)
    names = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is parameter.empty
        and name not in ("self", "cls")
    ]
    if signature.return_annotation is signature.empty:
        names.append("return")
    return names


@pytest.mark.parametrize("name", ["tfxclass", *modules()])
def test_public_functions_are_annotated(name):
    for function in set(functions_of(importlib.import_module(name))):
        assert not missing(function), function.__qualname__
        # What is written names what there is.
        typing.get_type_hints(function)


def test_all_packages_are_searched():
    packages = {name.split(".")[1] for name in modules()}
    assert packages >= {"layers", "losses", "metrics", "rows", "shards"}
    heads = set(functions_of(tfxclass.layers.output_head))
    assert tfxclass.layers.OutputHead.compute_loss in heads


def test_search_finds_what_is_missing():
    class Class:
        def method(self, x: int, y=1, *, z) -> None: ...

        @property
        def size(self): ...

        def _private(self, x): ...

    Class.__module__ = Class.method.__module__ = "tfxclass.x"
    Class.size.fget.__module__ = "tfxclass.x"
    found = {f.__name__: missing(f) for f in functions_of(Class)}
    assert found == {"method": ["y", "z"], "size": ["return"]}


def test_names_of_types_hold_at_run_time():
    assert isinstance(np.zeros(1), types.Array)
    assert isinstance(tf.zeros(1), types.Array)
    assert isinstance(tf.Variable(1.0), types.Variable)
    assert not isinstance([1], types.Array)
