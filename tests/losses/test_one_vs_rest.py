"""Independent labels: `loss="sigmoid"` and `"squared_hinge"` of the heads."""

import functools
import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfxclass
from tests.support import contract
from tests.support import reference
from tests.support.cases import check_refused
from tests.support.cases import quick
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import TOLERANCE
from tests.support.contract import built
from tests.support.contract import data
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass import losses
from tfxclass import samplers
from tfxclass.core.one_vs_rest import BINARY
from tfxclass.core.one_vs_rest import one_vs_rest_loss
from tfxclass.losses import LossOptions
from tfxclass.samplers.sampler import Sample

KINDS = ("sigmoid", "squared_hinge")
each_kind = pytest.mark.parametrize("kind", KINDS)
RANDOM = np.random.default_rng(4)
WEIGHTS = RANDOM.uniform(0.1, 3, CLASSES)
HEADS = {
    "full": lambda **k: layers.FullSoftmax(CLASSES, **k),
    "sampled": lambda **k: layers.SampledSoftmax(CLASSES, CLASSES, **k),
    "sharded": lambda **k: layers.ShardedSoftmax(CLASSES, **k),
    "shard_sample": lambda **k: layers.ShardedSoftmax(
        # All of them, by the sampled way.
        CLASSES,
        sample_rate=0.999,
        correct_fill=True,
        **k,
    ),
}
FEW = 12


class OneVsRestContract(contract.HeadContract):
    is_distribution = False
    kind = "sigmoid"

    def probabilities(self, logits):
        return reference.sigmoid(logits)

    def losses(self, logits, labels):
        return reference.one_vs_rest(logits, labels, self.kind)


class OfFull(OneVsRestContract):
    def make_head(self, num_classes=CLASSES, **changes):
        return layers.FullSoftmax(num_classes, loss=self.kind, **changes)


@pytest.mark.slow
class TestFull(OfFull):
    """All of the contract."""


class TestFullInShort(OfFull):
    """What the loss changes, without what takes seconds."""

    test_fit_then_evaluate_equals_numpy = None
    test_training_lowers_the_exact_loss = None
    test_endpoint_with_labels = None
    test_mixed_precision = None
    test_saved_model_goes_on_bit_for_bit = None
    test_same_seed_same_run = None
    test_export_equals_model = None
    test_bad_labels = None
    test_a_deleted_model_leaves_nothing = None
    test_masked_positions_weigh_nothing = None
    test_classes_are_added = None
    test_removed_classes_are_no_answers = None


@pytest.mark.slow
class TestSampledHinge(OneVsRestContract):
    is_random = True
    kind = "squared_hinge"

    def make_head(self, num_classes=CLASSES, **changes):
        return layers.SampledSoftmax(
            num_classes, min(40, num_classes), loss=self.kind, **changes
        )


def labels_of(wide):
    y = data(labels_wide=3 if wide else None)[1]
    if wide:
        y[3] = -1
    return y


@each_kind
@pytest.mark.parametrize("wide", [False, True])
def test_loss_equals_numpy(kind, wide):
    """Training and evaluation; labels weigh 1, or what they are given."""
    x, y = data()[0], labels_of(wide)
    options = LossOptions(class_weight=WEIGHTS)
    for name, make in HEADS.items():
        head = built(make(loss=kind, use_bias=True, loss_options=options))
        logits = head.logits(x).numpy()
        for masses in (WEIGHTS, None):
            np.testing.assert_allclose(
                head.compute_loss(x, y, training=masses is not None),
                reference.one_vs_rest(logits, y, kind, masses),
                rtol=2e-5,
                err_msg=name,
            )


@each_kind
@pytest.mark.parametrize("name", ["full", "sampled", "shard_sample"])
@pytest.mark.parametrize("margin", ["dot", "cosine"])
def test_gradients_by_finite_differences(name, kind, margin, monkeypatch):
    """Of features, kernel and bias; the streamed ones in four blocks."""
    monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 1)
    monkeypatch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 17)
    changes = {"use_bias": True}
    if margin == "cosine":
        changes = {"similarity": layers.Cosine(scale=3.0, margin=0.3)}
    head = built(HEADS[name](loss=kind, **changes))
    x, y, upstream = data()[0], labels_of(True), RANDOM.normal(size=BATCH)
    inputs = [tf.constant(x), *(v.value for v in head.trainable_variables)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = head.compute_loss(inputs[0], y, training=True)
    grads = tape.gradient(found, inputs, tf.constant(upstream, tf.float32))
    start = [np.float64(v) for v in inputs]

    def loss_of(x, kernel, bias=None):
        if margin == "cosine":
            logits = reference.head_logits(x, kernel, None, "cosine", 3.0)
            return reference.one_vs_rest(
                logits, y, kind, adjust=lambda z: z - 0.9
            )
        return reference.one_vs_rest(x @ kernel.T + bias, y, kind)

    np.testing.assert_allclose(found, loss_of(*start), rtol=2e-5)
    for i, gradient in enumerate(grads):
        direction = RANDOM.normal(size=start[i].shape)

        def loss(value, i=i):
            return upstream @ loss_of(*start[:i], value, *start[i + 1 :])

        expected = reference.numeric_gradient(loss, start[i], direction)
        gradient = tf.convert_to_tensor(gradient).numpy()
        # Sums of some hundred float32 numbers of size 10.
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-3, atol=1e-2
        )


OPTIONS = {
    "focal": {"focal_gamma": 1.5, "class_weight": WEIGHTS},
    "smoothing": {"label_smoothing": 0.2},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_equal_numpy(option):
    """In training; an evaluation is plain."""
    x, y, options = data()[0], labels_of(True), OPTIONS[option]
    for name, make in HEADS.items():
        changes = {"loss": "sigmoid", "use_bias": True}
        head = built(make(loss_options=LossOptions(**options), **changes))
        logits = head.logits(x).numpy()
        np.testing.assert_allclose(
            head.compute_loss(x, y, training=True),
            reference.optioned_one_vs_rest(logits, y, **options),
            rtol=2e-5,
            err_msg=name,
        )
        np.testing.assert_allclose(
            head.compute_loss(x, y),
            reference.one_vs_rest(logits, y, "sigmoid"),
            rtol=2e-5,
            err_msg=name,
        )


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["full", "sampled", "shard_sample"])
def test_gradients_of_options(option, name, monkeypatch):
    """As those of the plain loss."""
    monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 1)
    monkeypatch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 17)
    options, changes = OPTIONS[option], {"loss": "sigmoid", "use_bias": True}
    head = built(HEADS[name](loss_options=LossOptions(**options), **changes))
    x, y, upstream = data()[0], labels_of(True), RANDOM.normal(size=BATCH)
    inputs = [tf.constant(x), *(v.value for v in head.trainable_variables)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = head.compute_loss(inputs[0], y, training=True)
    grads = tape.gradient(found, inputs, tf.constant(upstream, tf.float32))
    start = [np.float64(v) for v in inputs]
    for i, gradient in enumerate(grads):
        direction = RANDOM.normal(size=start[i].shape)

        def loss(value, i=i):
            x, kernel, bias = (*start[:i], value, *start[i + 1 :])
            return upstream @ reference.optioned_one_vs_rest(
                x @ kernel.T + bias, y, **options
            )

        expected = reference.numeric_gradient(loss, start[i], direction)
        gradient = tf.convert_to_tensor(gradient).numpy()
        # Sums of some hundred float32 numbers of size 10.
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-3, atol=1e-2
        )


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(0, 5),
    columns=st.integers(1, 20),
    width=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
)
def test_any_labels(seed, batch, columns, width, kind):
    random = np.random.default_rng(seed)
    logits = 4 * random.normal(size=(batch, columns)).astype(np.float32)
    labels = random.integers(-1, columns, (batch, width))
    targets = losses.as_targets(labels, columns)
    targets = targets._replace(weights=tf.cast(targets.ids >= 0, tf.float32))
    np.testing.assert_allclose(
        one_vs_rest_loss(tf.constant(logits), targets, BINARY[kind]),
        reference.one_vs_rest(logits, labels, kind),
        **TOLERANCE,
    )


def sampled_head(kind, sampler, num_classes=7):
    head = layers.SampledSoftmax(num_classes, sampler=sampler, loss=kind)
    return built(head)


@each_kind
def test_uniform_samples_are_unbiased_by_enumeration(kind):
    """All sets of two negatives, as likely each: loss and gradient."""
    head = sampled_head(kind, samplers.UniformSampler(4))
    x, y = data(rows=2)[0], np.array([[2, -1], [5, 2]])
    queries, targets = (
        tf.constant(x),
        head.targets(tf.constant(x), y),
    )
    kernel, others = head.kernel.value, [0, 1, 3, 4, 6]

    def step(sample):
        with tf.GradientTape() as tape:
            rows = head.sampled_rows(sample)
            logits = head.sampled_logits(queries, sample, rows)
            found = head.sampled_loss(logits, sample, targets)
            total = found[0] + 3.0 * found[1]
        grad = tape.gradient(total, kernel)
        return found.numpy(), tf.convert_to_tensor(grad).numpy()

    drawn = head.sample(queries, targets)
    counts = dict(zip(drawn.ids.numpy(), drawn.log_expected_count.numpy()))
    assert {c for c in (2, 5)} <= set(counts)
    for c, count in counts.items():
        np.testing.assert_allclose(
            np.exp(count), 1.0 if c in (2, 5) else 2 / 5, rtol=1e-6
        )
    steps = [
        step(
            Sample(
                tf.constant([2, 5, *pair], tf.int64),
                tf.math.log(tf.constant([1, 1, 0.4, 0.4], tf.float32)),
                tf.constant([[0, -1], [1, 0]], tf.int64),
            )
        )
        for pair in itertools.combinations(others, 2)
    ]
    with tf.GradientTape() as tape:
        exact = head.compute_loss(x, y)
        total = exact[0] + 3.0 * exact[1]
    by_kernel = tf.convert_to_tensor(tape.gradient(total, kernel))
    found, grads = zip(*steps)
    assert len(steps) == 10 and np.ptp(found, axis=0).min() > 0.01
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=1e-5)
    np.testing.assert_allclose(
        np.mean(grads, axis=0), by_kernel, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", ["log_uniform", "frequency", "shards"])
def test_other_samples_are_unbiased(name):
    """Of the op's own draws, within four standard errors."""
    x, y = data(rows=4)
    if name == "shards":
        head = layers.ShardedSoftmax(
            CLASSES, num_sampled=FEW, correct_fill=True, loss="sigmoid", seed=2
        )
    else:
        sampler = samplers.LogUniformSampler(FEW, seed=1)
        if name == "frequency":
            counts = np.arange(CLASSES) % 7 + 1
            sampler = samplers.FrequencySampler(FEW, counts, seed=1)
        head = layers.SampledSoftmax(CLASSES, sampler=sampler, loss="sigmoid")
    head = built(head)
    step = tf.function(lambda: head.compute_loss(x, y, training=True))
    found = np.array([step() for _ in range(400)])
    error = 4 * found.std(axis=0) / np.sqrt(len(found))
    exact = head.compute_loss(x, y).numpy()
    assert np.all(np.abs(found.mean(axis=0) - exact) < error)


@each_kind
def test_great_and_infinite_logits(kind):
    logits = tf.constant([[1e4, -1e4, 3.0, -np.inf], [0, np.nan, 0, 0]])
    targets = losses.Targets(tf.constant([[2], [0]], tf.int64), tf.ones([2, 1]))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = one_vs_rest_loss(logits, targets, BINARY[kind])
    expected = {"sigmoid": 1e4 + np.log1p(np.exp(-3.0)), "squared_hinge": 1e8}
    np.testing.assert_allclose(found[0], expected[kind], rtol=1e-3)
    assert np.isnan(found[1])
    assert np.all(np.isfinite(tape.gradient(found, logits)[0]))


def test_bias_of_the_frequencies():
    """An untrained head answers with them, and a trained one is saved so."""
    counts = np.array([0, 3, 10, 50, 100])
    bias = tfxclass.initializers.LogOdds(counts, 100)
    head = layers.FullSoftmax(
        5, loss="sigmoid", use_bias=True, bias_initializer=bias,
        kernel_initializer="zeros",
    )  # fmt: skip
    head.build((None, DIM))
    np.testing.assert_allclose(
        head(np.ones((1, DIM), np.float32))[0], (counts + 0.5) / 101, rtol=1e-5
    )
    text = json.dumps(keras.saving.serialize_keras_object(head))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    np.testing.assert_array_equal(again.bias, head.bias)
    assert again.get_config()["loss"] == "sigmoid"


def test_biases_of_shards():
    bias = tfxclass.initializers.LogOdds(np.arange(CLASSES), 100)
    head = layers.ShardedSoftmax(
        CLASSES, loss="sigmoid", use_bias=True, bias_initializer=bias
    )
    head.build((None, DIM))
    np.testing.assert_allclose(head.bias[:CLASSES], bias((CLASSES,)), rtol=1e-6)


# Both kinds answer with the sigmoid of the logits.
@pytest.mark.parametrize("kind", quick(KINDS, ["sigmoid"]))
def test_exports(kind, tmp_path):
    """ONNX Runtime and TensorFlow's C API answer as the model does."""
    pytest.importorskip("tf2onnx")
    head = layers.FullSoftmax(CLASSES, loss=kind, use_bias=True)
    model = make_model(head)
    contract.randomize(head)
    tfxclass.export.onnx(model, tmp_path / "onnx", top_k=4)
    tfxclass.export.saved_model(
        model, tmp_path / "model", top_k=4, threshold=0.6
    )


@pytest.mark.filterwarnings("ignore:.*trains with sample weights")
def test_sample_weights_and_metrics():
    """Of rows, as of any loss; ranks are those of the logits of the step."""
    head = layers.SampledSoftmax(CLASSES, CLASSES, "uniform", loss="sigmoid")
    model = make_model(head, metrics=[tfxclass.metrics.PrecisionAtK(head, 2)])
    x, y = data(labels_wide=3)
    weights = RANDOM.random(BATCH).astype(np.float32)
    model.fit(x, y, sample_weight=weights, batch_size=BATCH, verbose=0)
    result = model.evaluate(x, y, sample_weight=weights, verbose=0)
    logits = head.logits(model.layers[0](x)).numpy()
    expected = reference.one_vs_rest(logits, y, "sigmoid")
    np.testing.assert_allclose(result[0], (weights * expected).mean(), 1e-5)


INVALID = {
    "loss": (
        lambda: layers.FullSoftmax(9, loss="hinge"),
        ["`loss` must be one of", "squared_hinge", "'hinge'"],
    ),
    "own_loss": (
        lambda: layers.NoiseContrastive(9, 3, loss="sigmoid"),
        ["The loss of a NoiseContrastive is its own", 'loss="sigmoid"'],
    ),
    "uncorrected": (
        lambda: layers.SelectiveSoftmax(
            9,
            sampler=samplers.HashingForestSampler(3, correct_fill=False),
            loss="sigmoid",
        ),
        ["`loss` is a sum over all classes", "loss=sigmoid"],
    ),
    "uncorrected_shards": (
        lambda: layers.ShardedSoftmax(9, sample_rate=0.5, loss="sigmoid"),
        ["needs `correct_fill=True`", "correct_fill=False"],
    ),
    "recovered": (
        lambda: layers.ProjectedSoftmax(9, 3, loss="sigmoid"),
        ["ProjectedSoftmax is its own"],
    ),
    "activation": (
        lambda: layers.FullSoftmax(9, loss="sigmoid", activation="softmax"),
        ["`activation` must be one of ('sigmoid', None)"],
    ),
    **{
        name: (
            functools.partial(
                layers.FullSoftmax,
                CLASSES,
                loss="squared_hinge",
                loss_options=LossOptions(**options),
            ),
            ['with loss="squared_hinge", where no', f"['{name}']"],
        )
        for name, options in {
            "label_smoothing": {"label_smoothing": 0.1},
            "focal_gamma": {"focal_gamma": 1.0},
        }.items()
    },
    "class_counts": (
        lambda: layers.FullSoftmax(
            CLASSES,
            loss="sigmoid",
            loss_options=LossOptions(class_counts=WEIGHTS),
        ),
        ['with loss="sigmoid", where no', "['class_counts']"],
    ),
    "bias": (
        lambda: layers.FullSoftmax(9, bias_initializer="ones"),
        ["`bias_initializer` needs `use_bias=True`"],
    ),
    "counts_above": (
        lambda: tfxclass.initializers.LogOdds([1, 5], 4),
        ["`label_counts` must be in [0, num_rows]", "5.0 for class 1"],
    ),
    "counts_shape": (
        lambda: tfxclass.initializers.LogOdds([[1]], 4),
        ["`label_counts` must have shape [num_classes]", "(1, 1)"],
    ),
    "counts_length": (
        lambda: tfxclass.initializers.LogOdds([1, 2], 4)((3,)),
        ["a number for each class", "2 numbers for shape (3,)"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])
