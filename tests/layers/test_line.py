"""A head in one line, and in a model's summary."""

import keras
import pytest

from tfxclass import layers

HEADS = {
    "FullSoftmax": (layers.FullSoftmax, {}, "12,000 parameters"),
    "SelectiveSoftmax": (
        layers.SelectiveSoftmax,
        {"num_sampled": 1_200},
        "12,000 parameters, HashingForestSampler of 1,200 a step",
    ),
    "HierarchicalSoftmax": (
        layers.HierarchicalSoftmax,
        {"tree": "balanced"},
        "11,992 parameters",  # a row for each of 1,499 inner nodes
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_line(name):
    kind, options, known = HEADS[name]
    head = kind(1_500, name="words", **options)
    line = repr(head)
    assert line.startswith(f"<{name} name=words, built=False, 1,500 classes")
    assert "parameters" not in line
    head.build((None, 8))
    assert f"built=True, 1,500 classes, {known}>" in repr(head)


def test_summary(capsys):
    head = layers.SelectiveSoftmax(1_500, 200, name="words")
    keras.Sequential([keras.Input([8]), head]).summary(line_length=90)
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "words" in x)
    # Its index and its seed are not trained.
    assert "SelectiveSoftmax" in line and "(None, 1500)" in line
