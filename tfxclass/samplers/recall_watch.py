"""Whether the recall of an index fell, or a probe of a few queries says so."""

from typing import NamedTuple

import tensorflow as tf

# An index is to find this part of what it found when it was new.
_FLOOR = 0.9
#: Probes of a new index that are averaged.
FRESH_PROBES = 4
# What a probe counts in the running means of recall and noise.
_WEIGHT = 0.2
# Standard errors that a single probe, and the running mean, must be below.
_SINGLE, _RUNNING = 3.0, 2.0


class RecallWatch(NamedTuple):
    """Measurements of an index since it was new; float32 scalars.

    Attributes:
        fresh: mean recall of its first probes.
        probes: how many these are.
        recent: running mean of the recall.
        noise: running mean of a probe's variance.
    """

    fresh: tf.Tensor
    probes: tf.Tensor
    recent: tf.Tensor
    noise: tf.Tensor

    def after(
        self, recall: tf.Tensor, variance: tf.Tensor, is_new: tf.Tensor
    ) -> "RecallWatch":
        """With one probe more.

        Args:
            recall: float32 scalar.
            variance: float32 scalar, of `recall` as an estimate.
            is_new: bool scalar, whether it is the first one of this index.
        """
        probes = tf.where(is_new, 0.0, self.probes)
        fresh = (self.fresh * probes + recall) / (probes + 1)
        counts = probes < FRESH_PROBES
        first = is_new | (self.noise == 0)
        return RecallWatch(
            tf.where(counts, fresh, self.fresh),
            tf.where(counts, probes + 1, probes),
            tf.where(is_new, recall, self._running(self.recent, recall)),
            tf.where(first, variance, self._running(self.noise, variance)),
        )

    @staticmethod
    def _running(mean, value):
        return (1 - _WEIGHT) * mean + _WEIGHT * value

    def fell(self, recall: tf.Tensor) -> tf.Tensor:
        """Whether the recall is below 0.9 times the one of the new index.

        By the last probe, `recall`, alone, which tells a sudden fall, or by the
        running mean, which tells a slow one; each by more than noise is.
        """
        of_fresh = 1 / tf.maximum(self.probes, 1.0)
        floor = _FLOOR * self.fresh
        single = _SINGLE * tf.sqrt(self.noise * (1 + of_fresh))
        of_mean = _WEIGHT / (2 - _WEIGHT)
        running = _RUNNING * tf.sqrt(self.noise * (of_mean + of_fresh))
        return (recall < floor - single) | (self.recent < floor - running)


def recall_of(
    hits: tf.Tensor, wanted: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(recall, variance)` of a probe, float32 scalars.

    The variance is measured between the queries, whose hits come together, and
    is at least the variance of independent hits with a prior that is never 0 or
    1.

    Args:
        hits: int32 `[queries]`, classes that the index found.
        wanted: int32 `[queries]`, of so many; 0 counts for nothing.
    """
    hits, wanted = (tf.cast(x, tf.float32) for x in (hits, wanted))
    total = tf.maximum(tf.reduce_sum(wanted), 1.0)
    recall = tf.reduce_sum(hits) / total
    rest = hits - recall * wanted
    queries = tf.reduce_sum(tf.cast(wanted > 0, tf.float32))
    unbiased = queries / tf.maximum(queries - 1, 1.0)
    between = unbiased * tf.reduce_sum(rest**2) / total**2
    prior = (tf.reduce_sum(hits) + 1) / (total + 2)
    return recall, tf.maximum(between, prior * (1 - prior) / total)
