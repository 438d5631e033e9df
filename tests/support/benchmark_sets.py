"""Small generated sets that the benchmarks' tests train on."""

import numpy as np

from benchmarks import dropmax
from benchmarks.comparison import sets
from benchmarks.comparison.rows import Rows
from benchmarks.comparison.rows import make_set
from benchmarks.dropmax_methods import DataSet


def generated_rows(folder=None, num_classes=300, rows_a_class=12, seed=0):
    """Rows of the words of their class among other words."""
    del folder
    random = np.random.default_rng(seed)
    num_words, length = 2 * num_classes, 8
    own = random.integers(0, num_words, (num_classes, length))

    def rows(count):
        # Falling frequencies, so that samplers by frequency differ.
        law = 1 / np.sqrt(np.arange(1, num_classes + 1))
        classes = random.choice(num_classes, count, p=law / law.sum())
        noise = random.integers(0, num_words, (count, length))
        ids = np.where(
            random.random((count, length)) < 0.6, own[classes], noise
        )
        ones = np.ones(ids.size, np.float32)
        return Rows(
            np.arange(count + 1) * length,
            ids.ravel().astype(np.int32),
            ones,
            0.8 * ones,
            classes[:, np.newaxis],
        )

    return make_set(
        num_words,
        length,
        num_classes,
        rows(rows_a_class * num_classes),
        rows(num_classes),
    )


def generated_pictures(folder, seed):
    """Noisy pictures of 10 classes."""
    del folder
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(0).uniform(size=(10, 28, 28, 1))
    parts = []
    for rows in (200, 100, 100):
        y = random.integers(0, 10, rows)
        x = centers[y] + random.normal(size=(rows, 28, 28, 1))
        parts.append((x.astype(np.float32), y))
    return DataSet(*parts, 10)


sets.SETS["generated"] = sets.SetUp(
    generated_rows, 64, 1e-2, 1e-2, dim=16, batch_size=32, scale=24.0
)
dropmax.SETS["generated"] = dropmax.SetUp(generated_pictures, 12)
