"""Each data set with the model for it."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import measure
from benchmarks.comparison import readers

#: Sets that the papers' comparison takes only where it is asked to.
EXTRA = ("generated", "verses_third", "verses_ninth")


class SetUp(NamedTuple):
    """A data set and the model for it, the same for all methods.

    Attributes:
        read: function of the data folder that returns a `DataSet`.
        num_sampled: int, active classes M of a step, unless varied.
        learning_rate: float, of `LazyAdam`, where it stays as it is.
        first_rate: float, where it falls to nothing over the training.
        dim: int, width of the features.
        batch_size: int.
        scale: float, of cosine logits, or None for dot products.
        activation: str or None, of the encoder.
    """

    read: Callable
    num_sampled: int
    learning_rate: float
    first_rate: float
    dim: int = 128
    batch_size: int = 256
    scale: float | None = None
    activation: str | None = None


SETS = {
    "verses": SetUp(readers.read_verses, 1024, 3e-3, 6e-3, scale=24.0),
    "verses_third": SetUp(
        readers.read_every_third_verse, 341, 3e-3, 6e-3, scale=24.0
    ),
    "verses_ninth": SetUp(
        readers.read_every_ninth_verse,
        128,
        3e-3,
        6e-3,
        batch_size=64,
        scale=24.0,
    ),
    "eurlex57k": SetUp(
        readers.read_eurlex57k,
        640,
        2e-3,
        6e-3,
        batch_size=128,
        activation="relu",
    ),
    "word2vec": SetUp(
        readers.read_word2vec, 1280, 2e-3, 4e-3, dim=200, batch_size=512
    ),
    "reverse_dictionary": SetUp(
        readers.read_reverse_dictionary,
        2048,
        5e-3,
        5e-3,
        dim=256,
        batch_size=512,
        scale=20.0,
    ),
    "generated": SetUp(
        readers.read_generated,
        64,
        1e-2,
        1e-2,
        dim=16,
        batch_size=32,
        scale=24.0,
    ),
}


def load(name, folder):
    """The `DataSet` of a name in `SETS`, from the folder of the shared data.

    It is kept in benchmarks/cache/comparison for the next process.
    """
    return measure.pickled(
        f"comparison/{name}", lambda: SETS[name].read(pathlib.Path(folder))
    )
