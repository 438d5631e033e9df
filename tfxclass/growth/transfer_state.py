"""The same model with another head, compiled alike, and with its state."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from tfxclass import shards as shards_lib
from tfxclass.core.class_update import ClassUpdate
from tfxclass.inference.graph import HeadFeatures
from tfxclass.inference.graph import encoder_of
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
    pending = [getattr(model, "optimizer", None)]
    while pending:
        optimizer = pending.pop()
        if optimizer is None:
            continue
        # Of its groups, and the one within it.
        pending += getattr(optimizer, "optimizers", ())
        pending.append(getattr(optimizer, "inner_optimizer", None))
        steps = getattr(optimizer, "gradient_accumulation_steps", None)
        if steps and int(num_applied(optimizer)) % steps:
            raise ValueError(
                "Classes change between steps, but the gradients of one are "
                "being summed. Fix: train on a multiple of "
                f"gradient_accumulation_steps={steps} batches before. "
                f"Received: {int(num_applied(optimizer))} batches"
            )


def changed_model(
    model: keras.Model,
    head: OutputHead,
    change: ClassUpdate,
    means: ClassMeans | None = None,
) -> keras.Model:
    """The model after a `change` of its head; `means` are of new classes."""
    strategy = model.distribute_strategy
    is_current = strategy is tf.distribute.get_strategy()
    with contextlib.nullcontext() if is_current else strategy.scope():
        after = _head_of(type(head), head.changed_config(change))
        other = _with_head(model, after)
        sources = _carry_weights(head, after, change, means)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and optimizer.built:
            _carry_slots(optimizer, other.optimizer, head, after, sources)
    return other


def _head_of(cls, config):
    try:
        return cls.from_config(config)
    except TypeError as error:
        # Keras hides what the head says behind its whole configuration.
        if isinstance(error.__context__, ValueError):
            raise error.__context__ from None
        raise


def _with_head(model, head):
    """The model with a head that is not built; compiled if `model` is."""
    encoder, old = encoder_of(model)
    if any(isinstance(x, HeadFeatures) for x in encoder.layers):
        # A functional model around the layers of a subclassed one.
        outputs = head(encoder.output)
        other = keras.Model(encoder.input, outputs, name=model.name)
    else:
        other = _cloned(model, old, head)
    config = model.get_compile_config() if model.compiled else None
    if config:
        config = _of_classes(config, old.num_classes, head.num_classes)
        other.compile_from_config(config)
    return other


def _cloned(model, old, head):
    compiled, model.compiled = model.compiled, False
    # Keras would compile the clone, with optimizer state for all classes.
    try:
        return keras.models.clone_model(
            model, clone_function=lambda layer: head if layer is old else layer
        )
    finally:
        model.compiled = compiled


def _of_classes(config, before, after):
    """`config` in which metrics of `before` classes are of `after`."""
    if isinstance(config, (list, tuple)):
        return [_of_classes(x, before, after) for x in config]
    if not isinstance(config, dict):
        return config
    config = {k: _of_classes(x, before, after) for k, x in config.items()}
    is_ours = str(config.get("registered_name")).startswith("tfxclass>")
    if is_ours and config["config"].get("num_classes") == before:
        config["config"]["num_classes"] = after
    return config


def _carry_weights(before, after, change, means):
    """Copies the weights of a head; returns the sources of their rows."""
    sources = after.growth.row_sources(before, change)
    for name, variable in after.weights_by_name.items():
        old_variable = before.weights_by_name.get(name)
        was = None if old_variable is None else read(old_variable)
        if name not in sources:
            write(variable, was)
            continue
        values = np.array(read(variable))
        rows = sources[name]
        values[rows >= 0] = was[rows[rows >= 0]] if was is not None else 0
        after.growth.finish_rows(name, values, before, change, means)
        write(variable, values)
    # Seeds and counts of a sampler; its index is built again.
    pairs = [(before, after)]
    samplers = [getattr(head, "sampler", None) for head in (before, after)]
    if samplers[0] is not None:
        pairs.append(samplers)
        for was, variable in zip(*(x.persistent_weights for x in samplers)):
            variable.assign(was)
    for was, now in pairs:
        if getattr(was, "random", None) is not None:
            now.random.state.assign(was.random.state)
    return sources


def _carry_slots(old, new, before, after, sources):
    """Copies the state of an optimizer to the one of the new model."""
    was_of = _slots_by_place(old, before)
    for (name, slot), now in _slots_by_place(new, after).items():
        pairs = list(zip(was_of[name, slot], now, strict=True))
        if name not in sources:
            for was, variable in pairs:
                if isinstance(variable, keras.Variable):
                    write(variable, read(was))
        elif slot != _SUMS:
            weight = after.weights_by_name[name] if slot == _AVERAGE else None
            _carry_rows(pairs, sources[name], weight)


def _slots_by_place(optimizer, head):
    """Lists of optimizer state, by what it is of.

    Keys are the name of a weight of the head and of the slot, or None and the
    name of the state. The order of other variables is the same in each model.
    """
    prefixes = {
        path_of(part).replace("/", "_") + "_": name
        for name, weight in head.weights_by_name.items()
        for part in shards_lib.parts_of(weight)
    }
    found = {}
    for variable in optimizer.variables:
        fitting = [x for x in prefixes if variable.name.startswith(x)]
        prefix = max(fitting, key=len, default="")
        place = prefixes.get(prefix), variable.name.removeprefix(prefix)
        found.setdefault(place, []).append(variable)
    return found


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
