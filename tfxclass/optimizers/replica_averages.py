"""Averages of replicas that take steps by themselves."""

import functools
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import tf_variable
from tfxclass.optimizers.stages import StageSchedule
from tfxclass.types import Gradient


class ReplicaAverages:
    """Averages the model of a built `LocalSGD` and its momentum."""

    def __init__(self, optimizer: Any, schedule: StageSchedule) -> None:
        self._optimizer = optimizer
        self._strategy = optimizer._strategy
        self._is_average = schedule.is_average
        self._touched = [self._add_touched(v) for v in optimizer._built_for]
        # Indices of variables that are known to get row gradients.
        self._row_indices: set[int] = set()
        # `iterations` at the last average by `average()`.
        self._averaged_at = 0

    def _add_touched(self, variable):
        """Rows that a replica moved since the last average, bool [num_rows]."""
        # None are when a model is saved: they are no state of the optimizer.
        if len(variable.shape) < 2:
            return None  # Vectors, as small as their marks, are averaged whole.
        extended = self._strategy.extended
        with extended.colocate_vars_with(tf_variable(variable)):
            marks = tf.zeros(variable.shape[:1], tf.bool)
            return tf.Variable(marks, trainable=False)

    def mark(self, index: int, gradient: Gradient) -> None:
        """Marks the rows of a variable that a gradient moves."""
        touched = self._touched[index]
        if touched is None:
            return
        if isinstance(gradient, tf.IndexedSlices):
            self._row_indices.add(index)
            marks = tf.ones_like(gradient.indices, dtype=tf.bool)
            touched.scatter_update(tf.IndexedSlices(marks, gradient.indices))
        else:
            touched.assign(tf.ones(touched.shape, tf.bool))

    def average_if_due(self, strategy: tf.distribute.Strategy) -> None:
        """Averages if it is time; after a step, once for all replicas."""
        tf.cond(
            self._is_average(self._optimizer.iterations),
            lambda: self._average(strategy, tuple(sorted(self._row_indices))),
            lambda: None,
        )

    def _average(self, strategy, row_indices):
        whole, rows, tables = [], [], []
        states = zip(self._optimizer._built_for, self._optimizer._states)
        for index, (variable, state) in enumerate(states):
            group = [tf_variable(one) for one in (variable, *state.values())]
            if index in row_indices:
                rows.append((self._touched[index], group))
                tables.append(variable)
            else:
                whole += group
        moved = _assign_means(strategy, whole, rows)
        for variable, ids in zip(tables, moved):
            matrix = self._optimizer._matrix_of(variable)
            if matrix is not None:
                matrix.on_moved(ids)

    def average(self) -> None:
        """Averages now, unless replicas are equal; outside of replicas."""
        if not self.replicas_differ():
            return
        with self._strategy.scope():
            self._averaging(self._strategy, tuple(sorted(self._row_indices)))
        self.note_equal()

    @functools.cached_property
    def _averaging(self):
        # One graph, but where other variables turn out to get row gradients.
        return tf.function(self._average, autograph=False)

    def replicas_differ(self) -> bool:
        """Whether there was a step since the last average."""
        step = int(self._optimizer.iterations.numpy())
        if step in (0, self._averaged_at):
            return False
        return not bool(self._is_average(step - 1))

    def note_equal(self) -> None:
        """Says that all replicas have the same values now."""
        self._averaged_at = int(self._optimizer.iterations.numpy())


def _assign_means(strategy, whole, rows):
    """Gives each replica the mean of all; in cross-replica context.

    The variables `whole` cross as they are, and of the pairs `rows` of marks
    and variables the rows that a replica touched. Returns the ids of these rows
    for each pair, and clears the marks.
    """
    masks = [touched for touched, _ in rows]
    tables = [(n, v) for n, (_, group) in enumerate(rows) for v in group]
    ids = _union(strategy, masks)

    def read(ids):
        # The read itself has no device, and would be reduced the slow way.
        parts = [tf.identity(tf.convert_to_tensor(v)) for v in whole]
        # Not gathers from variables: they would make each read a copy.
        reads = [(tf.convert_to_tensor(table), n) for n, table in tables]
        return parts + [tf.gather(table, ids[n]) for table, n in reads]

    parts = strategy.run(read, args=(ids,))
    variables = [*whole, *(table for _, table in tables)]
    means = _all_reduce(strategy, "MEAN", parts, variables)
    update = strategy.extended.update
    for variable, mean in zip(whole, means):
        update(variable, lambda v, mean: v.assign(mean), args=(mean,))
    for (number, table), mean in zip(tables, means[len(whole) :], strict=True):
        update(
            table,
            lambda v, at, rows: v.scatter_update(tf.IndexedSlices(rows, at)),
            args=(ids[number], mean),
        )
    for touched in masks:
        update(touched, lambda v: v.assign(tf.zeros_like(v)))
    # Alike in all replicas.
    return [strategy.experimental_local_results(x)[0] for x in ids]


def _union(strategy, masks):
    """Ids of the rows that any replica touched, for each mask."""
    counts = strategy.run(lambda: [tf.cast(m, tf.float32) for m in masks])
    counts = _all_reduce(strategy, "SUM", counts, masks)
    return strategy.run(
        lambda counts: [tf.where(count > 0)[:, 0] for count in counts],
        args=(counts,),
    )


def _all_reduce(strategy, operation, values, variables):
    """Each of the values, reduced to where its variable is."""
    if not values:
        return []
    pairs = list(zip(values, variables, strict=True))
    return strategy.extended.batch_reduce_to(operation, pairs)
