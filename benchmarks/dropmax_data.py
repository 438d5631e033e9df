"""Data sets of the DropMax table: images and documents with one label each."""

import collections
import os
import zipfile
from typing import NamedTuple

import numpy as np

from benchmarks import files

VALIDATION = 5_000  # of MNIST's 60,000
SIDE = 28
LABELS, WORDS = 100, 4_000  # of EURLEX57K


class Recipe(NamedTuple):
    """How a network is trained."""

    batch: int = 50
    rate: float = 1e-3  # Adam's first one
    rate_falls: bool = True  # to 1/10 after a third of the steps, then 1/100
    dropout: float = 0.0  # of the hidden layer of a network of images


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


def omniglot(folder, seed):
    """242 characters of 20 drawings: 12 to learn, 3 to tune, 5 to test."""
    drawings = {}
    for part in ("small1", "small2"):
        name = f"omniglot_small/images_background_{part}.zip"
        with zipfile.ZipFile(os.path.join(folder, name)) as archive:
            for path in archive.namelist():
                if path.endswith(".png"):
                    # Some alphabets are in both.
                    key = tuple(path.split("/")[1:])
                    drawings[key] = archive.read(path)
    characters = sorted({key[:2] for key in drawings})
    ids = {character: i for i, character in enumerate(characters)}
    keys = sorted(drawings)
    x = np.stack([_small_picture(drawings[key]) for key in keys])
    y = np.array([ids[key[:2]] for key in keys], np.int64)
    # Each of the 20 people drew every character of an alphabet.
    place = np.array([int(key[2][-6:-4]) - 1 for key in keys])
    place = np.random.default_rng(seed).permutation(20)[place]
    parts = (place < 12, (place >= 12) & (place < 15), place >= 15)
    return DataSet(*((x[part], y[part]) for part in parts), len(ids))


def _small_picture(png):
    import tensorflow as tf

    picture = 1 - tf.cast(tf.io.decode_png(png, channels=1), tf.float32) / 255
    return tf.image.resize(picture, [SIDE, SIDE], method="area").numpy()


def eurlex(folder, seed):
    """Documents with exactly one of the 100 most frequent subjects.

    Features: TF-IDF of the words that most documents have, normalised.
    """
    rows = {
        part: list(files.xc(f"{folder}/eurlex57k/{part}.xc.txt.xz"))
        for part in ("train", "dev", "test_a")
    }
    labels = collections.Counter(c for r in rows["train"] for c in r[0])
    words = collections.Counter(w for r in rows["train"] for w in r[1])
    classes = _numbered(labels.most_common(LABELS))
    columns = _numbered(words.most_common(WORDS))
    counts = np.array([n for _, n in words.most_common(WORDS)])
    idf = np.log(len(rows["train"]) / counts)
    parts = [_dense(part, classes, columns, idf) for part in rows.values()]
    return DataSet(*parts, LABELS)


def _numbered(counted):
    return {key: i for i, (key, _) in enumerate(counted)}


def _dense(rows, classes, columns, idf):
    x, y = [], []
    for labels, counts in rows:
        found = [classes[c] for c in labels if c in classes]
        if len(found) != 1:
            continue
        row = np.zeros(len(columns), np.float32)
        for word, count in counts.items():
            if word in columns:
                row[columns[word]] = np.log1p(count)
        row *= idf
        x.append(row / max(np.linalg.norm(row), 1e-9))
        y.append(found[0])
    return np.array(x, np.float32), np.array(y, np.int64)
