"""Differentiated softmax, the softmax over several matrices, frequency
blocks."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import reference
from tests.support.cases import check_refused
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import LONG
from tests.support.contract import HeadContract
from tests.support.contract import built
from tests.support.contract import data
from tfxclass import layers
from tfxclass import losses
from tfxclass.rows import blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss import cross_entropy

BLOCKS = [(10, 5), (20, 2), (30, 1)]


class TestDifferentiatedSoftmax(HeadContract):
    slow_tests = LONG

    def make_head(self, num_classes=CLASSES, **changes):
        blocks = BLOCKS if num_classes == CLASSES else [(1, DIM)]
        return layers.DifferentiatedSoftmax(
            num_classes, **{"blocks": blocks, **changes}
        )

    def logits(self, head, features):
        kernels = [kernel.numpy() for kernel in head.kernels]
        return reference.differentiated_logits(features, kernels)


SIZES = (2503, 3, 1400)  # several blocks, less than a block, a whole and a part
FIRST = (0, *SIZES[:-1])
WIDTHS = (5, 4, 2)
LABELS = np.array(
    [[0, 2502, -1], [2503, -1, 2505], [2506, 3905, 5], [7, -1, -1], [-1] * 3]
)


@pytest.mark.parametrize("block_logits", [1, 1 << 21])
def test_cross_entropy_of_parts(block_logits, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", block_logits)
    random = np.random.default_rng(0)
    batch = len(LABELS)
    queries = [2 * random.normal(size=(batch, width)) for width in WIDTHS]
    kernels = [random.normal(size=shape) for shape in zip(SIZES, WIDTHS)]
    upstream = random.normal(size=batch)

    def in_numpy(arrays):
        products = [x @ k.T for x, k in zip(arrays[:3], arrays[3:])]
        logits = np.concatenate(products, axis=1)
        return reference.cross_entropy(logits, LABELS)

    given = [tf.constant(x, tf.float32) for x in queries + kernels]
    with tf.GradientTape() as tape:
        tape.watch(given)
        parts = [
            (x, ClassRows(kernel, first=first, size=len(kernel)))
            for x, kernel, first in zip(given[:3], given[3:], np.cumsum(FIRST))
        ]
        targets = losses.as_targets(LABELS, sum(SIZES))
        result = cross_entropy(parts, targets)
    np.testing.assert_allclose(
        result, in_numpy(queries + kernels), rtol=1e-5, atol=1e-5
    )
    gradients = tape.gradient(
        result, given, output_gradients=tf.constant(upstream, tf.float32)
    )
    arrays = queries + kernels
    for i, gradient in enumerate(gradients):
        for scale in (1.0, 0.1):
            direction = random.normal(size=arrays[i].shape)
            direction *= random.random(direction.shape) < scale

            def along(x, i=i):
                return upstream @ in_numpy([*arrays[:i], x, *arrays[i + 1 :]])

            slope = reference.numeric_gradient(along, arrays[i], direction)
            np.testing.assert_allclose(
                np.sum(gradient * direction), slope, rtol=2e-4, atol=2e-4
            )


def test_one_block_is_the_full_softmax():
    """The exactness anchor: loss and gradients."""
    x, y = data(labels_wide=2)
    results = []
    for head in (
        layers.FullSoftmax(CLASSES),
        layers.DifferentiatedSoftmax(CLASSES, blocks=[(CLASSES, DIM)]),
    ):
        built(head)
        features = tf.constant(x)
        kernel = head.trainable_variables[0].value
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = head.compute_loss(features, y, training=True)
        gradients = tape.gradient(
            loss,
            [features, kernel],
            output_gradients=tf.constant(data(seed=5)[0][:, 0]),
        )
        results.append([loss, *gradients])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_block_reads_its_own_features_alone():
    head = built(layers.DifferentiatedSoftmax(CLASSES, BLOCKS, activation=None))
    x, _ = data()
    before = head(x).numpy()
    x[:, 5:7] += 1.0
    moved = np.any(head(x).numpy() != before, axis=0)
    assert np.all(moved[10:30])
    assert not np.any(moved[:10]) and not np.any(moved[30:])


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    num_blocks=st.integers(1, 40),
)
def test_split_by_frequency(counts, num_blocks):
    counts = sorted(counts, reverse=True)
    num_blocks = min(num_blocks, len(counts))
    sizes = layers.split_by_frequency(counts, num_blocks)
    assert len(sizes) == num_blocks and sum(sizes) == len(counts)
    assert all(isinstance(size, int) and size >= 1 for size in sizes)
    # Each end is where the blocks up to it reach their share, unless blocks
    # of one class are in its way.
    shares, ends = np.cumsum(counts), np.cumsum(sizes)[:-1]
    for i, end in enumerate(ends, 1):
        wanted = shares[-1] * i / num_blocks
        if i < end < len(counts) - (num_blocks - i) and sizes[i - 1] > 1:
            assert shares[end - 1] >= wanted > shares[end - 2]


def test_split_of_a_zipf_law():
    counts = 1e6 / np.arange(1, 100_001)
    sizes = layers.split_by_frequency(counts, 3)
    parts = np.split(counts, np.cumsum(sizes)[:-1])
    shares = [part.sum() / counts.sum() for part in parts]
    # The first class alone is 8 %.
    np.testing.assert_allclose(shares, 1 / 3, atol=0.02)
    assert sizes[0] < sizes[1] < sizes[2]


INVALID = {
    "no_blocks": (
        lambda: layers.DifferentiatedSoftmax(9, []),
        ["`blocks` must be a list of (size, width)", "[]"],
    ),
    "triples": (
        lambda: layers.DifferentiatedSoftmax(9, [(9, 4, 1)]),
        ["(size, width)", "(9, 4, 1)"],
    ),
    "width_zero": (
        lambda: layers.DifferentiatedSoftmax(9, [(9, 0)]),
        ["`blocks`", "positive integer", "0"],
    ),
    "sizes": (
        lambda: layers.DifferentiatedSoftmax(9, [(4, 2), (4, 1)]),
        ["sum up to `num_classes`", "8 classes", "num_classes=9"],
    ),
    "widths": (
        lambda: layers.DifferentiatedSoftmax(9, [(4, 2), (5, 1)]).build(
            (None, 4)
        ),
        ["widths [2, 1] = 3 with 4 features"],
    ),
    "counts_rising": (
        lambda: layers.split_by_frequency([3, 2, 5, 1], 2),
        ["`counts` must be falling", "2.0 for class 1 and 5.0 for class 2"],
    ),
    "counts_negative": (
        lambda: layers.split_by_frequency([3, 2, -1], 2),
        ["finite and >= 0", "-1.0"],
    ),
    "counts_nan": (
        lambda: layers.split_by_frequency([3, float("nan"), 1], 2),
        ["finite and >= 0"],
    ),
    "counts_few": (
        lambda: layers.split_by_frequency([3, 2], 3),
        ["shape (2,) with num_blocks=3"],
    ),
    "num_blocks": (
        lambda: layers.split_by_frequency([3, 2], 0),
        ["`num_blocks` must be a positive integer"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])
