"""Each data set with the model for it, and the file that jobs read it from."""

import ast
import json
import pathlib
import sys
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import measure
from benchmarks.comparison import readers
from benchmarks.comparison import rows as rows_lib

#: Sets that the papers' comparison takes only where it is asked to.
EXTRA = ("generated", "verses_third", "verses_ninth")


class SetUp(NamedTuple):
    """A data set and the model for it, the same for all methods.

    Attributes:
        read: function of the data folder that returns a `DataSet`.
        num_sampled: int, active classes M of a step, unless varied.
        sampled_sweep: the values that M is varied over; the least one holds
            the distinct labels of any batch.
        learning_rate: float, of `LazyAdam`, where it stays as it is.
        first_rate: float, where it falls to nothing over the training.
        dim: int, width of the features.
        batch_size: int.
        scale: float, of cosine logits, or None for dot products.
        activation: str or None, of the encoder.
    """

    read: Callable
    num_sampled: int
    sampled_sweep: tuple
    learning_rate: float
    first_rate: float
    dim: int = 128
    batch_size: int = 256
    scale: float | None = None
    activation: str | None = None


SETS = {
    "verses": SetUp(
        readers.read_verses,
        num_sampled=1024,
        sampled_sweep=(320, 512, 1024, 2048, 4096),
        learning_rate=3e-3,
        first_rate=6e-3,
        scale=24.0,
    ),
    "verses_third": SetUp(
        readers.read_every_third_verse,
        num_sampled=341,
        sampled_sweep=(320, 341, 1036),
        learning_rate=3e-3,
        first_rate=6e-3,
        scale=24.0,
    ),
    "verses_ninth": SetUp(
        readers.read_every_ninth_verse,
        num_sampled=128,
        sampled_sweep=(128,),
        learning_rate=3e-3,
        first_rate=6e-3,
        batch_size=64,
        scale=24.0,
    ),
    "eurlex57k": SetUp(
        readers.read_eurlex57k,
        num_sampled=640,
        sampled_sweep=(480, 640, 1024, 2048),
        learning_rate=2e-3,
        first_rate=6e-3,
        batch_size=128,
        activation="relu",
    ),
    "word2vec": SetUp(
        readers.read_word2vec,
        num_sampled=1280,
        sampled_sweep=(768, 1280, 2560, 5120),
        learning_rate=2e-3,
        first_rate=4e-3,
        dim=200,
        batch_size=512,
    ),
    "reverse_dictionary": SetUp(
        readers.read_reverse_dictionary,
        num_sampled=2048,
        sampled_sweep=(1152, 2048, 4096, 8192),
        learning_rate=5e-3,
        first_rate=5e-3,
        dim=256,
        batch_size=512,
        scale=20.0,
    ),
    "generated": SetUp(
        readers.read_generated,
        num_sampled=64,
        sampled_sweep=(48, 64, 128),
        learning_rate=1e-2,
        first_rate=1e-2,
        dim=16,
        batch_size=32,
        scale=24.0,
    ),
}


def options_of(text):
    """`{"num_trees": 5}` of `"num_trees=5"`; several are apart by ";"."""
    pairs = [part.split("=") for part in text.split(";") if part]
    return {name: ast.literal_eval(value) for name, value in pairs}


def prepare(name, folder, path):
    """Reads a data set into the file `path`, in a process of its own.

    Args:
        name: str, in `SETS`.
        folder: of the shared data.
        path: str, .npz.

    Raises:
        RuntimeError: the set cannot be read.
    """
    found = measure.in_fresh_process(
        "-m", "benchmarks.comparison.sets", name, folder, path
    )
    if "error" in found:
        raise RuntimeError(
            f"The data set {name!r} cannot be read from {folder}: "
            f"{found['error']}"
        )


def main(name, folder, path):
    data = SETS[name].read(pathlib.Path(folder))
    rows_lib.save(path, data)
    print(json.dumps({"classes": data.num_classes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
