"""A tagger as an ONNX model: features of texts in, ids of tags out.

ONNX has no ops for texts: `Tagger.features` reads them. TensorFlow's sparse
products and ragged ranges have no counterpart there; here they are gathers,
sums of cumulative counts and a scatter that adds.
"""

import os
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.export import labels as labels_lib
from tfxclass.export import onnx_model
from tfxclass.export.loading import new_path
from tfxclass.export.version_folder import new_folder
from tfxclass.types import Path
from tfxclass_text.embeddings import TextEmbedding
from tfxclass_text.ensemble import EMBEDDED
from tfxclass_text.ensemble import ENCODED
from tfxclass_text.ensemble import HIDDEN
from tfxclass_text.kernel_scores import KernelScores
from tfxclass_text.kernel_scores import scores_of_cosines
from tfxclass_text.near_texts import NearTexts
from tfxclass_text.perceptron import Perceptron
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.term_range import TermRange

_INPUTS = ("feature_ids", "feature_values")
# TensorFlow and ONNX Runtime sum in other orders.
_TOLERANCE = 1e-4


def export(tagger: Any, path: Path, k: int, verify: bool) -> str:
    """See `Tagger.export_onnx`."""
    onnx_model.check_extra()
    k = min(check_positive_int("k", k), len(tagger.tags))
    path = new_path(path)
    layers = _layers(tagger.model)
    names = labels_lib.read(list(map(str, tagger.tags)), len(tagger.tags))

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
            _verify(file, tagger.model, k)
    return os.path.join(path, onnx_model.MODEL)


class Layers(NamedTuple):
    """A tagger's model behind its terms.

    Attributes:
        linear: `SparseLinear`.
        near: `NearTexts` layers, one after the other.
        perceptron: `Perceptron`, or None.
        hidden: `MixedScores` of its logits, or None.
        embedding: `TextEmbedding`, or None.
        embedded: `MixedScores` of its scores, or None.
        ranges: `TermRange` layers, of the terms that the linear classifiers
            read and those that the embeddings read, or None: all.
    """

    linear: SparseLinear
    near: list[NearTexts]
    perceptron: Perceptron | None = None
    hidden: Any = None
    embedding: TextEmbedding | None = None
    embedded: Any = None
    ranges: tuple[TermRange, TermRange] | None = None


def _layers(model):
    by_name = {layer.name: layer for layer in model.layers}
    if ENCODED in by_name:
        raise ValueError(
            "ONNX has no ops for texts, which the encoder reads. "
            "Use `Tagger.export`, or fit without an encoder."
        )
    network = embedding = ranges = None
    if HIDDEN in by_name:
        network = Perceptron(by_name["hidden"], by_name["hidden_tags"])
    if EMBEDDED in by_name:
        embedding = TextEmbedding(
            by_name["embedded_terms"], by_name["embedded_tags"]
        )
    if "linear_terms" in by_name:
        ranges = by_name["linear_terms"], by_name["embedded_range"]
    near = [layer for layer in model.layers if isinstance(layer, NearTexts)]
    return Layers(
        by_name["tags"], near, network, by_name.get(HIDDEN), embedding,
        by_name.get(EMBEDDED), ranges,
    )  # fmt: skip


def probabilities(
    layers: Layers, ids: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """What a tagger's model gives, by ops that ONNX has, too.

    Args:
        layers: `Layers`.
        ids: int64 `[batch, n]`.
        values: float32 `[batch, n]`; where they are 0 there is no feature.

    Returns:
        float32 `[batch, labels]`.
    """
    linear, others = layers.linear, (ids, values)
    if layers.ranges is not None:
        (ids, values), others = (part(ids, values) for part in layers.ranges)
    found = linear.activated(margins(linear, ids, values))
    squares = tf.reduce_sum(values**2, axis=1, keepdims=True)
    unit = values / tf.maximum(tf.sqrt(squares), 1e-12)
    for layer in layers.near:
        scores = _scores(layer, margins(layer.similarity, ids, unit))
        found = (1 - layer.share) * found + layer.share * scores
    if layers.perceptron is not None:
        found = layers.hidden(found, _logits(layers.perceptron, ids, values))
    if layers.embedding is not None:
        found = layers.embedded(found, _embedded(layers.embedding, *others))
    return found


def _logits(network, ids, values):
    """As `network.logits`."""
    hidden, tags = network
    rows = tf.gather(_constant(hidden.kernel), ids)
    units = tf.squeeze(tf.matmul(values[:, tf.newaxis], rows), 1)
    units += _constant(hidden.bias)
    # GELU; TensorFlow's has an op that ONNX has not.
    units *= 0.5 * (1 + tf.math.erf(units * 0.5**0.5))
    return tf.matmul(units, _constant(tags.kernel)) + _constant(tags.bias)


def _embedded(embedding, ids, values):
    """As `embedding.log_probabilities`."""
    terms, tags = embedding
    rows = tf.gather(_constant(terms.kernel), ids)
    sums = tf.squeeze(tf.matmul(values[:, tf.newaxis], rows), 1)
    squares = tf.reduce_sum(sums**2, axis=1, keepdims=True)
    unit = sums / tf.maximum(tf.sqrt(squares), 1e-6)
    return tf.nn.log_softmax(tf.matmul(unit, _constant(tags.kernel)))


def _scores(layer, cosines):
    """As `layer.of_cosines`."""
    if isinstance(layer, KernelScores):
        return scores_of_cosines(
            cosines,
            _constant(layer.kernel),
            None if layer.basis is None else _constant(layer.basis),
            _constant(layer.means),
            layer.sums_to_one,
        )
    texts, weights = layer.nearest(cosines)
    begins = tf.gather(_constant(layer.splits), texts)
    ends = tf.gather(_constant(layer.splits), texts + 1)
    return _sum_lists(
        begins, ends - begins, weights, _constant(layer.labels), None,
        layer.num_labels,
    )  # fmt: skip


def margins(
    layer: SparseLinear, ids: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """As `SparseLinear.margins`, float32 `[batch, width]`."""
    places = tf.gather(_constant(layer.places), ids)
    is_dense = places >= 0
    rows = tf.gather(_constant(layer.dense), tf.where(is_dense, places, 0))
    weights = tf.where(is_dense, values, 0.0)
    result = tf.squeeze(tf.matmul(weights[:, tf.newaxis], rows), 1)
    result += _constant(layer.biases)
    if not layer.num_entries:
        return result
    splits = _constant(layer.splits)
    begins = tf.gather(splits, ids)
    lengths = tf.gather(splits, ids + 1) - begins
    # Features with a dense row have no list.
    lengths = tf.where(values != 0, lengths, tf.zeros_like(lengths))
    return result + _sum_lists(
        begins, lengths, values, _constant(layer.columns),
        _constant(layer.entries), layer.width,
    )  # fmt: skip


def _constant(variable):
    """Its value, as a constant of the graph that is being made."""
    with tf.init_scope():
        value = variable.numpy()
    return tf.constant(value)


def _sum_lists(begins, lengths, weights, columns, entries, width):
    """`[batch, width]`: list i of a row, `weights[i]` times its entries.

    Lists are columns[begin : begin + length], and the entries there, or 1.
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
    added = tf.gather(weights, owner)
    if entries is not None:
        added *= tf.gather(entries, places)
    at = owner // count * width + tf.cast(tf.gather(columns, places), tf.int64)
    summed = tf.tensor_scatter_nd_add(
        tf.zeros(tf.reshape(batch * width, [1])), at[:, tf.newaxis], added
    )
    return tf.reshape(summed, tf.stack([batch, tf.constant(width, tf.int64)]))


def _verify(file, model, k):
    import onnxruntime

    random = np.random.default_rng(0)
    shape = (3, 8)
    num_features = model.get_layer("text_features").num_features
    ids = random.integers(num_features, size=shape)
    values = random.random(shape, np.float32)
    values[1, 3:] = 0
    session = onnxruntime.InferenceSession(file)
    given = dict(zip(_INPUTS, (ids, values)))
    found_ids, found = session.run(["ids", "scores"], given)
    terms = model.get_layer("text_features").output
    expected = keras.Model(terms, model.output)([ids, values]).numpy()
    best = -np.sort(-expected, axis=1)[:, :k]
    own = np.take_along_axis(expected, found_ids, axis=1)
    for scores in (best, own):
        if not np.allclose(found, scores, atol=_TOLERANCE):
            raise RuntimeError(
                "ONNX Runtime answers otherwise than the tagger: scores differ "
                f"by {np.abs(found - scores).max()}"
            )
