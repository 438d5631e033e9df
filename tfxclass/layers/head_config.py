"""The arguments of an output layer: their checks, and the configuration."""

from typing import Any

import keras

from tfxclass.checks import check_choice
from tfxclass.core.class_update import ClassUpdate
from tfxclass.layers import class_set
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.types import Config


def check_loss(head: keras.layers.Layer, loss: str) -> None:
    """Raises ValueError unless `loss` is the name of a loss of the head."""
    check_choice("loss", loss, tuple(OBJECTIVES))
    if loss not in head.loss_kinds:
        raise ValueError(
            f"The loss of a {type(head).__name__} is its own, of one label "
            f'or their mean. Received: loss="{loss}". Fix: leave it out, '
            "or take FullSoftmax, SampledSoftmax, SelectiveSoftmax, "
            "LSHSoftmax or ShardedSoftmax."
        )


def check_kernel_dtype(head: keras.layers.Layer, kernel_dtype: str) -> None:
    """Raises ValueError unless the head may store its class vectors so."""
    check_choice("kernel_dtype", kernel_dtype, ("float32", "bfloat16"))
    if kernel_dtype not in head.kernel_dtypes:
        raise ValueError(
            f"The class rows of {type(head).__name__} are float32. "
            f'Received: kernel_dtype="{kernel_dtype}". Fix: leave it '
            "out, or take a head of class rows, e.g. SampledSoftmax."
        )


def check_num_negatives(num_negatives: Any) -> None:
    """Raises ValueError unless it is an int >= 0."""
    if not isinstance(num_negatives, int) or num_negatives < 0:
        raise ValueError(
            f"`num_negatives` must be an int >= 0. Received: {num_negatives}"
        )


def config_of(head: keras.layers.Layer) -> Config:
    """The configuration of an `OutputHead`, without what Keras adds."""
    return {
        "num_classes": head.num_classes,
        "activation": head.activation,
        "kernel_initializer": keras.initializers.serialize(
            head.kernel_initializer
        ),
        "seed": head.seed,
        "loss_options": keras.saving.serialize_keras_object(head.loss_options),
        "kernel_dtype": head.kernel_dtype,
        "loss": head.objective.name,
        "num_negatives": head.num_negatives,
        "class_names": class_set.packed_names(head.class_names),
        "removed": [int(x) for x in head.removed],
    }


def changed(head: keras.layers.Layer, change: ClassUpdate) -> Config:
    """The part of a head's configuration that `change` changes."""
    removed = set(head.removed) - set(change.added.tolist())
    names = head.class_names
    if names is not None and change.names is not None:
        names = [*names, *[""] * (change.num_classes - len(names))]
        for number, name in zip(change.added, change.names, strict=True):
            names[number] = name
    options = head.loss_options
    return {
        "num_classes": change.num_classes,
        "class_names": names,
        "removed": sorted(removed | set(change.removed.tolist())),
        "loss_options": options and options.changed(change),
    }


def described(head: keras.layers.Layer) -> str:
    """One line with the size of a head and of its sample, for `repr`."""
    parts = [f"name={head.name}", f"built={head.built}"]
    parts.append(f"{head.num_classes:,} classes")
    if head.built:
        sizes = [w.shape.num_elements() for w in head.trainable_variables]
        parts.append(f"{sum(sizes):,} parameters")
    sampler = getattr(head, "sampler", None)
    if sampler is not None:
        more = " or more" if sampler.follows_batch else ""
        of = f"{sampler.num_sampled:,}{more} a step"
        parts.append(f"{type(sampler).__name__} of {of}")
    return f"<{type(head).__name__} {', '.join(parts)}>"
