"""Distillation: a teacher's best classes as targets beside the labels."""

import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.losses.test_loss_options import COUNTS
from tests.losses.test_loss_options import HEADS
from tests.losses.test_loss_options import WEIGHTS
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
from tfxclass.losses import LossOptions
from tfxclass.losses.teacher import labels_alone

RANDOM = np.random.default_rng(8)
K = 4
OPTIONS = {
    "half": {"teacher_weight": 0.5},
    "alone": {"teacher_weight": 1.0},
    "all_else": {
        "teacher_weight": 0.3,
        "class_weight": WEIGHTS,
        "label_smoothing": 0.2,
        "class_counts": COUNTS,
        "temperature": 1.7,
    },
}
# Beside `HEADS`: those whose own losses are against several labels, too.
OTHERS = {
    "selective": lambda **k: layers.SelectiveSoftmax(CLASSES, CLASSES, **k),
    "lsh": lambda **k: layers.LSHSoftmax(CLASSES, CLASSES, **k),
    "projected_sampled": lambda **k: layers.ProjectedSoftmax(
        CLASSES, 5, CLASSES, "uniform", **k
    ),
    "adaptive": lambda **k: layers.AdaptiveSoftmax(CLASSES, [20, 45], **k),
    "tree": lambda **k: layers.HierarchicalSoftmax(CLASSES, "balanced", **k),
}


def teacher_of(labels, classes=CLASSES):
    """Some row's best class is its label, some rows have few or none."""
    ids = np.stack([RANDOM.permutation(classes)[:K] for _ in labels])
    ids[0] = (np.max(labels[0]) + np.array([3, 0, 1, 2])) % classes
    ids[1, 2:] = -1
    ids[2] = -1
    p = RANDOM.uniform(0.01, 0.4, ids.shape).astype(np.float32)
    p[3, 1] = 0.0
    return ids, p


def labels_of(wide):
    y = data(labels_wide=3 if wide else None)[1]
    if wide:
        y[3], y[2] = -1, -1  # a teacher alone, and nothing at all
    return y


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("wide", quick([False, True], [True]))
def test_training_loss_equals_numpy(name, wide):
    """And evaluation is against the labels."""
    x, y = data()[0], labels_of(wide)
    teacher = teacher_of(y)
    packed = losses.with_teacher(y, *teacher)
    heads = HEADS if name == "all_else" else {**HEADS, **OTHERS}
    for kind, make in heads.items():
        head = built(make(loss_options=LossOptions(**OPTIONS[name])))
        logits = head.logits(x).numpy()
        np.testing.assert_allclose(
            head.compute_loss(x, packed, training=True),
            reference.optioned_losses(
                logits, y, teacher=teacher, **OPTIONS[name]
            ),
            rtol=3e-5,
            atol=3e-5,
            err_msg=kind,
        )
        np.testing.assert_allclose(
            head.compute_loss(x, packed),
            reference.cross_entropy(logits, y),
            **TOLERANCE,
            err_msg=kind,
        )


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", ["bias", "sampled"])
def test_gradients_by_finite_differences(name, kind, monkeypatch):
    """Of features, kernel and bias; the full one in four blocks."""
    monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 1)
    monkeypatch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 17)
    head = built(HEADS[kind](loss_options=LossOptions(**OPTIONS[name])))
    x, y = data()[0], labels_of(True)
    teacher = teacher_of(y)
    features, upstream = tf.constant(x), RANDOM.normal(size=BATCH)
    variables = [head.kernel.value, head.bias.value]
    with tf.GradientTape() as tape:
        tape.watch(features)
        found = head.compute_loss(
            features, losses.with_teacher(y, *teacher), training=True
        )
    found = tape.gradient(
        found, [features, *variables], tf.constant(upstream, "float32")
    )
    start = [np.float64(v) for v in (x, *variables)]
    for i, gradient in enumerate(found):
        direction = RANDOM.normal(size=start[i].shape)

        def loss(value, i=i):
            x, kernel, bias = (*start[:i], value, *start[i + 1 :])
            return upstream @ reference.optioned_losses(
                x @ kernel.T + bias, y, teacher=teacher, **OPTIONS[name]
            )

        expected = reference.numeric_gradient(loss, start[i], direction)
        gradient = tf.convert_to_tensor(gradient).numpy()
        # Sums of some hundred float32 numbers of size 1.
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-3, atol=1e-3
        )


def test_a_sample_is_an_unbiased_estimate_of_the_exponentials():
    """The classes of teachers are in it, whatever is drawn."""
    x, y = data(rows=4)
    ids, p = teacher_of(np.zeros((4, 1), np.int64))
    y = np.abs(y)
    packed = losses.with_teacher(y, ids, p)
    options = LossOptions(teacher_weight=0.6)
    head = built(
        layers.SampledSoftmax(CLASSES, 24, seed=5, loss_options=options)
    )
    step = tf.function(lambda: head.compute_loss(x, packed, training=True))
    logits = head.logits(x).numpy()
    masses = reference.target_masses(y, CLASSES, (ids, p), 0.6)
    # The loss is log Z less the targets' logits, and Z has no bias.
    of_targets = np.sum(masses * logits, axis=1)
    exponentials = np.exp([step() + of_targets for _ in range(400)])
    error = 4 * exponentials.std(axis=0) / 20
    expected = np.exp(logits).sum(axis=1)
    assert np.all(np.abs(exponentials.mean(axis=0) - expected) < error)


DROPPING = {
    "nce": lambda **k: layers.NoiseContrastive(CLASSES, CLASSES, **k),
    "negative": lambda **k: layers.NegativeSampling(CLASSES, CLASSES, **k),
    "sparsemax": lambda **k: layers.Sparsemax(CLASSES, **k),
    "dropmax": lambda **k: layers.DropMax(CLASSES, "posterior", seed=1, **k),
}


@pytest.mark.parametrize("kind", DROPPING)
def test_a_teacher_that_says_the_labels_changes_nothing(kind):
    """In losses of their own: several labels, each as likely."""
    x, y = data()[0], np.stack([np.arange(BATCH), np.arange(BATCH) + 9], 1)
    plain = built(DROPPING[kind]())
    options = LossOptions(teacher_weight=0.7)
    head = built(DROPPING[kind](loss_options=options))
    packed = losses.with_teacher(y, y, np.full(y.shape, 0.2))
    expected = plain.compute_loss(x, y, training=True)
    np.testing.assert_allclose(
        head.compute_loss(x, packed, training=True), expected, **TOLERANCE
    )
    # A row without labels is the teacher's.
    packed = losses.with_teacher(-np.ones_like(y), y, np.full(y.shape, 0.2))
    head = built(DROPPING[kind](loss_options=options))
    np.testing.assert_allclose(
        head.compute_loss(x, packed, training=True), expected, **TOLERANCE
    )


def test_features_of_three_dimensions_and_a_mask():
    x = RANDOM.normal(size=(2, 3, DIM)).astype(np.float32)
    y = RANDOM.integers(0, CLASSES, (2, 3))
    ids = RANDOM.integers(0, CLASSES, (2, 3, 2))
    ids[..., 1] = (ids[..., 0] + 1) % CLASSES
    p = np.full(ids.shape, 0.5)
    options = LossOptions(teacher_weight=0.4)
    head = built(layers.FullSoftmax(CLASSES, loss_options=options))
    found = head.compute_loss(x, losses.with_teacher(y, ids, p), training=True)
    flat = head.compute_loss(
        x.reshape(6, DIM),
        losses.with_teacher(y.ravel(), ids.reshape(6, 2), p.reshape(6, 2)),
        training=True,
    )
    np.testing.assert_allclose(found.numpy().ravel(), flat, **TOLERANCE)


@pytest.mark.parametrize("make", [HEADS["full"], HEADS["sampled"]])
def test_fit_learns_the_teacher_and_metrics_the_labels(make):
    """Labels of noise, a teacher that knows: students become the teacher."""
    random = np.random.default_rng(2)
    x = random.normal(size=(400, DIM)).astype(np.float32)
    best = np.argmax(x @ random.normal(size=(DIM, CLASSES)), axis=1)
    noise = random.integers(0, CLASSES, 400)
    packed = losses.with_teacher(noise, best[:, None], np.ones((400, 1)))
    head = make(loss_options=LossOptions(teacher_weight=0.9), seed=1)
    model = make_model(
        head,
        0.05,
        metrics=[tfxclass.metrics.TopKAccuracy(head, k=1, name="top")],
    )
    history = model.fit(x, packed, batch_size=40, epochs=8, verbose=0)
    learned = np.argmax(model.predict(x, verbose=0), axis=1)
    assert np.mean(learned == best) > 0.8
    # Metrics of training are of the labels, which are noise.
    assert history.history["top"][-1] < 0.3
    found = model.evaluate(x, packed, verbose=0, return_dict=True)
    assert found["top"] == pytest.approx(np.mean(learned == noise), abs=1e-6)


def test_packed_ids_and_probabilities_are_exact():
    ids = np.array([[0, 2**31 - 1, -1], [16_777_217, 5, 3]])
    p = np.array([[1.0, 1e-30, 0.5], [1 / 3, 0.0, 1e-44]], np.float32)
    y = np.array([[7, -1], [2**31, 2]])
    packed = losses.with_teacher(y, ids, p)
    assert packed.dtype == np.int64 and packed.shape == (2, 5)
    np.testing.assert_array_equal(packed[:, :2], y)
    there = (ids >= 0) & (p > 0)
    np.testing.assert_array_equal(packed[:, 2:][~there], -1)
    taught = packed[:, 2:][there]
    np.testing.assert_array_equal(taught & 0xFFFFFFFF, ids[there])
    bits = (taught >> 32).astype(np.int32)
    np.testing.assert_array_equal(bits.view(np.float32), p[there])
    in_graph = tf.function(losses.with_teacher)(tf.constant(y), ids, p)
    # Denormal numbers are 0 to TensorFlow's threads.
    np.testing.assert_array_equal(in_graph[0], packed[0])
    np.testing.assert_array_equal(
        labels_alone(packed), np.where(packed < 2**32, packed, -1)
    )


def test_of_a_model_by_top_k():
    """As the docstring has it, with data of `tf.data`."""
    x, y = data()
    y = np.abs(y)
    teacher = make_model(HEADS["full"]())
    ids, scores = tfxclass.top_k(teacher, k=3).predict(x, verbose=0)
    arrays = tf.data.Dataset.from_tensor_slices((x, y, ids, scores))
    batches = arrays.batch(8).map(
        lambda x, *rest: (x, losses.with_teacher(*rest))
    )
    student = make_model(
        HEADS["sampled"](loss_options=LossOptions(teacher_weight=0.5))
    )
    again = make_model(
        HEADS["sampled"](loss_options=LossOptions(teacher_weight=0.5))
    )
    again.set_weights(student.get_weights())
    student.fit(batches, shuffle=False, verbose=0)
    packed = losses.with_teacher(y, ids, scores)
    again.fit(x, packed, batch_size=8, shuffle=False, verbose=0)
    for ours, theirs in zip(student.get_weights(), again.get_weights()):
        np.testing.assert_allclose(ours, theirs, **TOLERANCE)


IDS = np.array([[1, 2]])
INVALID = {
    "weight": (
        lambda: LossOptions(teacher_weight=1.5),
        ["`teacher_weight` must be in [0, 1]", "1.5"],
    ),
    "focal": (
        lambda: LossOptions(teacher_weight=0.5, focal_gamma=1.0),
        ["exclude each other", "teacher_weight=0.5"],
    ),
    "margin": (
        lambda: HEADS["full"](
            similarity=layers.Cosine(margin=0.1),
            loss_options=LossOptions(teacher_weight=0.1),
        ),
        ["`margin` must be 0", "teacher_weight"],
    ),
    "one_vs_rest": (
        lambda: HEADS["full"](
            loss="squared_hinge", loss_options=LossOptions(teacher_weight=0.1)
        ),
        ['loss="squared_hinge"', "Received: ['teacher_weight']"],
    ),
    "pick_one": (
        lambda: layers.HierarchicalSoftmax(
            CLASSES,
            "balanced",
            multi_label="pick_one",
            loss_options=LossOptions(teacher_weight=0.1),
        ),
        ['multi_label="pick_one"', "teacher_weight=0.1"],
    ),
    "probabilities": (
        lambda: losses.with_teacher([0], IDS, np.array([[0.5, 1.1]])),
        ["`probabilities` must be in [0, 1]", "1.1"],
    ),
    "ids": (
        lambda: losses.with_teacher([0], IDS << 31, np.ones((1, 2))),
        ["`ids` must be below 2^31", str(2 << 31)],
    ),
    "float_ids": (
        lambda: losses.with_teacher([0], IDS + 0.5, np.ones((1, 2))),
        ["`ids` must be integer", "float64"],
    ),
    "shapes": (
        lambda: losses.with_teacher([0], IDS, np.ones((1, 3))),
        ["(1,), (1, 2) and (1, 3)"],
    ),
    "rows": (
        lambda: losses.with_teacher([0, 1], IDS, np.ones((1, 2))),
        ["(2,), (1, 2) and (1, 2)"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])


def test_labels_of_a_teacher_need_a_teacher_weight():
    packed = losses.with_teacher([0], IDS, np.ones((1, 2)))
    head = built(HEADS["full"]())
    with pytest.raises(tf.errors.InvalidArgumentError, match="teacher_weight"):
        head.compute_loss(data(rows=1)[0], packed, training=True)


def test_classes_of_a_teacher_are_checked():
    packed = losses.with_teacher([0], IDS * 60, np.ones((1, 2)))
    head = built(HEADS["full"](loss_options=LossOptions(teacher_weight=1.0)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_classes=60"):
        head.compute_loss(data(rows=1)[0], packed, training=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="in_0_to_1|0, 1"):
        losses.with_teacher(tf.constant([0]), IDS, np.full((1, 2), 2.0))
