"""DropMax: masks, every loss term, prediction, the active-set variant."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import tfxclass
from tests import reference
from tests.contract import BATCH
from tests.contract import CLASSES
from tests.contract import DIM
from tests.contract import TOLERANCE
from tests.contract import HeadContract
from tests.contract import built
from tests.contract import data
from tests.contract import make_model
from tests.contract import randomize
from tfxclass import layers
from tfxclass import samplers
from tfxclass.losses import as_targets
from tfxclass.losses import dropmax
from tfxclass.losses import records

MODES = {
    "adaptive": {"kl_weight": 0.7, "entropy_weight": 0.3},
    "posterior": {
        "kl_weight": 0.7,
        "auxiliary_weight": 0.4,
        "entropy_weight": 0.3,
    },
    "random": {"retain_probability": 0.4},
    "attention": {},
}
each_mode = pytest.mark.parametrize("mode", MODES)
# Sums over some dozen classes of terms divided by the temperature.
SUMS = {"rtol": 5e-5, "atol": 5e-5}


def make_head(mode, num_classes=CLASSES, **changes):
    options = {"seed": 7, **MODES[mode], **changes}
    return layers.DropMax(num_classes, mode=mode, **options)


def affine(weights, features):
    kernel, bias = (v.numpy().astype(np.float64) for v in weights)
    return np.asarray(features, np.float64) @ kernel.T + bias


def retain_logits(head, features):
    if head.retain is not None:
        return affine(head.retain, features)
    p = head.retain_probability
    return np.full((len(features), head.num_classes), np.log(p / (1 - p)))


def expected_logits(head, features):
    logits = reference.head_logits(features, head.kernel.numpy())
    if head.retain is None:
        return logits
    return logits + np.log(reference.sigmoid(retain_logits(head, features)))


class DropMaxContract(HeadContract):
    is_random = True
    options = {}

    def make_head(self, num_classes=CLASSES, **changes):
        return make_head(self.mode, num_classes, **{**self.options, **changes})

    def logits(self, head, features):
        return expected_logits(head, features)


class TestAdaptive(DropMaxContract):
    mode = "adaptive"


class TestPosterior(DropMaxContract):
    mode = "posterior"
    options = {"num_samples": 2}


class TestRandom(DropMaxContract):
    mode = "random"


class TestAttention(DropMaxContract):
    mode = "attention"
    is_random = False


class TestSampledPosterior(DropMaxContract):
    mode = "posterior"
    options = {"num_sampled": 30, "sampler": "uniform"}


def draws_of(head):
    """Makes the head's draws a table, and returns it."""
    shape = head.num_samples, BATCH, head.num_classes
    table = np.random.default_rng(3).uniform(1e-3, 1 - 1e-3, shape)
    table = table.astype(np.float32)
    head._draws = lambda logits: tf.constant(table)
    return table


def loss_in_numpy(head, x, y, draws, ids=slice(None), columns=None):
    logits = reference.head_logits(x, head.kernel.numpy())[:, ids]
    residual = None
    if head.posterior is not None:
        residual = affine(head.posterior, x)[:, ids]
    return reference.dropmax_loss(
        head.mode,
        logits,
        retain_logits(head, x)[:, ids],
        draws,
        y if columns is None else columns,
        temperature=head.temperature,
        residual=residual,
        kl=head.kl_weight,
        auxiliary=head.auxiliary_weight,
        entropy=head.entropy_weight,
    )


@each_mode
@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.parametrize("labels_wide", [None, 3])
def test_training_loss_equals_numpy(mode, num_samples, labels_wide):
    head = built(make_head(mode, num_samples=num_samples, temperature=0.5))
    x, y = data(labels_wide=labels_wide)
    if labels_wide:
        y[2] = -1
    draws = draws_of(head)
    if mode == "attention":
        draws = draws[:1]
    expected = loss_in_numpy(head, x, y, draws)
    result = head.compute_loss(x, y, training=True)
    np.testing.assert_allclose(result, expected, **SUMS)


class TestTerms:
    """Each term of the loss against NumPy in float64."""

    random = np.random.default_rng(5)
    retain = 4 * random.normal(size=(6, 9))
    residual = 3 * random.normal(size=(6, 9))
    labels = np.array(
        [[2, 5], [0, -1], [-1, -1], [8, 0], [1, -1], [3, 4]], np.int64
    )

    @pytest.fixture
    def target(self):
        return dropmax.is_target(tf.zeros([6, 9]), tf.constant(self.labels))

    def check(self, result, expected):
        total = tf.reduce_sum(result, axis=1)
        np.testing.assert_allclose(total, expected, rtol=2e-5, atol=1e-5)

    @property
    def expected(self):
        return reference.dropmax_terms(self.retain, self.labels, self.residual)

    def test_is_target(self, target):
        wanted = [[c in row for c in range(9)] for row in self.labels]
        np.testing.assert_array_equal(target, wanted)

    def test_target_penalty(self, target):
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.target_penalty(retain, target)
        self.check(result, self.expected["target"])

    def test_kl(self, target):
        retain = tf.constant(self.retain, tf.float32)
        posterior = tf.constant(self.retain + self.residual, tf.float32)
        result = dropmax.bernoulli_kl(posterior, retain, target)
        self.check(result, self.expected["kl"])
        assert np.all(result.numpy() >= -1e-6)

    def test_kl_of_the_prior_is_equation_10(self, target):
        """With q = rho but at the target, KL is -log rho of the target."""
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.bernoulli_kl(retain, retain, target)
        np.testing.assert_array_equal(
            result, dropmax.target_penalty(retain, target)
        )

    def test_auxiliary(self, target):
        residual = tf.constant(self.residual, tf.float32)
        result = dropmax.auxiliary_loss(residual, target)
        self.check(result, self.expected["auxiliary"])

    def test_negative_entropy(self):
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.negative_entropy(retain)
        self.check(result, -self.expected["entropy"])
        least = dropmax.negative_entropy(tf.zeros([1])).numpy()
        np.testing.assert_allclose(least, -np.log(2), rtol=1e-6)

    @pytest.mark.parametrize("num_samples", [1, 4])
    def test_masked_cross_entropy(self, num_samples):
        masks = self.random.uniform(size=(num_samples, 6, 9))
        masks[0, :, 3] = 0.0  # dropped for certain
        logits = 2 * self.random.normal(size=(6, 9))
        labels = self.labels[:, :1].copy()
        labels[5] = 7
        with np.errstate(divide="ignore"):
            log_masks = tf.constant(np.log(masks), tf.float32)
        result = dropmax.masked_cross_entropy(
            tf.constant(logits, tf.float32), log_masks, as_targets(labels, 9)
        )
        expected = np.mean(
            [
                reference.cross_entropy(logits + np.log(z + 1e-20), labels)
                for z in masks
            ],
            axis=0,
        )
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)

    def test_all_classes_dropped(self):
        """Epsilon alone is left: the softmax of the logits."""
        log_masks = tf.fill([1, 2, 3], float("-inf"))
        logits = tf.constant([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
        result = dropmax.masked_cross_entropy(
            logits, log_masks, as_targets([0, 1], 3)
        )
        expected = reference.cross_entropy(logits.numpy(), [0, 1])
        np.testing.assert_allclose(result, expected, rtol=1e-5)

    def test_add_epsilon(self):
        z = np.array([0.0, 1e-30, 1e-20, 3e-20, 1e-5, 0.5, 1.0])
        with np.errstate(divide="ignore"):
            log_mask = tf.constant(np.log(z), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(log_mask)
            result = dropmax.add_epsilon(log_mask)
        np.testing.assert_allclose(result, np.log(z + 1e-20), rtol=1e-6)
        np.testing.assert_allclose(
            tape.gradient(result, log_mask), z / (z + 1e-20), atol=1e-5
        )


class TestMasks:
    def test_expectation_over_many_draws(self):
        rho = np.array([0.02, 0.2, 0.5, 0.9, 0.99])
        logits = np.log(rho / (1 - rho)).astype(np.float32)
        draws = dropmax.uniform([100_000, 5], [3, 4])
        error = 4 * np.sqrt(rho * (1 - rho) / 1e5)
        hard = np.exp(dropmax.bernoulli_log_mask(logits, draws))
        assert set(np.unique(hard)) == {0.0, 1.0}
        assert np.all(np.abs(hard.mean(axis=0) - rho) < error)
        z = np.exp(dropmax.concrete_log_mask(logits, draws, 0.1))
        assert np.all(np.abs((z > 0.5).mean(axis=0) - rho) < error)
        # The mean of a relaxed mask, by the midpoint rule.
        u = (np.arange(400_000) + 0.5) / 400_000
        exact = reference.concrete_mask(logits, u[:, None], 0.1).mean(axis=0)
        assert np.all(np.abs(z.mean(axis=0) - exact) < error)
        np.testing.assert_allclose(exact, rho, atol=0.01)

    @pytest.mark.parametrize("temperature", [0.1, 0.7])
    def test_concrete_equals_numpy(self, temperature):
        random = np.random.default_rng(1)
        logits = 3 * random.normal(size=(4, 6))
        draws = random.uniform(0.01, 0.99, (5, 4, 6))
        result = dropmax.concrete_log_mask(
            tf.constant(logits, tf.float32),
            tf.constant(draws, tf.float32),
            temperature,
        )
        expected = np.log(reference.concrete_mask(logits, draws, temperature))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)

    def test_gradient_through_the_relaxation(self):
        random = np.random.default_rng(1)
        logits = random.normal(size=(4, 6))
        draws = random.uniform(0.05, 0.95, (3, 4, 6)).astype(np.float32)
        upstream = random.normal(size=(3, 4, 6))
        given = tf.constant(logits, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(given)
            z = dropmax.concrete_log_mask(given, tf.constant(draws), 0.5)
        gradient = tape.gradient(z, given, tf.constant(upstream, tf.float32))

        def in_numpy(x):
            masks = reference.concrete_mask(x, draws, 0.5)
            return np.sum(upstream * np.log(masks))

        for _ in range(5):
            direction = random.normal(size=logits.shape)
            expected = reference.numeric_gradient(in_numpy, logits, direction)
            np.testing.assert_allclose(
                np.sum(gradient.numpy() * direction), expected, rtol=1e-4
            )

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=8),
        st.integers(0, 2**31),
    )
    def test_masks_are_finite_between_0_and_1(self, logits, seed):
        draws = dropmax.uniform([3, len(logits)], [seed, 1])
        log_z = dropmax.concrete_log_mask(tf.constant(logits), draws, 0.1)
        assert np.all(np.isfinite(log_z)) and np.all(log_z.numpy() <= 0)


@each_mode
def test_gradients_by_finite_differences(mode):
    """Through the masks as well; but not into rho through the posterior."""
    head = built(make_head(mode, num_samples=2, temperature=0.5))
    draws = draws_of(head)
    if mode == "attention":
        draws = draws[:1]
    x, y = data()
    upstream = np.random.default_rng(1).normal(size=BATCH)
    variables = head.trainable_variables
    with tf.GradientTape() as tape:
        losses = head.compute_loss(x, y, training=True)
    gradients = tape.gradient(
        losses,
        [v.value for v in variables],
        output_gradients=tf.constant(upstream, tf.float32),
    )
    kernels = {v.name: v.numpy().astype(np.float64) for v in variables}
    frozen = kernels.get("retain_kernel"), kernels.get("retain_bias")

    def loss(changed):
        """As the head's, the posterior's rho held where it is."""
        held = Held(head, {**kernels, **changed}, frozen)
        return upstream @ held.losses(x, y, draws)

    for variable, gradient in zip(variables, gradients):
        start = kernels[variable.name]
        direction = np.random.default_rng(2).normal(size=start.shape)
        expected = reference.numeric_gradient(
            lambda value, name=variable.name: loss({name: value}),
            start,
            direction,
        )
        result = np.sum(tf.convert_to_tensor(gradient).numpy() * direction)
        np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


class Held:
    """The loss in NumPy of given weights."""

    def __init__(self, head, weights, frozen):
        self.head, self.weights, self.frozen = head, weights, frozen

    def losses(self, x, y, draws):
        head, weights = self.head, self.weights
        x = np.asarray(x, np.float64)
        retain = retain_logits(head, x)
        residual = None
        if head.retain is not None:
            retain = x @ weights["retain_kernel"].T + weights["retain_bias"]
        if head.posterior is not None:
            r = x @ weights["posterior_kernel"].T + weights["posterior_bias"]
            before = x @ self.frozen[0].T + self.frozen[1]
            # q's logit is before + r, as a residual to what retain is now.
            residual = before + r - retain
        options = {
            "temperature": head.temperature,
            "residual": residual,
            "kl": head.kl_weight,
            "auxiliary": 0.0,
            "entropy": head.entropy_weight,
        }
        logits = x @ weights["kernel"].T
        losses = reference.dropmax_loss(
            head.mode, logits, retain, draws, y[:, None], **options
        )
        if head.posterior is not None:
            terms = reference.dropmax_terms(retain, y[:, None], r)
            losses += head.auxiliary_weight * terms["auxiliary"]
        return losses


@each_mode
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_great_logits_are_finite(mode, size):
    head = make_head(mode, num_classes=4)
    head.build((None, 1))
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for variable in head.trainable_variables:
        shape = (4,) if len(variable.shape) == 1 else (4, 1)
        variable.assign(size / 2 * signs.reshape(shape))
    head.kernel.assign(2 * head.kernel)
    x = tf.constant([[1.0], [1.0], [1.0], [1.0], [-1.0]])
    y = np.array([0, 1, 2, 3, 0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = head.compute_loss(x, y, training=True)
    sources = [x, *(v.value for v in head.trainable_variables)]
    for gradient in tape.gradient(losses, sources):
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))
    assert np.all(np.isfinite(losses))
    assert np.all(np.isfinite(head.compute_loss(x, y)))
    np.testing.assert_allclose(np.sum(head(x), axis=1), 1.0, rtol=1e-5)
    if mode != "attention":
        head.predict_samples = 5
        np.testing.assert_allclose(np.sum(head(x), axis=1), 1.0, rtol=1e-5)


def mixture_in_numpy(head, x, num_samples):
    logits = reference.head_logits(x, head.kernel.numpy())
    rho = reference.sigmoid(retain_logits(head, x))
    total = 0.0
    for i in range(num_samples):
        u = dropmax.uniform([head.num_classes], [head.seed, i]).numpy()
        masks = (u < rho).astype(float)
        total += np.exp(reference.masked_log_softmax(logits, masks))
    return total / num_samples


class TestPrediction:
    @pytest.mark.parametrize("mode", ["adaptive", "posterior", "random"])
    def test_samples_equal_numpy(self, mode):
        head = built(make_head(mode, predict_samples=30))
        x, y = data()
        expected = mixture_in_numpy(head, x, 30)
        result = head(x).numpy()
        np.testing.assert_allclose(result, expected, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(result.sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(
            head.compute_loss(x, y),
            -np.log(expected[np.arange(BATCH), y]),
            rtol=1e-4,
        )
        ids, scores = head.top_k(x, 4)
        best, _ = reference.top_k(expected, 4)
        np.testing.assert_array_equal(ids, best)
        np.testing.assert_allclose(
            scores, np.take_along_axis(result, best, 1), rtol=1e-5
        )

    def test_many_samples_approach_the_mean_over_all_masks(self):
        head = layers.DropMax(3, "adaptive", seed=1, predict_samples=20_000)
        built(head)
        x, _ = data(rows=2)
        logits = reference.head_logits(x, head.kernel.numpy())
        rho = reference.sigmoid(retain_logits(head, x))
        expected = 0.0
        for mask in np.ndindex(2, 2, 2):
            p = np.where(mask, rho, 1 - rho).prod(axis=1, keepdims=True)
            masked = reference.masked_log_softmax(logits, np.array(mask))
            expected = expected + p * np.exp(masked)
        np.testing.assert_allclose(head(x), expected, atol=0.015)

    def test_the_same_in_any_batch_and_call(self):
        head = built(make_head("adaptive", predict_samples=10))
        x, _ = data()
        first = head(x).numpy()
        np.testing.assert_array_equal(first, head(x))
        alone = np.concatenate([head(x[i : i + 1]) for i in range(BATCH)])
        np.testing.assert_allclose(first, alone, rtol=1e-5, atol=1e-7)
        head.compute_loss(x, np.zeros(BATCH, int), training=True)
        np.testing.assert_array_equal(first, head(x))

    def test_logits_are_log_probabilities(self):
        options = {"predict_samples": 10, "activation": None}
        head = built(make_head("adaptive", **options))
        x, _ = data()
        expected = np.log(mixture_in_numpy(head, x, 10))
        np.testing.assert_allclose(head(x), expected, rtol=1e-4, atol=1e-4)

    def test_nan_rows_of_samples_have_no_best(self):
        head = built(make_head("adaptive", predict_samples=3))
        x, _ = data()
        x[2] = np.nan
        ids, _ = head.top_k(x, 4)
        assert np.all(ids.numpy()[2] == -1)
        assert np.all(np.delete(ids.numpy(), 2, axis=0) >= 0)

    @each_mode
    @pytest.mark.parametrize("predict_samples", [None, 30])
    @pytest.mark.parametrize("activation", ["softmax", None])
    def test_export(self, mode, predict_samples, activation, tmp_path):
        """Proven through TensorFlow's C API: stock ops alone."""
        if mode == "attention" and predict_samples:
            pytest.skip("nothing is drawn")
        options = {"use_bias": True, "activation": activation}
        head = make_head(mode, predict_samples=predict_samples, **options)
        model = make_model(head)
        randomize(head)
        folder = tfxclass.export.saved_model(model, tmp_path, top_k=7)
        x, _ = data()
        served = tf.saved_model.load(folder).signatures["serving_default"]
        answers = served(x=tf.constant(x))
        ids, scores = tfxclass.top_k(model, 7).predict(x, verbose=0)
        np.testing.assert_array_equal(answers["ids"], ids)
        np.testing.assert_allclose(answers["scores"], scores, rtol=1e-4)

    @pytest.mark.parametrize("predict_samples", [None, 4])
    def test_blocks_of_many_classes(self, predict_samples, monkeypatch):
        """Streamed in blocks of 1,024 and exported in blocks, too."""
        monkeypatch.setattr("tfxclass.losses.softmax.BLOCK_LOGITS", 1)
        monkeypatch.setattr("tfxclass.stock_top_k.ONE_BLOCK_CLASSES", 100)
        head = layers.DropMax(
            2500,
            num_sampled=50,
            sampler="uniform",
            use_bias=True,
            predict_samples=predict_samples,
            seed=1,
        )
        built(head)
        x, y = data(classes=2500)
        output = head(x).numpy()
        expected, _ = reference.top_k(output, 5)
        weights = head.export_weights()
        for ids, scores in (
            head.top_k(x, 5),
            tf.function(lambda x: head.export_top_k(x, 5, weights))(x),
        ):
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_allclose(
                scores, np.take_along_axis(output, expected, 1), rtol=1e-4
            )
        np.testing.assert_allclose(
            head.compute_loss(x, y),
            -np.log(output[np.arange(BATCH), y]),
            rtol=1e-4,
        )


class TestRetainProbabilities:
    @each_mode
    def test_second_output(self, mode):
        model = make_model(make_head(mode))
        randomize(model.layers[-1])
        x, _ = data()
        output, rho = tfxclass.retain_probabilities(model).predict(x, verbose=0)
        features = model.layers[0](x).numpy()
        expected = reference.sigmoid(retain_logits(model.layers[-1], features))
        np.testing.assert_allclose(rho, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            output, model.predict(x, verbose=0), rtol=1e-6
        )

    def test_logits_and_samples(self):
        head = make_head("adaptive", activation=None, predict_samples=3)
        model = make_model(head)
        x, _ = data()
        output, _ = tfxclass.retain_probabilities(model).predict(x, verbose=0)
        np.testing.assert_allclose(np.exp(output).sum(axis=1), 1.0, rtol=1e-5)

    def test_other_heads_have_none(self):
        model = make_model(layers.FullSoftmax(CLASSES))
        with pytest.raises(ValueError, match="FullSoftmax"):
            tfxclass.retain_probabilities(model)


class Recorded:
    """What a head's sampler gave last."""

    def __init__(self, head):
        self.inner = head.sampler.sample
        head.sampler.sample = self

    def __call__(self, *args):
        self.sample = self.inner(*args)
        return self.sample


SAMPLERS = {
    "uniform": lambda n: samplers.UniformSampler(n, seed=1),
    "log_uniform": lambda n: samplers.LogUniformSampler(n, seed=1),
    "top_k": lambda n: samplers.TopKSampler(n, seed=1),
    "forest": lambda n: samplers.HashingForestSampler(
        n, num_trees=2, leaf_size=5, rebuild_interval=1, seed=1
    ),
}


class TestActiveSet:
    @each_mode
    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_the_set_of_all_classes_is_the_full_one(self, mode, sampler):
        options = {"num_samples": 2, "use_bias": True}
        full = built(make_head(mode, **options))
        draws = draws_of(full)
        head = built(
            make_head(mode, sampler=SAMPLERS[sampler](CLASSES), **options)
        )
        recorded = Recorded(head)
        head._draws = lambda logits: tf.gather(
            draws, recorded.sample.ids, axis=2
        )
        x, y = data(labels_wide=2)
        results = []
        for one in (full, head):
            features = tf.constant(x)
            sources = [features, *(v.value for v in one.trainable_variables)]
            with tf.GradientTape() as tape:
                tape.watch(features)
                losses = one.compute_loss(features, y, training=True)
            gradients = tape.gradient(losses, sources)
            results.append([losses, *map(tf.convert_to_tensor, gradients)])
        for ours, expected in zip(*results):
            np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=2e-4)

    @pytest.mark.parametrize("mode", ["adaptive", "posterior"])
    def test_regularisers_are_unbiased(self, mode):
        """Without cross-entropy, whose log is not: logits of -1e4 at all but
        the label, which drop out of the sum."""
        options = {"sampler": SAMPLERS["log_uniform"](12)}
        full = make_head(mode)
        sampled = make_head(mode, **options)
        x, y = data(rows=4)
        for head in (full, sampled):
            built(head)
            logits = np.full((BATCH, CLASSES), -1e4)
            logits[:, y] = 1.0
            head.kernel.assign(np.zeros(head.kernel.shape))
        for head in (full, sampled):
            head.masked = head._log_masks
            head._log_masks = lambda logits, drawn_by, target: tf.where(
                target, 0.0, tf.fill(tf.shape(logits), -1e4)
            )[tf.newaxis]
        expected = full.compute_loss(x, y, training=True).numpy()
        step = tf.function(lambda: sampled.compute_loss(x, y, training=True))
        draws = np.array([step() for _ in range(2000)])
        error = 5 * draws.std(axis=0) / np.sqrt(len(draws)) + 1e-4
        assert np.all(np.abs(draws.mean(axis=0) - expected) < error)

    @pytest.mark.parametrize("mode", ["adaptive", "posterior"])
    def test_gradients_name_the_sampled_rows_alone(self, mode):
        head = built(make_head(mode, num_sampled=30, sampler="uniform"))
        x, y = data()
        recorded = Recorded(head)
        kernels = [head.kernel, head.retain[0]]
        with tf.GradientTape() as tape:
            loss = head.compute_loss(x, y, training=True)
        for gradient in tape.gradient(loss, [v.value for v in kernels]):
            assert isinstance(gradient, tf.IndexedSlices)
            assert gradient.values.shape == (30, DIM)
            np.testing.assert_array_equal(gradient.indices, recorded.sample.ids)

    def test_masked_classes_count_for_nothing(self):
        """Classes that a sampler keeps from a row have no penalty there."""
        head = built(make_head("posterior", sampler=SAMPLERS["uniform"](40)))
        x, y = data()
        inner = head.sampler.sample
        keep = np.random.default_rng(0).uniform(size=(BATCH, 40)) < 0.5

        def sample(*args):
            found = inner(*args)
            self.ids = found.ids.numpy()
            self.columns = found.positions.numpy()
            mask = keep.copy()
            np.put_along_axis(mask, self.columns, True, axis=1)
            self.mask = mask
            return found._replace(
                mask=tf.constant(mask),
                log_expected_count=tf.zeros_like(found.log_expected_count),
            )

        head.sampler.sample = sample
        draws = np.full((1, BATCH, 40), 0.4, np.float32)
        head._draws = lambda logits: tf.constant(draws)
        result = head.compute_loss(x, y, training=True).numpy()
        for i, (mask, column) in enumerate(zip(self.mask, self.columns)):
            ids = self.ids[mask]
            place = np.flatnonzero(ids == self.ids[column])
            expected = loss_in_numpy(
                head, x[i : i + 1], None, draws[:, :1, mask], ids, [place]
            )
            np.testing.assert_allclose(result[i], expected[0], **SUMS)

    def test_ranks_by_the_expected_mask_in_training(self):
        head = built(make_head("adaptive", num_sampled=30, sampler="uniform"))
        x, y = data()
        recorded = Recorded(head)
        head.compute_loss(x, y, training=True)
        ranking = records.take(head.name, records.Ranking)
        expected = expected_logits(head, x)[:, recorded.sample.ids.numpy()]
        np.testing.assert_allclose(ranking.logits, expected, **TOLERANCE)

    def test_no_gradient_of_the_streamed_loss(self):
        head = built(make_head("adaptive", num_sampled=30, sampler="uniform"))
        x, y = data()
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = head.compute_loss(x, y)
        with pytest.raises(ValueError, match="training=True"):
            tape.gradient(loss, x)

    def test_the_exact_loss_of_all_classes_has_one(self):
        head = built(make_head("adaptive"))
        x, y = data()
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = head.compute_loss(x, y)
        assert np.all(np.isfinite(tape.gradient(loss, x)))


@each_mode
@pytest.mark.parametrize("num_classes", [1, 2])
def test_few_classes(mode, num_classes):
    head = built(make_head(mode, num_classes=num_classes))
    x, _ = data()
    y = np.arange(BATCH) % num_classes
    draws = draws_of(head)
    losses = head.compute_loss(x, y, training=True)
    np.testing.assert_allclose(losses, loss_in_numpy(head, x, y, draws), **SUMS)
    output = reference.softmax(expected_logits(head, x))
    np.testing.assert_allclose(head(x), output, **TOLERANCE)


def test_random_of_one_is_the_softmax():
    head = built(make_head("random", retain_probability=1.0))
    full = built(layers.FullSoftmax(CLASSES))
    full.kernel.assign(head.kernel)
    x, y = data()
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        full.compute_loss(x, y),
        **TOLERANCE,
    )


def test_a_step_draws_anew_and_each_row_for_itself():
    head = built(make_head("random", num_samples=2))
    logits = tf.zeros([BATCH, CLASSES])
    first, second = head._draws(logits).numpy(), head._draws(logits).numpy()
    assert first.shape == (2, BATCH, CLASSES)
    assert len(np.unique(np.stack([first, second]))) > 0.99 * 2 * first.size
    assert np.all(first > 0) and np.all(first < 1)


def test_cosine_with_a_margin():
    """rho reads the scaled unit features; the margin is on the label."""
    options = {"similarity": "cosine", "scale": 5.0, "num_samples": 1}
    plain = built(make_head("attention", **options))
    head = built(make_head("attention", margin=0.2, **options))
    x, y = data()
    queries = 5 * reference.normalized(x)
    logits = reference.head_logits(x, head.kernel.numpy(), None, "cosine", 5)
    retain = affine(head.retain, queries)
    logits += np.log(reference.sigmoid(retain))
    for one, margin in ((plain, 0.0), (head, 1.0)):
        moved = logits.copy()
        moved[np.arange(BATCH), y] -= margin
        np.testing.assert_allclose(
            one.compute_loss(x, y, training=True),
            reference.cross_entropy(moved, y),
            rtol=1e-4,
        )
        np.testing.assert_allclose(
            one.compute_loss(x, y),
            reference.cross_entropy(logits, y),
            rtol=1e-4,
        )


INVALID = {
    "mode": (lambda: layers.DropMax(9, "none"), ["`mode`", "'none'"]),
    "num_samples": (
        lambda: layers.DropMax(9, num_samples=0),
        ["`num_samples` must be a positive integer", "0"],
    ),
    "temperature": (
        lambda: layers.DropMax(9, temperature=0.0),
        ["`temperature` must be > 0", "0.0"],
    ),
    "kl_weight": (
        lambda: layers.DropMax(9, kl_weight=-1.0),
        ["`kl_weight` must be >= 0", "-1.0"],
    ),
    "auxiliary_weight": (
        lambda: layers.DropMax(9, auxiliary_weight=float("nan")),
        ["`auxiliary_weight`", "nan"],
    ),
    "entropy_weight": (
        lambda: layers.DropMax(9, entropy_weight=float("inf")),
        ["`entropy_weight`", "inf"],
    ),
    "retain_probability": (
        lambda: layers.DropMax(9, "random", retain_probability=0.0),
        ["`retain_probability` must be in (0, 1]", "0.0"],
    ),
    "retain_probability_missing": (
        lambda: layers.DropMax(9, "random"),
        ['for mode="random"', "retain_probability=None"],
    ),
    "retain_probability_given": (
        lambda: layers.DropMax(9, retain_probability=0.5),
        ['for mode="random"', "mode='adaptive'"],
    ),
    "predict_samples": (
        lambda: layers.DropMax(9, predict_samples=0),
        ["`predict_samples` must be a positive integer", "0"],
    ),
    "predict_samples_of_attention": (
        lambda: layers.DropMax(9, "attention", predict_samples=3),
        ["`predict_samples` must be None", "3"],
    ),
    "num_sampled": (
        lambda: layers.DropMax(9, num_sampled=3),
        ["`num_sampled` needs a `sampler`", "num_sampled=3"],
    ),
    "sampler": (
        lambda: layers.DropMax(9, sampler="nearest", num_sampled=3),
        ["`sampler` must be one of", "'nearest'"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    call, parts = INVALID[name]
    with pytest.raises(ValueError) as error:
        call()
    for part in parts:
        assert part in str(error.value)
