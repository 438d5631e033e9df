"""The images of the DropMax table."""

from typing import NamedTuple

import numpy as np

from benchmarks import files

VALIDATION = 5_000  # of MNIST's 60,000
SIDE = 28


class Recipe(NamedTuple):
    """How a network is trained."""

    rate: float = 1e-3  # Adam's first one
    rate_falls: bool = True  # to 1/10 after a third of the steps, then 1/100
    dropout: float = 0.0  # of the hidden layer


class DataSet(NamedTuple):
    """`(x, y)` for each part; y are int64 class ids."""

    train: tuple
    validation: tuple
    test: tuple
    num_classes: int


def mnist(folder, num_train, seed):
    """`num_train` images, equally many a class if there are enough."""
    parts = []
    for part in ("train", "t10k"):
        x, y = files.mnist(folder, part)
        parts.append(((x[..., None] / 255).astype(np.float32), y))
    (x, y), test = parts
    held, rest = slice(len(y) - VALIDATION, None), len(y) - VALIDATION
    order = np.random.default_rng(seed).permutation(rest)
    if num_train < rest:
        order = np.concatenate(
            [order[y[order] == c][: num_train // 10] for c in range(10)]
        )
    return DataSet((x[order], y[order]), (x[held], y[held]), test, 10)
