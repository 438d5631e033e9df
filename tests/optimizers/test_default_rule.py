"""HeadAdam at its default rate against a grid of optimizers and rates."""

import numpy as np
import pytest

from benchmarks.defaults import model
from benchmarks.defaults.cells import Cell
from benchmarks.defaults.tasks import Task

CLASSES, FEATURES = 300, 16
GRID = {
    "Adam": (1e-3, 1e-2, 1e-1),
    "Adagrad": (0.1, 1.0),
    "SGD, momentum": (1.0, 10.0),
}
ROWS = 1000


def points(law):
    """Points around the means of classes, which lie in groups of ten."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(CLASSES // 10, FEATURES))
    means = centres[np.arange(CLASSES) // 10]
    means = means + 0.7 * random.normal(size=means.shape)
    weights = 1.0 / np.arange(1, CLASSES + 1) ** law

    def rows(count):
        y = random.choice(CLASSES, count, p=weights / weights.sum())
        x = means[y] + 0.45 * random.normal(size=(count, FEATURES))
        return (x.astype(np.float32),), y[:, np.newaxis]

    return Task(rows(20_000), rows(ROWS), rows(ROWS), CLASSES)


def bags():
    """Bags of eight words, most of them from the ten of the class."""
    random = np.random.default_rng(0)
    num_words = 600
    own = random.integers(1, num_words, (CLASSES, 10))

    def rows(count):
        y = random.integers(0, CLASSES, count)
        ids = own[y[:, np.newaxis], random.integers(0, 10, (count, 8))]
        noise = random.integers(1, num_words, ids.shape)
        ids = np.where(random.random(ids.shape) < 0.5, ids, noise)
        weights = np.full(ids.shape, 8**-0.5, np.float32)
        return (ids.astype(np.int32), weights), y[:, np.newaxis]

    return Task(rows(20_000), rows(ROWS), rows(ROWS), CLASSES, num_words)


CELLS = {
    "dot": (
        lambda: points(0),
        Cell("", "layer", None, 64, 10, 400),
    ),
    "cosine": (
        lambda: points(0),
        Cell("", "none", 16, 64, 5, 400, falls=False),
    ),
    "rare classes": (
        lambda: points(1),
        Cell("", "layers", None, 128, 10, 400),
    ),
    "words": (
        bags,
        Cell("", "bag", None, 64, 10, 400, falls=False),
    ),
}


# The best accuracy of the grid; a slow test tries all of it.
BEST = {
    "dot": 0.987,
    "cosine": 0.983,
    "rare classes": 0.99,
    "words": 0.689,
}


def accuracies(name, optimizer, rates):
    """Of the optimizer at each of the rates, from one start."""
    make, cell = CELLS[name]
    task = make()
    batches = model.batches_of(cell, task, 0)
    trainer = model.Trainer(cell, task, optimizer)
    found = []
    for rate in rates:
        trainer.train(rate, 1e-3, batches)
        found.append(float(np.mean(trainer.hits(task.test))))
    return found


@pytest.mark.parametrize("name", CELLS)
def test_the_default_is_near_the_best_of_a_grid(name):
    (default,) = accuracies(name, "HeadAdam", [1e-3])
    assert default > 0.3  # far from chance, 1 / 300
    assert default > BEST[name] - 0.03, default


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_the_best_of_the_grid_is_what_it_was(name):
    found = {of: accuracies(name, of, rates) for of, rates in GRID.items()}
    assert max(map(max, found.values())) == pytest.approx(BEST[name], abs=0.02)
