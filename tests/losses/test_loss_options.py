"""Losses for long tails, of every head that has them."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tests.support.cases import check_refused
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import TOLERANCE
from tests.support.contract import built
from tests.support.contract import data
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass import samplers
from tfxclass.losses import LossOptions

RANDOM = np.random.default_rng(4)
WEIGHTS = RANDOM.uniform(0.1, 3, CLASSES)
WEIGHTS[[2, 5, 33]] = 0.0  # one of a rare class, too
COUNTS = RANDOM.integers(0, 50, CLASSES)
PROPENSITIES = RANDOM.uniform(0.2, 1, CLASSES)
OPTIONS = {
    "class_weight": {"class_weight": WEIGHTS},
    "propensities": {"propensities": PROPENSITIES},
    "focal": {"focal_gamma": 1.5},
    "smoothing": {"label_smoothing": 0.1},
    "adjustment": {"class_counts": COUNTS, "logit_adjustment": 0.7},
    "weighed_focal": {
        "focal_gamma": 0.5,
        "class_weight": WEIGHTS,
        "class_counts": COUNTS,
    },
    "all_else": {
        "class_weight": WEIGHTS,
        "propensities": PROPENSITIES,
        "label_smoothing": 0.2,
        "class_counts": COUNTS,
    },
}
each_option = pytest.mark.parametrize("name", OPTIONS)
# Those whose training loss is the exact softmax.
HEADS = {
    "full": lambda **k: layers.FullSoftmax(CLASSES, **k),
    "bias": lambda **k: layers.FullSoftmax(CLASSES, use_bias=True, **k),
    "sampled": lambda **k: layers.SampledSoftmax(
        CLASSES, CLASSES, use_bias=True, **k
    ),
    "projected": lambda **k: layers.ProjectedSoftmax(CLASSES, 5, **k),
    "differentiated": lambda **k: layers.DifferentiatedSoftmax(
        CLASSES, [(20, 5), (CLASSES - 20, 3)], **k
    ),
    "adaptive_projected": lambda **k: layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[20, CLASSES - 20], projection_dims=(5, 3), **k
    ),
    "sharded": lambda **k: layers.ShardedSoftmax(CLASSES, **k),
    "sharded_sample": lambda **k: layers.ShardedSoftmax(
        CLASSES, "uniform", CLASSES, correct_fill=True, use_bias=True, **k
    ),
}


def labels_of(wide):
    y = data(labels_wide=3 if wide else None)[1]
    if wide:
        y[3], y[4] = -1, [2, 5, -1]  # none, and none that weighs anything
    return y


@each_option
def test_training_loss_equals_numpy(name):
    """And evaluation stays plain."""
    x, _ = data()
    for kind, make in HEADS.items():
        if kind == "sharded_sample" and "label_smoothing" in OPTIONS[name]:
            continue  # It is refused.
        head = built(make(loss_options=LossOptions(**OPTIONS[name])))
        logits = head.logits(x).numpy()
        for wide in (False, True):
            y = labels_of(wide)
            np.testing.assert_allclose(
                head.compute_loss(x, y, training=True),
                reference.optioned_losses(logits, y, **OPTIONS[name]),
                rtol=2e-5,
                atol=2e-5,
                err_msg=f"{kind}, {wide=}",
            )
            np.testing.assert_allclose(
                head.compute_loss(x, y),
                reference.cross_entropy(logits, y),
                **TOLERANCE,
                err_msg=f"{kind}, {wide=}",
            )


@each_option
@pytest.mark.parametrize("kind", ["bias", "sampled"])
def test_gradients_by_finite_differences(name, kind, monkeypatch):
    """Of features, kernel and bias; the full one in four blocks."""
    monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 1)
    monkeypatch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 17)
    head = built(HEADS[kind](loss_options=LossOptions(**OPTIONS[name])))
    x, y = data()[0], labels_of(True)
    features, upstream = tf.constant(x), RANDOM.normal(size=BATCH)
    variables = [head.kernel.value, head.bias.value]
    with tf.GradientTape() as tape:
        tape.watch(features)
        losses = head.compute_loss(features, y, training=True)
    found = tape.gradient(
        losses, [features, *variables], tf.constant(upstream, "float32")
    )
    start = [np.float64(v) for v in (x, *variables)]
    logits = start[0] @ start[1].T + start[2]
    np.testing.assert_allclose(
        losses,
        reference.optioned_losses(logits, y, **OPTIONS[name]),
        rtol=2e-5,
        atol=2e-5,
    )
    for i, gradient in enumerate(found):
        direction = RANDOM.normal(size=start[i].shape)

        def loss(value, i=i):
            x, kernel, bias = (*start[:i], value, *start[i + 1 :])
            return upstream @ reference.optioned_losses(
                x @ kernel.T + bias, y, **OPTIONS[name]
            )

        expected = reference.numeric_gradient(loss, start[i], direction)
        gradient = tf.convert_to_tensor(gradient).numpy()
        # Sums of some hundred float32 numbers of size 1.
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-3, atol=1e-3
        )


OTHERS = {
    "nce": lambda **k: layers.NoiseContrastive(CLASSES, CLASSES, **k),
    "negative": lambda **k: layers.NegativeSampling(CLASSES, CLASSES, **k),
    "sparsemax": lambda **k: layers.Sparsemax(CLASSES, **k),
    "adaptive": lambda **k: layers.AdaptiveSoftmax(CLASSES, [20], **k),
    "tree": lambda **k: layers.HierarchicalSoftmax(CLASSES, "balanced", **k),
    "random": lambda **k: layers.DropMax(
        CLASSES, "random", mode_options={"retain_probability": 1.0}, **k
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_weights_of_other_losses(kind):
    """Times that of the label; with several labels, times their mean."""
    x, y = data()
    options = LossOptions(class_weight=WEIGHTS, propensities=PROPENSITIES)
    plain, head = (
        built(OTHERS[kind](seed=3, loss_options=o)) for o in (None, options)
    )
    losses = plain.compute_loss(x, y, training=True)
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        (WEIGHTS / PROPENSITIES)[y] * losses,
        **TOLERANCE,
    )
    np.testing.assert_allclose(
        head.compute_loss(x, y), plain.compute_loss(x, y), **TOLERANCE
    )
    y = labels_of(True)
    same = {c: 2.5 for c in range(CLASSES)}
    plain, head = (
        built(OTHERS[kind](seed=3, loss_options=o))
        for o in (None, LossOptions(class_weight=same))
    )
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        2.5 * plain.compute_loss(x, y, training=True),
        rtol=1e-4,
        atol=1e-4,
    )


PENALISED = {
    "projected": lambda **k: layers.ProjectedSoftmax(CLASSES, 5, l2=0.1, **k),
    "projected_sampled": lambda **k: layers.ProjectedSoftmax(
        CLASSES, 5, 30, "uniform", l2=0.1, **k
    ),
    "groups": lambda **k: layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[60], projection_dims=(5,), l2=0.1, **k
    ),
    "adaptive": lambda **k: layers.DropMax(CLASSES, **k),
    "posterior": lambda **k: layers.DropMax(
        CLASSES, "posterior", 30, "uniform", **k
    ),
}


@pytest.mark.parametrize("kind", PENALISED)
def test_penalties_are_not_weighed(kind):
    """The loss is linear in the weight, and not 0 where that is."""
    x, y = data()
    found = []
    for weight in (0.0, 1.0, 3.0):
        weights = {c: weight for c in range(CLASSES)}
        options = LossOptions(class_weight=weights)
        head = built(PENALISED[kind](seed=3, loss_options=options))
        found.append(head.compute_loss(x, y, training=True).numpy())
    penalty, one, three = found
    assert np.all(np.abs(penalty) > 0.1)
    np.testing.assert_allclose(
        three - penalty, 3 * (one - penalty), rtol=1e-4, atol=1e-4
    )
    plain = built(PENALISED[kind](seed=3)).compute_loss(x, y, training=True)
    np.testing.assert_allclose(one, plain, **TOLERANCE)


def test_smoothing_of_a_sample_is_unbiased():
    """Beside the loss of the same draws without it."""
    x, y = data(rows=4)
    smooth = LossOptions(label_smoothing=0.3)
    heads = [
        built(
            layers.SampledSoftmax(
                CLASSES, 12, "log_uniform", seed=5, loss_options=o
            )
        )
        for o in (None, smooth)
    ]
    steps = [
        tf.function(lambda head=head: head.compute_loss(x, y, training=True))
        for head in heads
    ]
    moved = np.array([steps[1]() - steps[0]() for _ in range(400)])
    logits = heads[0].logits(x).numpy()
    expected = 0.3 * (logits[np.arange(4), y] - logits.mean(axis=1))
    error = 4 * moved.std(axis=0) / np.sqrt(len(moved)) + 1e-5
    assert np.all(np.abs(moved.mean(axis=0) - expected) < error)


@pytest.mark.parametrize("sampled", [(), (30, "uniform")])
@pytest.mark.parametrize("mode", ["adaptive", "posterior", "attention"])
def test_logits_of_dropmax(mode, sampled):
    """As of a head whose biases and class rows are those that are meant."""
    x, y = data()[0], labels_of(True)
    options = LossOptions(class_counts=COUNTS)
    plain, head = (
        built(
            layers.DropMax(
                CLASSES, mode, *sampled, use_bias=True, seed=3, loss_options=o
            )
        )
        for o in (None, options)
    )
    counts = np.where(COUNTS, COUNTS, COUNTS[COUNTS > 0].min())
    plain.bias.assign(plain.bias + np.log(counts / counts.sum()))
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        plain.compute_loss(x, y, training=True),
        rtol=3e-5,
        atol=3e-5,
    )
    assert not np.allclose(head.logits(x), plain.logits(x))


def test_adjusted_logits_of_equal_classes_are_equal():
    """Labels that follow the counts leave logits of zero where they are."""
    counts = np.array([1, 2, 5, 8])
    y = np.repeat(np.arange(4), counts)
    head = layers.FullSoftmax(
        4, use_bias=True, loss_options=LossOptions(class_counts=counts)
    )
    head.build((None, DIM))
    x = np.zeros((len(y), DIM), np.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(head.compute_loss(x, y, training=True))
    gradient = tape.gradient(loss, head.bias.value)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


@pytest.mark.parametrize("weights", [WEIGHTS, {3: 2.0, 7: 0.0}])
def test_saved_and_loaded(weights, tmp_path):
    options = {**OPTIONS["all_else"], "class_weight": weights}
    head = HEADS["full"](loss_options=LossOptions(**options))
    text = json.dumps(keras.saving.serialize_keras_object(head))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    ours, theirs = (h.loss_options.get_config() for h in (head, again))
    for name, value in ours.items():
        np.testing.assert_array_equal(theirs[name], value)
    model = make_model(head, run_eagerly=True)
    x, y = data()
    model.fit(x, y, batch_size=BATCH, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras").layers[-1]
    np.testing.assert_array_equal(
        loaded.compute_loss(x, y, training=True),
        head.compute_loss(x, y, training=True),
    )


def test_a_dict_weighs_the_others_1():
    x, y = data()
    plain = built(HEADS["full"]())
    options = LossOptions(class_weight={int(y[0]): 4.0})
    head = built(HEADS["full"](loss_options=options))
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        np.where(y == y[0], 4.0, 1.0) * plain.compute_loss(x, y),
        **TOLERANCE,
    )


INVALID = {
    "class_weight": (
        lambda: LossOptions(class_weight=[1, -2.0]),
        ["`class_weight` must be finite and >= 0", "-2.0 for class 1"],
    ),
    "class_weight_dict": (
        lambda: LossOptions(class_weight={3: np.nan}),
        ["`class_weight` must be finite", "nan for class 3"],
    ),
    "class_weight_shape": (
        lambda: LossOptions(class_weight=np.ones((2, 2))),
        ["`class_weight` must have shape [num_classes]", "(2, 2)"],
    ),
    "propensities": (
        lambda: LossOptions(propensities=[0.0, 0.5]),
        ["`propensities` must be in (0, 1]"],
    ),
    "focal_gamma": (
        lambda: LossOptions(focal_gamma=-1),
        ["`focal_gamma` must be finite and >= 0", "-1"],
    ),
    "label_smoothing": (
        lambda: LossOptions(label_smoothing=1.0),
        ["`label_smoothing` must be in [0, 1)", "1.0"],
    ),
    "class_counts": (
        lambda: LossOptions(class_counts=[0, 0]),
        ["`class_counts` must be above 0"],
    ),
    "logit_adjustment": (
        lambda: LossOptions(logit_adjustment=np.inf),
        ["`logit_adjustment` must be finite", "inf"],
    ),
    "adjustment_of_nothing": (
        lambda: LossOptions(logit_adjustment=2.0),
        ["`logit_adjustment` needs `class_counts`", "logit_adjustment=2.0"],
    ),
    "smoothing_without_a_correction": (
        lambda: layers.SampledSoftmax(
            CLASSES,
            sampler=samplers.TopKSampler(20, correct_fill=False),
            loss_options=LossOptions(label_smoothing=0.1),
        ),
        ["`label_smoothing` is a sum over all classes", "TopKSampler"],
    ),
    "smoothing_of_own_buckets": (
        lambda: layers.LSHSoftmax(
            CLASSES,
            sampler=samplers.LSHSampler(20, correction="none"),
            loss_options=LossOptions(label_smoothing=0.1),
        ),
        ["`label_smoothing` is a sum over all classes", "LSHSampler"],
    ),
    "smoothing_of_a_sample_of_shards": (
        lambda: layers.ShardedSoftmax(
            CLASSES,
            num_sampled=20,
            loss_options=LossOptions(label_smoothing=0.1),
        ),
        ["`label_smoothing` of a ShardedSoftmax", "label_smoothing=0.1"],
    ),
    "focal_and_smoothing": (
        lambda: LossOptions(focal_gamma=1, label_smoothing=0.1),
        ["exclude each other", "focal_gamma=1"],
    ),
    "length": (
        lambda: HEADS["full"](loss_options=LossOptions(class_counts=[1, 2])),
        ["`class_counts` must have a number for each class", "2 numbers"],
    ),
    "class_of_dict": (
        lambda: HEADS["full"](loss_options=LossOptions(class_weight={99: 1})),
        ["below num_classes=60", "[99]"],
    ),
    "type": (
        lambda: HEADS["full"](loss_options="focal"),
        ["`loss_options` must be", "'focal'"],
    ),
    "margin": (
        lambda: HEADS["full"](
            similarity=layers.Cosine(margin=0.1),
            loss_options=LossOptions(label_smoothing=0.1),
        ),
        ["`margin` must be 0", "label_smoothing"],
    ),
    "label_tree": (
        lambda: layers.HierarchicalSoftmax(
            CLASSES,
            "balanced",
            multi_label="plt",
            loss_options=LossOptions(class_weight=WEIGHTS),
        ),
        ['None with multi_label="plt"', "class_weight"],
    ),
    **{
        kind: (
            lambda kind=kind: OTHERS[kind](
                loss_options=LossOptions(label_smoothing=0.1)
            ),
            ["may have", "Received: ['label_smoothing']"],
        )
        for kind in OTHERS
    },
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])
