"""`initialize_classes`: rows of classes from their names or descriptions."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.data.batches import Batches
from tfxclass.data.batches import as_arrays
from tfxclass.growth.feature_means import class_means
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.types import Labels


def initialize_classes(
    model: keras.Model,
    texts: Any,
    labels: Labels | None = None,
    batch_size: int = 256,
) -> keras.Model:
    """Sets class vectors to the features of class names or descriptions.

    Use it before training, if classes have texts or examples. With random class
    vectors, training first has to find out which class is which. With an
    encoder that knows words, or even with random embeddings, it starts from a
    useful model.

    The vector of a class is the mean of the normalized features of its texts.
    In cosine heads it has length 1, and in others the median length of the
    class vectors. Biases stay. In a tree, a node gets the vectors of the
    classes below its children. To add new classes, use
    `tfxclass.add_classes(model, count, (texts, ids))`.

    Args:
        model: a built Keras model that ends in a head. It is changed in place.
        texts: inputs of the model: an array (str for an encoder of text), a
            sequence of str, or a dict or tuple of arrays. Row i describes class
            i, or class `labels[i]`. Or batches of inputs with labels, a
            `tf.data.Dataset` or a `keras.utils.PyDataset`.
        labels: integers `[n]`, or `[n, p]` padded with -1, the classes that
            each row of `texts` describes. Classes without a text stay as they
            are. Defaults to None, one row for each class.
        batch_size: int, number of texts whose features are computed at a time.

    Returns:
        `model`.

    Raises:
        ValueError: if there is no single head, `texts` has another number of
            classes, or labels are not integers.
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
    inputs, features, head = encoder_of(model)
    if not isinstance(texts, (tf.data.Dataset, keras.utils.PyDataset)):
        texts = _with_labels(texts, labels, head.num_classes)
    batches = Batches("texts", texts, batch_size)
    encoder = keras.Model(inputs_as_given(model, inputs), features)
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
