"""Copies weights and optimizer state of a head into another one."""

import functools
from typing import Any

import keras
import numpy as np

from tfxclass import shards as shards_lib
from tfxclass.core.class_update import ClassUpdate
from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import path_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows.sharded_rows import read
from tfxclass.rows.sharded_rows import write
from tfxclass.trees.class_means import ClassMeans

# Sums of gradients are 0 then: see `check_can_change`.
_SUMS = "gradient_accumulator"
# Keras' moving average of a weight.
_AVERAGE = "average"


def check_can_change(model: keras.Model) -> None:
    """Raises ValueError in the middle of a step of several batches."""
    for optimizer in _optimizers(model):
        steps = getattr(optimizer, "gradient_accumulation_steps", None)
        if steps and int(num_applied(optimizer)) % steps:
            raise ValueError(
                "Classes change between steps, but the gradients of one are "
                "being summed. Fix: train on a multiple of "
                f"gradient_accumulation_steps={steps} batches before. "
                f"Received: {int(num_applied(optimizer))} batches"
            )


def _optimizers(model):
    """Lists an optimizer, the ones within it, and the ones of its groups."""
    pending, found = [getattr(model, "optimizer", None)], []
    while pending:
        optimizer = pending.pop()
        if optimizer is not None:
            found.append(optimizer)
            pending += getattr(optimizer, "optimizers", ())
            pending.append(getattr(optimizer, "inner_optimizer", None))
    return found


def transfer_state(
    old: keras.Model,
    new: keras.Model,
    heads: tuple[OutputHead, OutputHead],
    change: ClassUpdate,
    means: ClassMeans | None = None,
) -> None:
    """Gives a model what another one knows, after `change` of its head.

    Their other layers are the same. `means` are of the new classes.
    """
    before, after = heads
    sources = after.growth.row_sources(before, change)
    for name, variable in after.weights_by_name.items():
        old_variable = before.weights_by_name.get(name)
        was: Any = None if old_variable is None else read(old_variable)
        if name not in sources:
            write(variable, was)
            continue
        values = np.array(read(variable))
        rows = sources[name]
        values[rows >= 0] = was[rows[rows >= 0]] if was is not None else 0
        after.growth.finish_rows(name, values, before, change, means)
        write(variable, values)
    _carry_state(before, after)
    if getattr(old, "optimizer", None) is not None and old.optimizer.built:
        pairs = _paired(old.optimizer, new.optimizer, heads)
        _carry_slots(pairs, after, sources)


def _carry_state(before, after):
    """Copies seeds and counts of a sampler; its index is built again."""
    pairs = [(before, after)]
    samplers = [getattr(head, "sampler", None) for head in (before, after)]
    if samplers[0] is not None:
        pairs.append(samplers)
        for was, variable in zip(
            *(each.persistent_weights for each in samplers)
        ):
            variable.assign(was)
    for was, now in pairs:
        if getattr(was, "random", None) is not None:
            now.random.state.assign(was.random.state)


def _paired(old, new, heads):
    """Pairs of the same state of two optimizers.

    The head of a subclassed model need not be its last layer: then the order
    of the new model's variables is another.
    """
    before, after = (
        sorted(optimizer.variables, key=functools.partial(_place_of, head=head))
        for optimizer, head in zip((old, new), heads)
    )
    return zip(before, after, strict=True)


def _place_of(variable, head):
    """What a state is of: a weight of the head and a slot, or its own name."""
    found = _slot_of(variable, head, head.weights_by_name)
    return ("", variable.name) if found is None else found


def _carry_slots(pairs, head, sources):
    of_rows = {}
    for was, variable in pairs:
        found = _slot_of(variable, head, sources)
        if found is None:
            if isinstance(variable, keras.Variable):
                write(variable, read(was))
            continue
        name, slot = found
        if slot != _SUMS:
            of_rows.setdefault((name, slot), []).append((was, variable))
    for (name, slot), parts in of_rows.items():
        weight = head.weights_by_name[name] if slot == _AVERAGE else None
        _carry_rows(parts, sources[name], weight)


def _slot_of(variable, head, sources):
    """`(name of the weight, name of the optimizer state)` of a weight."""
    best = None
    for name in sources:
        for part in shards_lib.parts_of(head.weights_by_name[name]):
            prefix = path_of(part).replace("/", "_") + "_"
            is_longer = best is None or len(prefix) > len(best[0])
            if variable.name.startswith(prefix) and is_longer:
                best = prefix, name
    return best and (best[1], variable.name.removeprefix(best[0]))


def _carry_rows(parts, rows, weight):
    """Copies optimizer state; for new rows, averages get their values."""
    variables = [variable for _, variable in parts]
    now = [np.atleast_1d(read(x)) for x in variables]
    was = np.concatenate([np.atleast_1d(read(x)) for x, _ in parts])
    values = np.concatenate(now)
    if len(values) != len(rows):
        # A number for all rows.
        write(variables[0], read(parts[0][0]))
        return
    if weight is not None:
        values = np.array(read(weight), values.dtype)
    values[rows >= 0] = was[rows[rows >= 0]]
    ends = np.cumsum([len(part) for part in now])
    for variable, part in zip(variables, np.split(values, ends[:-1])):
        write(variable, part)
