"""`initialize_classes`: rows of classes from their names or descriptions."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.data.batches import Batches
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
    """Sets class rows to the features of the classes' names or descriptions.

    Where rows begin at random, training first has to find out which class is
    which; with an encoder that knows words, or even one of random embeddings
    (then this is TF-IDF in a random projection), it begins with an answer. A
    row is the mean of the normalised features of the class's texts: of length
    1 in cosine heads, in others as long as the rows are in the median. Biases
    stay. Rows of a tree's nodes are those of the classes below their children.
    Call it before training: indexes of samplers are built by the first step.

    For new classes, `tfxclass.add_classes(model, count, (texts, ids))`.

    Args:
        model: a built Keras model that ends in a head.
            Changed in place.
        texts: what the model reads: an array (of str, for an encoder of text),
            a sequence of str, or a dict or tuple of arrays. Row i is of class
            i, or of `labels`. Or batches of texts with their labels, a
            `tf.data.Dataset` or a `keras.utils.PyDataset`.
        labels: integers `[n]`, or `[n, p]` padded with -1, the classes that
            each row of `texts` describes. Classes without a text stay.
        batch_size: int, texts whose features are computed at a time.

    Returns:
        `model`.

    Raises:
        ValueError: no single head, texts for another number of classes, or
            labels that are no integers.
        InvalidArgumentError: labels out of range.

    Example:

    >>> tfxclass.initialize_classes(model, ["a small bird", "a large cat"])
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
    """`(texts, labels)`, arrays; without labels those of all classes."""
    if isinstance(texts, list):
        texts = np.asarray(texts)
    count = len(tf.nest.flatten(texts)[0])
    if labels is None:
        if count != num_classes:
            raise ValueError(
                "`texts` must have a row for each class, or `labels`. "
                f"Received: {count} with num_classes={num_classes}"
            )
        labels = np.arange(count)
    return texts, np.asarray(labels)
