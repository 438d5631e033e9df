"""Negatives that come with the labels of a row."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import check_refused
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import samplers
from tfxclass.losses import Targets
from tfxclass.losses import as_targets

CLASSES, DIM, BATCH, GIVEN = 40, 5, 6, 2
# Two labels a row; some of the negatives are labels, or those of other rows.
LABELS = [[3, 9], [4, -1], [9, -1], [0, -1], [-1, -1], [12, 30]]
NEGATIVES = np.array([[4, 9], [5, 5], [7, -1], [39, 21], [22, 1], [-1, -1]])
BOTH = np.concatenate([LABELS, NEGATIVES], axis=1)
SET = np.unique(BOTH[BOTH >= 0])


def sampled(layer, **options):
    options = {"num_negatives": GIVEN, "num_sampled": len(SET), **options}
    return lambda **k: layer(CLASSES, seed=1, **{**options, **k})


def of_sampler(sampler, **options):
    return lambda **k: layers.SampledSoftmax(
        CLASSES,
        sampler=sampler(len(SET), **options),
        **{"num_negatives": GIVEN, **k},
    )


HEADS = {
    "uniform": sampled(layers.SampledSoftmax, sampler="uniform"),
    "frequency": of_sampler(
        samplers.FrequencySampler, counts=range(CLASSES), seed=1
    ),
    "batch": sampled(layers.SampledSoftmax, sampler="batch"),
    "auto": sampled(layers.SampledSoftmax, sampler="auto"),
    "forest": sampled(layers.SelectiveSoftmax),
    "lsh": sampled(layers.LSHSoftmax),
    "lsh, label": of_sampler(samplers.LSHSampler, scheme="label", seed=1),
    "sigmoid": sampled(layers.SampledSoftmax, loss="sigmoid"),
    "nce": sampled(layers.NoiseContrastive),
    "word2vec": sampled(layers.NegativeSampling),
    "projected": sampled(
        layers.ProjectedSoftmax, projection_dim=4, sampler="uniform"
    ),
    "dropmax": sampled(layers.DropMax, sampler="uniform"),
}
SHARDS = {
    "shards": lambda **k: layers.ShardedSoftmax(
        CLASSES,
        sampler=samplers.UniformSampler(len(SET)),
        **{"num_negatives": GIVEN, **k},
    ),
}


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(4)


def built(make_head, **options):
    head = make_head(**options)
    head.build((None, DIM))
    random = np.random.default_rng(5)
    for variable in head.trainable_variables:
        variable.assign(random.normal(size=variable.shape))
    return head


def features(seed=6):
    random = np.random.default_rng(seed)
    return random.normal(size=(BATCH, DIM)).astype(np.float32)


def with_plain_twin(kind):
    """A head, and one with the same weights and without negatives."""
    heads = built(HEADS[kind]), built(HEADS[kind], num_negatives=0)
    for old, new in zip(*(head.weights for head in heads), strict=True):
        new.assign(old)
    return heads


def softmax_losses(logits):
    """NumPy oracle, over the classes of `SET`."""
    top = logits.max()
    total = np.log(np.exp(logits[:, SET] - top).sum(axis=1)) + top
    return np.array(
        [
            total[i] - logits[i, [x for x in labels if x >= 0]].mean()
            if max(labels) >= 0
            else 0.0
            for i, labels in enumerate(LABELS)
        ]
    )


def word2vec_losses(logits):
    losses = np.zeros(BATCH)
    for i, labels in enumerate(LABELS):
        labels = [x for x in labels if x >= 0]
        if labels:
            others = np.setdiff1d(SET, labels)
            losses[i] = np.log1p(np.exp(logits[i, others])).sum()
            losses[i] += np.log1p(np.exp(-logits[i, labels])).mean()
    return losses


@pytest.mark.parametrize(
    "kind", quick(HEADS, ["uniform", "batch", "forest", "lsh, label"])
)
def test_they_are_in_the_step(kind):
    """The sample has no place for any other class."""
    head = built(HEADS[kind])
    targets = Targets(tf.constant(LABELS, tf.int64), None, NEGATIVES)
    sample = head.sample(head.queries(features()), targets)
    np.testing.assert_array_equal(np.sort(sample.ids), SET)
    labels = np.array(LABELS)
    columns = sample.ids.numpy()[sample.positions.numpy()]
    np.testing.assert_array_equal(columns[labels >= 0], labels[labels >= 0])
    assert np.all((sample.positions.numpy() >= 0) == (labels >= 0))


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [
        ("uniform", softmax_losses),
        ("projected", softmax_losses),
        ("shards", softmax_losses),
        ("word2vec", word2vec_losses),
    ],
)
def test_losses_are_numpys(kind, oracle):
    head = built({**HEADS, **SHARDS}[kind])
    x = features()
    losses = head.compute_loss(x, BOTH, training=True)
    expected = oracle(head.logits(x).numpy().astype(np.float64))
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["sigmoid", "nce", "frequency"])
def test_they_are_what_labels_of_another_row_are(kind):
    head, plain = with_plain_twin(kind)
    x = features()
    losses = head.compute_loss(x, BOTH, training=True)
    width = NEGATIVES.size
    labels = np.pad(LABELS, [[0, 1], [0, width - 2]], constant_values=-1)
    labels[-1] = NEGATIVES.ravel()
    expected = plain.compute_loss(np.pad(x, [[0, 1], [0, 0]]), labels, True)
    np.testing.assert_allclose(losses, expected[:-1], rtol=1e-5, atol=1e-5)


def test_the_estimate_is_that_of_all_classes():
    head = layers.SampledSoftmax(
        CLASSES, len(SET) + 6, num_negatives=GIVEN, seed=1
    )
    head.build((None, DIM))
    x = tf.constant(features())
    step = tf.function(lambda: head.compute_loss(x, BOTH, training=True))
    losses = np.array([step().numpy() for _ in range(200)])
    exact = head.compute_loss(x, BOTH, training=False).numpy()
    # Of the sums of exponentials, over the right one.
    ratios = np.exp(losses - exact)
    error = ratios.std(axis=0) / len(ratios) ** 0.5
    assert np.all(np.abs(ratios.mean(axis=0) - 1) <= 4 * error)
    assert np.all(error < 0.02) and np.any(error > 0)


def test_the_stream_counts_labels_alone():
    """Those of a BatchSampler; what is given is in for sure."""
    head = built(HEADS["batch"])
    targets = Targets(tf.constant(LABELS, tf.int64), None, NEGATIVES)
    for _ in range(2):
        sample = head.sample(features(), targets)
    labels = np.unique(np.array(LABELS)[np.array(LABELS) >= 0])
    seen = np.flatnonzero(head.sampler.last_step.numpy() >= 0)
    np.testing.assert_array_equal(seen, labels)
    interval = head.sampler.interval.numpy()[sample.ids]
    is_label = np.isin(sample.ids, labels)
    expected = np.where(is_label, np.minimum(-np.log(interval), 0), 0)
    expected = np.tile(expected, (len(LABELS), 1))
    for row, positions in zip(expected, sample.positions.numpy()):
        # A row's own labels are in for sure.
        row[positions[positions >= 0]] = 0
    np.testing.assert_allclose(sample.log_expected_count, expected, rtol=1e-5)


def make_model(head):
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM), head]
    )
    accuracy = tfxclass.metrics.TopKAccuracy(head, k=3)
    optimizer = tfxclass.optimizers.LazyAdam(0.05)
    model.compile(optimizer, head.loss, metrics=[accuracy])
    return model


def test_a_model_trains_and_its_file_goes_on(tmp_path):
    model = make_model(HEADS["uniform"]())
    x = features()
    before = model.evaluate(x, BOTH, verbose=0)
    model.fit(x, BOTH, epochs=9, verbose=0)
    found = model.evaluate(x, BOTH, verbose=0)
    assert found[0] < 0.8 * before[0] and found[1] >= before[1]
    path = str(tmp_path / "model.keras")
    model.save(path)
    again = keras.saving.load_model(path)
    assert again.layers[-1].num_negatives == GIVEN
    encoder, head = again.layers
    loss = np.mean(head.compute_loss(encoder(x), BOTH))
    np.testing.assert_allclose(loss, found[0], rtol=1e-6)
    np.testing.assert_array_equal(again(x), model(x))


def test_heads_of_all_classes_pass_them_by():
    options = {"seed": 1, "num_negatives": GIVEN}
    head = layers.FullSoftmax(CLASSES, **options)
    head.build((None, DIM))
    x = features()
    for training in (True, False):
        losses = head.compute_loss(x, BOTH, training=training)
        plain = head.exact_loss(x, as_targets(LABELS, CLASSES))
        np.testing.assert_allclose(losses, plain, rtol=1e-6)


def test_positions_of_sequences_and_a_mask():
    head = built(HEADS["uniform"])
    x = features()
    losses = head.compute_loss(x, BOTH, training=True).numpy()
    sequences = tf.reshape(x, [2, 3, DIM])
    labels = BOTH.reshape(2, 3, -1)
    found = head.compute_loss(sequences, labels, training=True)
    np.testing.assert_allclose(found, losses.reshape(2, 3), rtol=1e-6)


def losses_of(labels, **options):
    head = built(HEADS["uniform"], **options)
    return head.compute_loss(features(), labels, training=True)


BAD = {
    "count": (lambda: HEADS["uniform"](num_negatives=-1), ["-1", "int >= 0"]),
    "rank": (lambda: losses_of(np.ones(BATCH, int)), ["[batch, p + 2]"]),
    "width": (lambda: losses_of(NEGATIVES), ["num_negatives=2", "(6, 2)"]),
    "ragged": (
        lambda: losses_of(tf.ragged.constant([[1, 2, 3]] * BATCH)),
        ["must be padded"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    check_refused(*BAD[case])


def test_ids_out_of_range_and_no_place():
    for bad in (CLASSES, -2):
        labels = BOTH.copy()
        labels[0, -1] = bad
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(bad)):
            losses_of(labels)
    labels = np.arange(BATCH * 4).reshape(BATCH, 4)
    # More labels than `num_sampled` are all computed.
    assert np.all(np.isfinite(losses_of(labels)))
