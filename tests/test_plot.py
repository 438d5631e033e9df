"""The figures show the numbers that they are given, or measured."""

import sys

import keras
import numpy as np
import pytest

import tfxclass
from tests.support.contract import data
from tests.support.contract import make_model
from tfxclass import plot

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def lines(ax):
    return [np.stack(line.get_data()) for line in ax.get_lines()]


def model_and_rows():
    keras.utils.set_random_seed(0)
    head = tfxclass.layers.FullSoftmax(60)
    accuracy = tfxclass.metrics.TopKAccuracy(head, k=3, name="top3")
    return make_model(head, metrics=[accuracy]), *data(rows=64)


def test_recall_against_probes():
    model, x, _ = model_and_rows()
    lists = tfxclass.export.InvertedLists(num_lists=6)
    curve = plot.plot_recall(model, x, k=5, search=lists)
    np.testing.assert_array_equal(curve.probes[-1], curve.num_lists)
    assert np.all(np.diff(curve.recall) >= 0) and curve.recall[-1] == 1
    assert 0 < curve.recall[0] < 1
    (line,) = lines(matplotlib.pyplot.gca())
    np.testing.assert_array_equal(line, [curve.probes, curve.recall])


def test_reliability_diagram():
    model, x, y = model_and_rows()
    ax = matplotlib.pyplot.subplots()[1]
    found = tfxclass.plot_reliability(model, (x, y), num_bins=5, ax=ax)
    used = found.counts > 0
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_array_equal(heights, found.accuracy[used])
    points = [found.confidence[used], found.accuracy[used]]
    np.testing.assert_array_equal(lines(ax)[1], points)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot.plot_recall(None, [[1.0]])
