"""The mean over replicas of variables that have gone apart."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.types import Variable


def assign_means(
    strategy: tf.distribute.Strategy,
    whole: Sequence[Variable],
    rows: Sequence[Any],
) -> list[tf.Tensor]:
    """Gives each replica the mean of all; in cross-replica context.

    Args:
        strategy: the strategy of the variables.
        whole: list of variables that cross as they are.
        rows: list of `(touched, variables)`, where `touched`, bool [num_rows],
            are the rows of them in which replicas may differ. Those that some
            replica touched cross, and then none is touched.

    Returns:
        List of int64 `[n]`, the rows that crossed, one for each of `rows`.
    """
    masks = [touched for touched, _ in rows]
    tables = [(n, v) for n, (_, group) in enumerate(rows) for v in group]
    ids = _union(strategy, masks)
    parts = strategy.run(lambda ids: _read(whole, tables, ids), args=(ids,))
    variables = [*whole, *(table for _, table in tables)]
    means = _all_reduce(strategy, "MEAN", parts, variables)
    update = strategy.extended.update
    for variable, mean in zip(whole, means):
        update(variable, _assign, args=(mean,))
    for (number, table), mean in zip(tables, means[len(whole) :], strict=True):
        update(table, _assign_rows, args=(ids[number], mean))
    for touched in masks:
        update(touched, _clear)
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


def _read(whole, tables, ids):
    """The values that a replica sends."""
    # The read itself has no device, and would be reduced the slow way.
    parts = [tf.identity(tf.convert_to_tensor(v)) for v in whole]
    # Not gathers from variables: they would make each read a copy.
    for number, table in tables:
        parts.append(tf.gather(tf.convert_to_tensor(table), ids[number]))
    return parts


def _all_reduce(strategy, operation, values, variables):
    """Each of the values, reduced to where its variable is."""
    if not values:
        return []
    pairs = list(zip(values, variables, strict=True))
    return strategy.extended.batch_reduce_to(operation, pairs)


def _assign(variable, value):
    variable.assign(value)


def _assign_rows(variable, ids, rows):
    variable.scatter_update(tf.IndexedSlices(rows, ids))


def _clear(touched):
    touched.assign(tf.zeros(touched.shape, tf.bool))
