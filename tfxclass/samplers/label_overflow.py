"""Batches with more distinct labels than `num_sampled`: counted, told once."""

import sys

import tensorflow as tf


class LabelOverflow:
    """Counts the steps whose labels alone were more than `num_sampled`.

    The first one prints a warning on stderr. `gauges` has the number of such
    steps, and the most distinct labels of one of them. They are no weights, so
    files of a model do not have them.
    """

    def __init__(self) -> None:
        # A replica that samples by itself writes a copy of its own.
        with tf.init_scope():
            self.gauges: dict[str, tf.Variable] = {
                name: tf.Variable(
                    0.0,
                    trainable=False,
                    name=name,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
                for name in ("overflow_steps", "overflow_labels")
            }

    def note(
        self, num_labels: tf.Tensor, num_sampled: int, owner: str, parts: int
    ) -> None:
        """Counts a step with `num_labels` distinct labels, if that is too many.

        `owner` is the head's name, and `parts` the number of its shards.
        """
        steps, labels = self.gauges.values()

        def count():
            tf.cond(
                tf.equal(steps, 0.0),
                lambda: _warn(num_labels, num_sampled, owner, parts),
                tf.no_op,
            )
            steps.assign(steps + 1.0)
            labels.assign(tf.maximum(labels, tf.cast(num_labels, tf.float32)))
            return True

        # Most steps have no overflow and run only this comparison.
        tf.cond(num_labels > num_sampled, count, lambda: False)


def _warn(num_labels, num_sampled, owner, parts):
    shard = "" if parts == 1 else f" in one of {parts} shards"
    return tf.print(
        f"WARNING: a batch of {owner!r} has",
        num_labels,
        f"distinct labels{shard}, more than the {num_sampled} classes of "
        f"`num_sampled={num_sampled * parts}`. Such a step computes all of its "
        "labels and no other classes. Fix: `num_sampled=None`, or",
        2 * parts * num_labels,
        "or more. This is printed once; tfxclass.callbacks.SamplerLog counts "
        "further steps.",
        output_stream=sys.stderr,
    )
