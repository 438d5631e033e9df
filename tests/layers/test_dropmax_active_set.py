"""DropMax among the classes of a sampler."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import TOLERANCE
from tests.support.contract import built
from tests.support.contract import data
from tests.support.dropmax_cases import SUMS
from tests.support.dropmax_cases import drawn_from
from tests.support.dropmax_cases import draws_of
from tests.support.dropmax_cases import each_mode
from tests.support.dropmax_cases import expected_logits
from tests.support.dropmax_cases import loss_in_numpy
from tests.support.dropmax_cases import make_head
from tfxclass import samplers


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
    @pytest.mark.parametrize("sampler", quick(SAMPLERS, ["uniform", "forest"]))
    def test_the_set_of_all_classes_is_the_full_one(self, mode, sampler):
        options = {"num_samples": 2, "use_bias": True}
        full = built(make_head(mode, **options))
        draws_of(full)
        head = built(
            make_head(mode, sampler=SAMPLERS[sampler](CLASSES), **options)
        )
        recorded = Recorded(head)
        head._draws = lambda *block: tf.gather(
            full._draws(*block), recorded.sample.ids, axis=2
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
        """Alone: masks that drop all but the label leave no cross-entropy."""

        x, y = data(rows=4)
        full = built(make_head(mode))
        sampled = built(make_head(mode, sampler=SAMPLERS["log_uniform"](12)))
        for head in (full, sampled):
            head._draws = lambda seed, start, shape: tf.fill(shape, 1e-38)
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
        kernels = [head.kernel, head.retain.kernel]
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
        head._draws = drawn_from(draws)
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
        ranking = head.compute_step(x, y, training=True).ranking
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
