"""A tagger as an ONNX model: features of texts in, ids of tags out.

ONNX has no ops for texts: `Tagger.features` reads them. TensorFlow's sparse
products and ragged ranges have no counterpart there; here they are gathers,
sums of cumulative counts and a scatter that adds.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.export import labels as labels_lib
from tfxclass.export import onnx_model
from tfxclass.export.version_folder import new_folder
from tfxclass.export.version_folder import new_path
from tfxclass.types import Path
from tfxclass_text.embeddings import log_cosines
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.tagger_model import Layers
from tfxclass_text.tagger_model import layers_of

_INPUTS = ("feature_ids", "feature_values")
# TensorFlow and ONNX Runtime sum in other orders.
_TOLERANCE = 1e-4


def export(tagger: Any, path: Path, k: int, verify: bool) -> str:
    """See `Tagger.export_onnx`."""
    onnx_model.check_extra()
    k = min(check_positive_int("k", k), len(tagger.tags))
    path = new_path(path)
    layers = layers_of(tagger.model)
    if layers.encoder is not None:
        raise ValueError(
            "ONNX has no ops for texts, which the encoder reads. "
            "Use `Tagger.export`, or fit without an encoder."
        )
    names = labels_lib.checked_names("labels", map(str, tagger.tags))

    def answer(ids, values):
        scores, best = tf.math.top_k(probabilities(layers, ids, values), k)
        return tf.cast(best, tf.int64), scores

    specs = [
        tf.TensorSpec([None, None], dtype, name)
        for dtype, name in zip((tf.int64, tf.float32), _INPUTS)
    ]
    model = onnx_model.convert(answer, specs)
    with new_folder(path) as folder:
        file = os.path.join(folder, onnx_model.MODEL)
        with open(file, "wb") as f:
            f.write(model.SerializeToString())
        labels_lib.write(names, folder)
        if verify:
            _verify(file, layers, k)
    return os.path.join(path, onnx_model.MODEL)


def probabilities(
    layers: Layers, ids: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """As `Layers.probabilities`, by ops that ONNX has, too."""
    found = layers.linear.activated(margins(layers.linear, ids, values))
    if layers.votes is not None:
        share = layers.votes.share
        votes = _votes(layers.votes, ids, values)
        found = (1 - share) * found + share * votes
    if layers.embedding is not None:
        _, _, sums = layers.embedding.dense(ids, values)
        logits = log_cosines(sums, layers.embedding.tags.value)
        found = layers.mixed_embedding(found, logits)
    return found


def _votes(layer, ids, values):
    """As the layer's `votes`."""
    texts, weights = layer.nearest(margins(layer.similarity, ids, values))
    begins = tf.gather(layer.splits.value, texts)
    lengths = tf.gather(layer.splits.value, texts + 1) - begins
    labels = layer.labels.value
    ones = tf.ones(tf.shape(labels))
    return _sum_lists(begins, lengths, weights, labels, ones, layer.num_labels)


def margins(
    layer: SparseLinear, ids: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """As `SparseLinear.margins`, float32 `[batch, width]`."""
    places = tf.gather(layer.places.value, ids)
    is_dense = places >= 0
    rows = tf.gather(layer.dense.value, tf.where(is_dense, places, 0))
    weights = tf.where(is_dense, values, 0.0)
    result = tf.squeeze(tf.matmul(weights[:, tf.newaxis], rows), 1)
    result += layer.biases.value
    if not layer.num_entries:
        return result
    splits = layer.splits.value
    begins = tf.gather(splits, ids)
    lengths = tf.gather(splits, ids + 1) - begins
    # Features with a dense row have no list.
    lengths = tf.where(values != 0, lengths, tf.zeros_like(lengths))
    return result + _sum_lists(
        begins, lengths, values, layer.columns.value,
        layer.entries.value, layer.width,
    )  # fmt: skip


def _sum_lists(begins, lengths, weights, columns, entries, width):
    """`[batch, width]`: list i of a row, `weights[i]` times its entries.

    Lists are columns[begin : begin + length], and the entries there.
    """
    batch, count = tf.unstack(tf.shape(begins, tf.int64))
    begins, lengths, weights = (
        tf.reshape(x, [-1]) for x in (begins, lengths, weights)
    )
    ends = tf.cumsum(lengths)
    total = tf.reduce_sum(lengths)
    # An element more, where lists end that nothing follows.
    marks = tf.zeros(tf.reshape(total + 1, [1]), tf.int64)
    marks = tf.tensor_scatter_nd_add(
        marks, ends[:, tf.newaxis], tf.ones_like(ends)
    )
    owner = tf.cumsum(marks)[:-1]
    starts = tf.gather(begins - ends + lengths, owner)
    places = tf.range(total) + starts
    added = tf.gather(weights, owner) * tf.gather(entries, places)
    at = owner // count * width + tf.cast(tf.gather(columns, places), tf.int64)
    summed = tf.tensor_scatter_nd_add(
        tf.zeros(tf.reshape(batch * width, [1])), at[:, tf.newaxis], added
    )
    return tf.reshape(summed, tf.stack([batch, tf.constant(width, tf.int64)]))


def _verify(file, layers, k):
    import onnxruntime

    random = np.random.default_rng(0)
    shape = (3, 8)
    ids = random.integers(layers.features.num_features, size=shape)
    values = random.random(shape, np.float32)
    values[1, 3:] = 0
    session = onnxruntime.InferenceSession(file)
    given = dict(zip(_INPUTS, (ids, values)))
    found_ids, found = session.run(["ids", "scores"], given)
    expected = layers.probabilities(None, (ids, values)).numpy()
    best = -np.sort(-expected, axis=1)[:, :k]
    own = np.take_along_axis(expected, found_ids, axis=1)
    for scores in (best, own):
        if not np.allclose(found, scores, atol=_TOLERANCE):
            raise RuntimeError(
                "ONNX Runtime answers otherwise than the tagger: scores differ "
                f"by {np.abs(found - scores).max()}"
            )
