"""The files of the data sets, and arrays of their rows."""

import collections
import gzip
import lzma
import math
import os
import re

import numpy as np

VERSE_LENGTH = 48  # words


def tsv(path):
    """Fields of each line of a .tsv.xz file, lists of str."""
    with lzma.open(path, "rt", encoding="utf8") as f:
        for line in f:
            yield line.rstrip("\n").split("\t")


def xc(path):
    """`(labels, {word: count})` of each document of an .xc.txt.xz file."""
    with lzma.open(path, "rt") as f:
        next(f)
        for line in f:
            labels, _, words = line.partition(" ")
            pairs = (pair.split(":") for pair in words.split())
            counts = {int(word): float(count) for word, count in pairs}
            yield [int(c) for c in labels.split(",") if c], counts


def mnist(folder, part):
    """`(x, y)` of "train" or "t10k": uint8 `[n, 28, 28]`, int64 `[n]`."""
    return (
        _idx(f"{folder}/mnist/{part}-images-idx3-ubyte.gz"),
        _idx(f"{folder}/mnist/{part}-labels-idx1-ubyte.gz").astype(np.int64),
    )


def _idx(path):
    with gzip.open(path) as f:
        data = f.read()
    shape = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def padded(rows, value=-1, width=None, dtype=np.int64):
    """Lists as an array `[rows, width]`, cut or padded; by default as long as
    the longest."""
    width = width or max(1, *map(len, rows))
    found = np.full((len(rows), width), value, dtype)
    for of_array, row in zip(found, rows):
        of_array[: len(row)] = row[:width]
    return found


def shuffled(random, count, wanted):
    """`wanted` of `count` rows, each as often as any other but by one."""
    passes = [random.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(passes)[:wanted]


def verse_words(folder, name):
    """`(verse ids, words of each verse)` of a translation."""
    _, *pairs = tsv(os.path.join(folder, name + ".tsv.xz"))
    words = [re.findall("[a-z]+", text.lower()) for _, text in pairs]
    return [verse for verse, _ in pairs], words


def verses(folder):
    """The verses of four translations: `(x, y, test_x, test_y, idf)`.

    The folder has kjv, asv, dar and, as the test, ylt. Words are ids, 0 is
    padding.
    """
    train = [verse_words(folder, name) for name in ("kjv", "asv", "dar")]
    test = verse_words(folder, "ylt")
    classes = {verse: i for i, verse in enumerate(sorted(set(test[0])))}
    every = [set(words) for _, texts in train for words in texts]
    counts = collections.Counter(word for words in every for word in words)
    vocabulary = {word: i + 1 for i, word in enumerate(sorted(counts))}
    idf = np.zeros(len(vocabulary) + 1, np.float32)
    for word, i in vocabulary.items():
        idf[i] = math.log(len(every) / counts[word])

    def encode(verses, texts):
        x = np.zeros((len(texts), VERSE_LENGTH), np.int32)
        for row, words in zip(x, texts, strict=True):
            known = [vocabulary[w] for w in words if w in vocabulary]
            row[: len(known[:VERSE_LENGTH])] = known[:VERSE_LENGTH]
        return x, np.array([classes[verse] for verse in verses])

    pairs = [encode(*translation) for translation in train]
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return (x, y, *encode(*test), idf)
