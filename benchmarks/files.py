"""The files of the data sets, and arrays of their rows."""

import gzip
import lzma

import numpy as np


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
