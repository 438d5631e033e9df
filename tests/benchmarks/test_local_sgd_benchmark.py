"""The simulation of local SGD."""

import importlib
import pathlib
import sys

import numpy as np
import pytest

from tests.support import reference

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
CLASSES, DIM, ROWS, RATE = 7, 3, 256, 0.5


@pytest.fixture
def benchmark(monkeypatch):
    """The module, a script that imports its neighbours."""
    monkeypatch.syspath_prepend(FOLDER)
    names = "measure", "verses_data", "local_sgd_accuracy"
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(names[-1])
    for name in names:
        sys.modules.pop(name, None)


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    return x, np.sort(random.integers(0, CLASSES, ROWS))


def moved(kernel, x, y):
    """After a step of one replica, in float64."""
    p = reference.softmax(x @ kernel.T.astype(np.float64))
    return kernel - RATE * (p - np.eye(CLASSES)[y]).T @ x / len(y)


@pytest.mark.parametrize("interval", [1, 2])
def test_replicas_meet_at_intervals(benchmark, interval):
    x, y = data()
    steps = np.arange(2 * 4 * 8).reshape(2, 4, 8)
    models = benchmark.Replicas(4, interval, (CLASSES, DIM))
    expected = [np.zeros((CLASSES, DIM))] * 4
    for step, rows in enumerate(steps, 1):
        models.step(x, y, rows, RATE)
        pairs = zip(expected, rows)
        expected = [moved(kernel, x[own], y[own]) for kernel, own in pairs]
        if step % interval == 0:
            expected = [np.mean(expected, axis=0)] * 4
        kernels = models.kernels * (4 if interval == 1 else 1)
        # float32 rounding.
        np.testing.assert_allclose(kernels, expected, rtol=1e-4, atol=1e-6)
    assert (models.steps, models.averages) == (2, 2 // interval)


def test_data_of_replicas(benchmark):
    _, y = data()
    own = benchmark.shares(y, 4, benchmark.OWN, seed=0)
    drawn = benchmark.shares(y, 4, benchmark.ANY, seed=0)
    for rows in (own, drawn):
        assert len(np.unique(rows)) == rows.size == ROWS
    assert all(y[a].max() <= y[b].min() for a, b in zip(own, own[1:]))
    assert all(len(np.unique(y[rows])) == CLASSES for rows in drawn)
    order = benchmark.epoch(own, np.random.default_rng(0))
    assert order.shape == (ROWS // 4 // benchmark.BATCH, 4, benchmark.BATCH)
    for replica, rows in enumerate(own):
        assert set(order[:, replica].ravel()) == set(rows)


def test_loss_and_accuracy(benchmark):
    x, y = data()
    kernel = np.random.default_rng(1).normal(size=(CLASSES, DIM))
    p = reference.softmax(x @ kernel.T)
    loss, accuracy = benchmark.evaluated(kernel, x, y)
    expected = -np.log(p[np.arange(ROWS), y]).mean()
    assert loss == pytest.approx(expected, rel=1e-6)
    assert accuracy == np.mean(p.argmax(axis=1) == y)
