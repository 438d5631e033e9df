"""`initialize_classes`: class vectors from names, descriptions or examples."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.core.forward import flatten
from tfxclass.core.targets import as_targets
from tfxclass.data.batches import Batches
from tfxclass.data.batches import as_arrays
from tfxclass.inference.graph import encoder_of
from tfxclass.keras_internals import get_mask
from tfxclass.layers.output_head import OutputHead
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import Seen
from tfxclass.trees.class_means import directions
from tfxclass.types import Labels


def initialize_classes(
    model: keras.Model,
    texts: Any,
    labels: Labels | None = None,
    batch_size: int = 256,
) -> keras.Model:
    """Sets class vectors to the features of class names or descriptions.

    Use it before training, if classes have texts or examples. With an encoder
    that knows words, or even with random embeddings, training then starts from
    a useful model.

    The vector of a class is the mean of the normalized features of its texts.
    In cosine heads it has length 1, and in others the median length of the
    class vectors. Biases stay. In a tree, a node gets the vectors of the
    classes below its children. To add new classes, use
    `tfxclass.add_classes(model, count, (texts, ids))`.

    Args:
        model: a built Keras model that ends in a head. It is changed in place,
            and returned.
        texts: inputs of the model: an array (str for an encoder of text), a
            sequence of str, or a dict or tuple of arrays. Or batches of inputs
            with labels, a `tf.data.Dataset` or a `keras.utils.PyDataset`.
        labels: integers `[n]`, or `[n, p]` padded with -1, the classes that
            each row of `texts` describes. Classes without a text stay as they
            are. By default row i describes class i.
        batch_size: int, number of texts whose features are computed at a time.

    Raises:
        ValueError: if there is no single head, or texts and labels do not fit.
        InvalidArgumentError: if labels are out of range.

    Example:

    ```python
    names = ["a small bird", "a large cat"]
    vectorize = keras.layers.TextVectorization()
    vectorize.adapt(names)
    head = tfxclass.layers.FullSoftmax(2)
    model = keras.Sequential([
        keras.Input([], dtype="string"),
        vectorize,
        keras.layers.Embedding(vectorize.vocabulary_size(), 16),
        keras.layers.GlobalAveragePooling1D(),
        head,
    ])
    tfxclass.initialize_classes(model, names)
    ```
    """
    encoder, head = encoder_of(model)
    if not isinstance(texts, (tf.data.Dataset, keras.utils.PyDataset)):
        texts = _with_labels(texts, labels, head.num_classes)
    batches = Batches("texts", texts, batch_size)
    ids = np.arange(head.num_classes)
    means = class_means(encoder, head, batches, ids, head.num_classes)
    head.growth.set_means(ids, means)
    return model


def _with_labels(texts, labels, num_classes):
    """`(texts, labels)` as arrays; by default a label for each class."""
    (texts,) = as_arrays("texts", (texts,))
    count = len(tf.nest.flatten(texts)[0])
    if labels is None:
        if count != num_classes:
            raise ValueError(
                "`texts` must have a row for each class, or `labels`. "
                f"Received: {count} with num_classes={num_classes}"
            )
        labels = np.arange(count)
    return texts, labels


def class_means(
    encoder: keras.Model,
    head: OutputHead,
    batches: Batches,
    ids: np.ndarray,
    num_classes: int,
) -> ClassMeans:
    """`ClassMeans` of the classes `ids`, rising; others are passed over."""
    counts, num_rows = np.zeros(len(ids), np.int64), 0
    is_seen = np.zeros(num_classes, bool)
    # Each part of the head has sums by class, sums, and second moments.
    sums: list[np.ndarray] = []
    totals: list[np.ndarray] = []
    seconds: list[np.ndarray] = []
    step = "Computing the features of batches"
    for batch in progress.progress_iter(batches, step, batches.count):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        features = tf.convert_to_tensor(encoder(x, training=False))
        leading, mask = tf.shape(features)[:-1], get_mask(features)
        labels = as_targets(y, num_classes, leading, mask).ids.numpy()
        # Rows of the batch, and the place of the class of each.
        rows, columns = np.nonzero(np.isin(labels, ids))
        numbers = np.searchsorted(ids, labels[rows, columns])
        np.add.at(counts, numbers, 1)
        has_class = np.any(labels >= 0, axis=1)
        num_rows += int(has_class.sum())
        is_seen[labels[labels >= 0]] = True
        queries = [flatten(features)]
        if head.has_class_rows:
            queries = head.part_queries(queries[0])
        queries = [directions(q.numpy()) for q in queries]
        if not sums:
            widths = [q.shape[1] for q in queries]
            sums = [np.zeros((len(ids), n), np.float32) for n in widths]
            totals = [np.zeros(n) for n in widths]
            seconds = [np.zeros((n, n)) for n in widths]
        for part, query in enumerate(queries):
            np.add.at(sums[part], numbers, query[rows])
            wide = query[has_class].astype(np.float64)
            totals[part] += wide.sum(axis=0)
            seconds[part] += wide.T @ wide
    seen = Seen(num_rows, int(is_seen.sum()), totals, seconds)
    of_parts = [directions(total) for total in sums]
    return ClassMeans(of_parts, counts, sums, seen)
