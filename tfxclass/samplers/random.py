"""Samplers that know nothing of the features."""

import keras

from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler


class _RandomSampler(Sampler):
    _fill = None

    def build(self, kernel_shape):
        self.built = True

    def sample(self, queries, target_ids, kernel):
        chosen = self.choose(target_ids, fill=self._fill)
        return Sample(chosen.ids, chosen.log_expected_count, chosen.positions)


@keras.saving.register_keras_serializable("tfxclass")
class UniformSampler(_RandomSampler):
    """The labels of the batch, then classes drawn uniformly.

    Draws are without replacement among the classes that are no label of the
    batch, so the loss's estimate of the sum of exponentials is unbiased
    (Horvitz-Thompson), and every other label serves as a negative for free.

    Args:
        num_sampled: int, number of classes a step, labels included.
        seed: int.
    """

    _fill = "uniform"


@keras.saving.register_keras_serializable("tfxclass")
class LogUniformSampler(_RandomSampler):
    """The labels of the batch, then classes by a log-uniform law.

    For classes numbered by falling frequency: P(c) = log((c + 2) / (c + 1)) /
    log(num_classes + 1), drawn until `num_sampled` are distinct; expected
    counts 1 - (1 - P(c))^tries as in `tf.random.log_uniform_candidate_sampler`.

    Args:
        num_sampled: int, number of classes a step, labels included.
        seed: int.
    """

    _fill = "log_uniform"
