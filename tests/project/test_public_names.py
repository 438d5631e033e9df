"""`dir` and `help` show what is public, and the arguments of it."""

import inspect
import types

import keras
import pytest

import tfxclass

MODULES = [
    name
    for name in tfxclass.__all__
    if isinstance(getattr(tfxclass, name), types.ModuleType)
]


@pytest.mark.parametrize("name", ["", *MODULES])
def test_a_module_lists_its_public_names(name):
    module = getattr(tfxclass, name) if name else tfxclass
    listed = {*dir(module)} - {"__version__"}
    assert listed == {*module.__all__}
    assert all(hasattr(module, x) for x in listed)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_optimizers_have_the_arguments_of_keras(name):
    """With the same defaults, in the same order."""
    own = inspect.signature(getattr(tfxclass.optimizers, f"Lazy{name}"))
    other = inspect.signature(getattr(keras.optimizers, name))
    positional = [
        x for x in own.parameters.values() if x.kind == x.POSITIONAL_OR_KEYWORD
    ]
    expected = [*other.parameters.values()][: len(positional)]
    for mine, theirs in zip(positional, expected):
        assert (mine.name, mine.default) == (theirs.name, theirs.default)
    assert "l2" in own.parameters


@pytest.mark.parametrize(
    "name, place",
    [
        ("SampledSoftmax", "tfxclass.layers.SampledSoftmax"),
        ("Cosine", "tfxclass.layers.Cosine"),
        ("Tagger", "tfxclass.text.Tagger"),
        ("HeadAdam", "tfxclass.optimizers.HeadAdam"),
    ],
)
def test_a_name_without_its_module_is_suggested(name, place):
    with pytest.raises(AttributeError, match=f"Did you mean {place}"):
        getattr(tfxclass, name)
    assert not hasattr(tfxclass, "NoSuchName")
