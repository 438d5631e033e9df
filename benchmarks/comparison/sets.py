"""Each data set, as it is read from its files, and the model for it."""

import functools
import lzma
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import files
from benchmarks import measure
from benchmarks.comparison.rows import Rows
from benchmarks.comparison.rows import make_set

WINDOW = 2  # of word2vec: words on each side
HELD_OUT = 20  # one verse in so many is word2vec's test
WORD_DROPOUT = 0.5


def read_verses(folder, step=1):
    """Verse of a fourth translation -> its number, one verse in `step`."""
    x, y, test_x, test_y, idf = files.verses(folder / "verses")

    def rows(words, classes):
        kept = classes % step == 0
        words, classes = words[kept], classes[kept] // step
        shown = words > 0  # 0 is padding
        ids = words[shown] - 1
        keep = np.full(len(ids), 1 - WORD_DROPOUT, np.float32)
        starts = np.concatenate([[0], np.cumsum(shown.sum(axis=1))])
        return Rows(starts, ids, idf[ids + 1], keep, classes[:, np.newaxis])

    return make_set(
        num_words=len(idf) - 1,
        length=files.VERSE_LENGTH,
        num_classes=int(test_y.max()) // step + 1,
        train=rows(x, y),
        test=rows(test_x, test_y),
    )


def read_word2vec(folder):
    """Skip-gram on the King James text: a word -> the words around it."""
    _, verses = files.verse_words(folder / "verses", "kjv")
    train = [v for i, v in enumerate(verses) if i % HELD_OUT]
    test = verses[::HELD_OUT]
    known = sorted({word for verse in train for word in verse})
    numbers = {word: i for i, word in enumerate(known)}

    def rows(verses):
        words, contexts = [], []
        for verse in verses:
            verse = [numbers[word] for word in verse if word in numbers]
            for i, word in enumerate(verse):
                around = verse[max(i - WINDOW, 0) : i + WINDOW + 1]
                around = set(around) - {word}
                if around:
                    words.append(word)
                    contexts.append(sorted(around))
        ones = np.ones(len(words), np.float32)
        ids = np.array(words, np.int32)
        return Rows(
            np.arange(len(ids) + 1), ids, ones, ones, files.padded(contexts)
        )

    return make_set(
        num_words=len(known),
        length=1,
        num_classes=len(known),
        train=rows(train),
        test=rows(test),
    )


def read_eurlex57k(folder):
    """European law, a bag of words -> its EuroVoc labels."""
    parts = [
        read_xc(folder / "eurlex57k" / f"{name}.xc.txt.xz")
        for name in ("train", "test_a")
    ]
    (train, num_words, num_classes), (test, _, _) = parts
    # How many rows have each word: a row has it once.
    counts = np.bincount(train.ids, minlength=num_words)
    idf = np.log(train.num_rows / np.maximum(counts, 1)).astype(np.float32)

    def weighted(rows):
        values = np.log1p(rows.values) * idf[rows.ids]
        squares = np.concatenate([[0], np.cumsum(values.astype(float) ** 2)])
        norms = np.sqrt(squares[rows.starts[1:]] - squares[rows.starts[:-1]])
        each = np.repeat(norms, np.diff(rows.starts))
        return rows._replace(values=np.float32(values / np.maximum(each, 1e-6)))

    length = int(np.diff(train.starts).max())
    return make_set(
        num_words, length, num_classes, weighted(train), weighted(test)
    )


def read_xc(path):
    """`(Rows, features, labels)` of a file in XC format."""
    with lzma.open(path, "rt") as f:
        _, num_words, num_classes = map(int, next(f).split())
    labels, counts = zip(*files.xc(path))
    starts = np.cumsum([0, *map(len, counts)])
    ids = np.array([i for row in counts for i in row], np.int32)
    values = np.array([x for row in counts for x in row.values()], np.float32)
    rows = Rows(starts, ids, values, np.ones_like(values), files.padded(labels))
    return rows, num_words, num_classes


def read_reverse_dictionary(folder):
    """Definition -> word: WordNet to learn from, GCIDE as the test.

    Both are of packages, as in the demo; `folder` is not read.
    """
    del folder
    import tensorflow as tf

    from examples.reverse_dictionary import __main__ as demo
    from examples.reverse_dictionary import text
    from examples.reverse_dictionary import train

    task = demo.Task()
    columns = {kind: text.split_all(x) for kind, x in task.texts.items()}
    terms, idf = text.make_vocabulary([*columns.values()], len(task.labels))
    ids_of = tf.lookup.KeyValueTensorInitializer(
        terms, tf.range(len(terms), dtype=tf.int64)
    )
    table = tf.lookup.StaticHashTable(ids_of, default_value=-1)
    shown = train.Batches(table, columns, task.labels)
    ids = shown.ids.astype(np.int32)
    learned = Rows(shown.starts, ids, idf[ids], shown.keep, task.labels)
    queries, targets = task.queries[0], task.targets[0]  # of GCIDE
    asked, of_query = text.split_all(queries)
    asked = table.lookup(asked).numpy().astype(np.int32)
    of_query, asked = of_query[asked >= 0], asked[asked >= 0]
    starts = np.searchsorted(of_query, np.arange(len(queries) + 1))
    ones = np.ones(len(asked), np.float32)
    test = Rows(starts, asked, idf[asked], ones, targets[:, np.newaxis])
    return make_set(len(terms), shown.length, len(task.words), learned, test)


#: Sets that the papers' comparison takes where it is not asked for others.
USUAL = ("verses", "eurlex57k", "word2vec", "reverse_dictionary")


class SetUp(NamedTuple):
    """A data set and the model for it, the same for all methods."""

    read: Callable  # of the data folder; returns a `DataSet`
    num_sampled: int  # active classes M of a step, unless varied
    learning_rate: float  # of `LazyAdam`, where it stays as it is
    first_rate: float  # where it falls to nothing over the training
    dim: int = 128
    batch_size: int = 256
    scale: float | None = None  # of cosine logits; None for dot products
    activation: str | None = None  # of the encoder


SETS = {
    "verses": SetUp(read_verses, 1024, 3e-3, 6e-3, scale=24.0),
    "verses_third": SetUp(
        functools.partial(read_verses, step=3), 341, 3e-3, 6e-3, scale=24.0
    ),
    "verses_ninth": SetUp(
        functools.partial(read_verses, step=9),
        128,
        3e-3,
        6e-3,
        batch_size=64,
        scale=24.0,
    ),
    "eurlex57k": SetUp(
        read_eurlex57k, 640, 2e-3, 6e-3, batch_size=128, activation="relu"
    ),
    "word2vec": SetUp(read_word2vec, 1280, 2e-3, 4e-3, dim=200, batch_size=512),
    "reverse_dictionary": SetUp(
        read_reverse_dictionary,
        2048,
        5e-3,
        5e-3,
        dim=256,
        batch_size=512,
        scale=20.0,
    ),
}


def load(name, folder):
    """The `DataSet` of a name in `SETS`, from the folder of the shared data.

    It is kept in benchmarks/cache/comparison for the next process.
    """
    return measure.pickled(
        f"comparison/{name}", lambda: SETS[name].read(pathlib.Path(folder))
    )
