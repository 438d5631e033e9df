"""Gradients that are summed over steps, of the rows that these touch."""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import row_update
from tfxclass.optimizers.averaged_rows import AveragedRows
from tfxclass.types import Gradient
from tfxclass.types import Variable


class AccumulatedRows(AveragedRows):
    """Mixin: `gradient_accumulation_steps` at the cost of the touched rows.

    Sums lie in Keras' accumulators, each as large as its variable. Beside them
    are the ids of the rows that had gradients since the last step, as many as
    there were: only these are read, applied and cleared.
    """

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if not self.gradient_accumulation_steps:
            return
        self._summed_ids = [self._add_ids(v) for v in variables]
        # Indices of variables that are known to get row gradients.
        self._indices_of_rows = set()

    def _add_ids(self, variable):
        """Of rows whose sums are not 0, int64 of any length."""
        if self._is_replicated or not self._has_history(variable):
            return None
        with tf.init_scope():
            ids = tf.Variable(
                tf.zeros([0], tf.int64), trainable=False, shape=[None]
            )
        self._track(ids)
        return ids

    def _sum_gradients(self, grads, variables):
        """Adds gradients to the sums of their variables."""
        for gradient, variable in zip(grads, variables):
            index = self._index_of(variable)
            total = tf_variable(self._gradient_sums[index])
            ids = self._summed_ids[index]
            if isinstance(gradient, tf.IndexedSlices):
                self._indices_of_rows.add(index)
                new = tf.cast(gradient.indices, tf.int64)
                values = tf.cast(gradient.values, total.dtype)
                row_update.add_rows(total.handle, new, values)
                ids.assign(_of_any_length(tf.concat([ids, new], axis=0)))
            else:
                total.assign_add(tf.cast(gradient, total.dtype))
                if ids is not None:
                    every = tf.range(variable.shape[0], dtype=tf.int64)
                    ids.assign(_of_any_length(every))

    def _mean_gradients(self, grads, variables):
        """Of the steps since the last one, with these."""
        self._sum_gradients(grads, variables)
        return [
            self._mean_gradient(gradient, self._index_of(variable))
            for gradient, variable in zip(grads, variables)
        ]

    def _mean_gradient(self, gradient: Gradient, index: int) -> Gradient:
        steps = self.gradient_accumulation_steps
        total = tf_variable(self._gradient_sums[index])
        if not isinstance(gradient, tf.IndexedSlices):
            return total / steps
        ids = tf.unique(self._summed_ids[index])[0]
        # Not a read of the whole: a row update would have to copy it.
        rows = tf.gather(total, ids)
        return tf.IndexedSlices(rows / steps, ids, tf.shape(total))

    def _clear_sums(self):
        """Also of variables without a gradient in this step, as Keras."""
        for index, ids in enumerate(self._summed_ids):
            total = self._gradient_sums[index]
            if total is None:
                continue
            total = tf_variable(total)
            if index in self._indices_of_rows:
                row_update.clear_rows(total, ids)
            else:
                total.assign(tf.zeros_like(total))
            if ids is not None:
                ids.assign(_of_any_length(tf.zeros([0], tf.int64)))

    def _is_last_of_sum(self):
        """Whether this step is to apply what was summed."""
        return (num_applied(self) + 1) % self.gradient_accumulation_steps == 0


def _of_any_length(ids):
    """`ids`, int64 `[n]`, of which a graph does not know n.

    TensorFlow's optimizer of graphs takes the shape of what is assigned to a
    variable for the variable's in the whole step, also where it was longer.
    """
    return tf.raw_ops.PlaceholderWithDefault(input=ids, shape=[None])
