"""Rows of padding are left out of a training step, and change nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass import layers

CLASSES, DIM = 40, 4
HEADS = {
    "sampled": lambda: layers.SampledSoftmax(
        CLASSES, CLASSES, "uniform", seed=1
    ),
    "sigmoid": lambda: layers.SampledSoftmax(
        CLASSES, CLASSES, "uniform", seed=1, loss="sigmoid"
    ),
    "auto": lambda: layers.SampledSoftmax(CLASSES, CLASSES, seed=1),
    "word2vec": lambda: layers.NegativeSampling(CLASSES, CLASSES, seed=1),
}


def rows(num_labelled):
    random = np.random.default_rng(0)
    features = random.normal(size=(3, 5, DIM)).astype(np.float32)
    labels = random.integers(0, CLASSES, (3, 5))
    labels.ravel()[random.permutation(15)[num_labelled:]] = -1
    return tf.constant(features), labels


def step(head, features, labels):
    head.build((None, DIM))
    kernel = np.random.default_rng(3).normal(size=(CLASSES, DIM))
    head.kernel.assign(kernel)
    with tf.GradientTape() as tape:
        tape.watch(features)
        losses = head.compute_loss(features, labels, training=True)
    gradients = tape.gradient(losses, [features, head.kernel.value])
    return losses, *map(tf.convert_to_tensor, gradients)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("num_labelled", [0, 1, 9, 15])
def test_a_step_is_that_of_all_rows(kind, num_labelled):
    features, labels = rows(num_labelled)
    found = step(HEADS[kind](), features, labels)
    flat = tf.reshape(features, [15, DIM])
    expected = step(HEADS[kind](), flat, labels.ravel())
    assert np.all(np.asarray(found[0])[labels < 0] == 0)
    for new, old in zip(found, expected):
        old = tf.reshape(old, new.shape)
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_metrics_in_training():
    features, labels = rows(9)
    results = []
    for x, y in (
        (features, labels),
        (tf.reshape(features, [15, DIM]), labels.ravel()),
    ):
        keras.utils.set_random_seed(2)
        head = HEADS["sampled"]()
        metric = tfxclass.metrics.NDCGAtK(head, k=5)
        output = head(x, training=True)
        head.loss(y, output)
        metric.update_state(y, output)
        results.append(float(metric.result()))
    assert results[0] == pytest.approx(results[1]) and results[0] > 0
