"""Which methods and properties of a head are for its users."""

from collections.abc import Iterable

import keras

#: Others are for subclasses and for other modules of tfxclass.
PUBLIC = frozenset(
    {
        "answer_temperature",
        "class_names",
        "class_features",
        "compute_loss",
        "encode",
        "is_sampled",
        "logits",
        "loss",
        "num_answers",
        "predict_samples",
        "refresh",
        "retain_probabilities",
        "root_probability",
        "set_class_features",
        "similarity",
        "thresholds",
        "top_k",
    }
)


def without_internals(
    head: keras.layers.Layer, names: Iterable[str]
) -> list[str]:
    """Leaves out what classes of tfxclass define, unless it is public.

    Attributes of the instance stay: Keras finds the parts of a layer that it
    saves by `dir`.

    Args:
        head: an `OutputHead`.
        names: names of its attributes.
    """
    own = {
        name
        for cls in type(head).__mro__
        if cls.__module__.startswith("tfxclass.")
        for name in vars(cls)
    }
    hidden = own - PUBLIC - {*dir(keras.layers.Layer)} - vars(head).keys()
    return [name for name in names if name not in hidden]
