"""The batch's own classes as negatives, with streamed frequencies."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import check_refused
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers

CLASSES, DIM, SAMPLED = 50, 4, 12


def head_of(**options):
    sampler = samplers.BatchSampler(SAMPLED, num_buckets=64, seed=1, **options)
    head = layers.SampledSoftmax(CLASSES, sampler=sampler, seed=2)
    head.build((None, DIM))
    return head


def sample(head, labels):
    labels = tf.constant(labels, tf.int64)
    queries = tf.ones([labels.shape[0], DIM])
    return head.sampler.sample(queries, labels, head.kernel)


def ids_in(found):
    """Classes that count, the same for all rows of the batch."""
    mask = found.mask.numpy()
    assert np.all(mask == mask[0])
    return set(found.ids.numpy()[mask[0]].tolist())


def test_the_batch_and_no_other_class():
    head = head_of()
    labels = [[7, -1], [3, 9], [7, 7]]
    found = sample(head, labels)
    assert found.ids.shape == [SAMPLED] and ids_in(found) == {3, 7, 9}
    columns = found.ids.numpy()[found.positions.numpy()]
    is_label = np.array(labels) >= 0
    np.testing.assert_array_equal(columns[is_label], np.array(labels)[is_label])
    many = np.arange(SAMPLED + 1)
    assert ids_in(sample(head, many[:, np.newaxis])) == set(many)


def test_the_last_labels_are_negatives():
    head = head_of(memory=4)
    for labels in ([1, 2], [3, 4], [5, 6]):
        found = sample(head, np.array(labels)[:, np.newaxis])
    assert ids_in(found) == {1, 2, 3, 4, 5, 6}
    assert ids_in(sample(head, [[3], [9]])) == {3, 9, 5, 4, 6}


def test_shares_of_batches_are_learned():
    """A class in each step, one in every fourth, one never again."""
    head = head_of(rate=0.3, correct_labels=True)
    for step in range(120):
        labels = [0, 10 if step % 4 == 0 else 0, 20 if step == 0 else 0]
        found = sample(head, np.array(labels)[:, np.newaxis])
    log_count = dict(
        zip(found.ids.numpy().tolist(), found.log_expected_count.numpy())
    )
    assert log_count[0] == 0.0
    found = sample(head, [[0], [10], [20]])
    shares = np.exp(found.log_expected_count.numpy()[:3])
    expected = dict(zip([0, 10, 20], shares[np.argsort(found.ids[:3])]))
    np.testing.assert_allclose(expected[10], 1 / 4, rtol=0.01)
    assert expected[20] < 0.05


@pytest.mark.parametrize("correct_labels", [True, False])
def test_the_loss_is_corrected(correct_labels):
    """Equation 3 of Yi et al., and labels that are there for sure."""
    head = head_of(correct_labels=correct_labels)
    labels = np.array([3, 8, 3, 1])
    for _ in range(5):
        sample(head, labels[:2, np.newaxis])
    random = np.random.default_rng(0)
    features = random.normal(size=(4, DIM)).astype(np.float32)
    losses = head.compute_loss(features, labels, training=True)
    interval = head.sampler.interval.numpy()
    classes = np.unique(labels)
    own = np.arange(4), np.searchsorted(classes, labels)
    log_count = np.tile(np.minimum(np.log(1 / interval[classes]), 0), (4, 1))
    if not correct_labels:
        log_count[own] = 0
    logits = features @ head.kernel.numpy()[classes].T - log_count
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[own]
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)


def test_without_correction_it_is_the_softmax_over_the_batch():
    head = head_of(correct_negatives=False)
    labels = np.array([3, 8, 3, 1])
    for _ in range(3):
        sample(head, labels[:2, np.newaxis])
    random = np.random.default_rng(0)
    features = random.normal(size=(4, DIM)).astype(np.float32)
    losses = head.compute_loss(features, labels, training=True)
    classes = np.unique(labels)
    logits = features @ head.kernel.numpy()[classes].T
    own = logits[np.arange(4), np.searchsorted(classes, labels)]
    expected = np.log(np.exp(logits).sum(axis=1)) - own
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    config = head.sampler.get_config()
    assert not samplers.BatchSampler.from_config(config).correct_negatives
    with pytest.raises(ValueError, match="correct_negatives=False"):
        samplers.BatchSampler(correct_labels=True, correct_negatives=False)


def mean_gradient(
    training, correct_labels=False, batch=64, batches=150, num_classes=400
):
    """The mean over batches, times their number."""
    random = np.random.default_rng(0)
    shares = 1.0 / np.arange(100, 100 + num_classes)
    shares /= shares.sum()
    sampler = samplers.BatchSampler(
        num_buckets=num_classes, correct_labels=correct_labels
    )
    head = layers.SampledSoftmax(num_classes, sampler=sampler, seed=2)
    head.build((None, 64))
    kernel = 0.25 * random.normal(size=(num_classes, 64))
    head.kernel.assign(kernel)
    in_batch = 1 - (1 - shares) ** batch
    labels = random.choice(num_classes, (batches, batch), p=shares)
    # The model knows its labels to some degree.
    features = 3 * kernel[labels] + random.normal(size=(*labels.shape, 64))

    @tf.function
    def gradient(x, y):
        head.sampler.interval.assign(1 / in_batch)
        with tf.GradientTape() as tape:
            losses = head.compute_loss(x, y, training=training)
        by_kernel = tape.gradient(losses, head.kernel.value)
        return tf.convert_to_tensor(by_kernel)

    return sum(
        gradient(tf.constant(x, tf.float32), tf.constant(y))
        for x, y in zip(features, labels)
    )


def test_the_expected_gradient_is_the_full_softmaxs():
    """Khrylchenko et al.: a label that is corrected biases the gradient."""
    exact = mean_gradient(training=False)
    corrected, uncorrected = (
        np.linalg.norm(mean_gradient(True, correct_labels) - exact)
        / np.linalg.norm(exact)
        for correct_labels in (True, False)
    )
    # The rest is the ratio's own bias: 64 classes stand for 400.
    assert uncorrected < 0.35 < 0.5 < corrected, (uncorrected, corrected)


@pytest.mark.parametrize("memory", quick([0, 8], [8]))
def test_training_and_files(memory, tmp_path):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(1)
    y = random.integers(0, CLASSES, 400)
    x = np.eye(CLASSES, dtype=np.float32)[y]
    sampler = samplers.BatchSampler(32, memory=memory, num_buckets=64)
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    model = keras.Sequential(
        [keras.Input([CLASSES]), keras.layers.Dense(16), head]
    )
    model.compile(optimizers.LazyAdam(0.05), loss=head.loss)

    def loss():
        return np.mean(head.compute_loss(model.layers[0](x), y))

    before = loss()
    model.fit(x, y, batch_size=8, epochs=6, verbose=0)
    assert loss() < 0.3 * before
    path = str(tmp_path / "model.keras")
    model.save(path)
    again = keras.saving.load_model(path)
    kept = [m.layers[-1].sampler.weights for m in (model, again)]
    for old, new in zip(*kept, strict=True):
        np.testing.assert_array_equal(old, new)
    assert again.layers[-1].sampler.memory == memory


BAD = {
    "memory": (lambda: samplers.BatchSampler(5, memory=-1), ["memory", "-1"]),
    "rate": (lambda: samplers.BatchSampler(5, rate=0.0), ["rate", "0.0"]),
    "sum": (
        lambda: layers.SampledSoftmax(
            9, sampler=samplers.BatchSampler(5), loss="sigmoid"
        ),
        ["sum over all classes"],
    ),
    "shards": (
        lambda: samplers.BatchSampler(5).for_rows(0, 3, num_sampled=2),
        ["does not work in a ShardedSoftmax"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    check_refused(*BAD[case])
