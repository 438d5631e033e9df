"""What several test files share."""

import gzip
import lzma
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass


class Tree(NamedTuple):
    """A tree of `HashingForest.state()`; nodes are (begin, end, child,
    plane), planes are rows of float64."""

    nodes: np.ndarray
    ids: np.ndarray
    planes: np.ndarray


class Forest(NamedTuple):
    count: int
    dim: int
    trees: list


class _Reader:
    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, dtype, count=1):
        values = np.frombuffer(self.data, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def list(self, dtype):
        return self.take(dtype, int(self.take(np.int64)[0]))


def parse_forest(data):
    """The bytes that ForestBytes of forest_indexer.h writes."""
    reader = _Reader(data)
    count, dim, num_trees = (int(n) for n in reader.take(np.int64, 3))
    width = dim
    if num_trees < 0:  # that of the sketch, before the number
        width, num_trees = -num_trees, int(reader.take(np.int64, 1)[0])
    padded = -(-width // 16) * 16
    trees = []
    for _ in range(num_trees):
        nodes = reader.list(np.dtype((np.int32, 4)))
        ids = reader.list(np.int32)
        values = reader.list(np.int16).reshape(-1, padded)
        rounding = reader.list(np.dtype((np.float32, 2)))
        scale = rounding[:, :1].astype(np.float64)
        trees.append(Tree(nodes, ids, scale * values[:, :width]))
    assert reader.at == len(reader.data)
    return Forest(count, dim, trees)


def fit(model, x, y, batch_size, epochs=1):
    """Losses of epochs in the order of the rows.

    As `fit` on arrays, but with one iterator for all epochs: a strategy takes
    longer to make one than to run these steps.
    """
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)
    options = {"steps_per_epoch": len(data), "epochs": epochs, "verbose": 0}
    return model.fit(data.repeat(), shuffle=False, **options).history["loss"]


def make_text_model(num_classes, vocabulary=("a", "tool", "nails")):
    """A model from a text to classes."""
    keras.utils.set_random_seed(0)
    vectorize = keras.layers.TextVectorization(
        output_sequence_length=4, vocabulary=list(vocabulary)
    )
    text = keras.Input((), dtype="string", name="text")
    words = keras.layers.Embedding(5, 8)(vectorize(text))
    features = keras.layers.GlobalAveragePooling1D()(words)
    head = tfxclass.layers.FullSoftmax(num_classes)
    return keras.Model(text, head(features))


def xc_line(labels, pairs):
    """A row of the extreme-classification format, without a newline."""
    features = "".join(f" {i}:{v}" for i, v in pairs)
    return ",".join(map(str, labels)) + (features or " ")


def write_xc(path, rows, num_features, num_classes):
    """Writes rows of `(labels, [(feature, value), ...])`; .gz, .xz or text."""
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wt") as f:
        f.write(f"{len(rows)} {num_features} {num_classes}\n")
        f.writelines(xc_line(*row) + "\n" for row in rows)


def parse_xc(line):
    """`(labels, [(feature, value), ...])` of a line, the plain way."""
    labels, _, features = line.rstrip("\n").partition(" ")
    pairs = [pair.split(":") for pair in features.split()]
    return (
        [int(label) for label in labels.split(",") if label],
        [(int(i), np.float32(v)) for i, v in pairs],
    )
