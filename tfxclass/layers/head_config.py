"""The arguments of a head: their checks, names of classes, removed classes."""

import base64
import numbers
import zlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_ids
from tfxclass.checks import as_list
from tfxclass.checks import as_names
from tfxclass.checks import check_choice
from tfxclass.core.softmax import REMOVED_LOGIT
from tfxclass.core.targets import as_tensor
from tfxclass.core.targets import require
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import constant
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.text_files import is_one_line
from tfxclass.types import Labels


def live_ids(ids: tf.Tensor, removed: Sequence[int]) -> tf.Tensor:
    """Ids, int64 of any shape, with -1 for rising `removed` ones."""
    if not removed:
        return ids
    gone = tf.constant(list(removed), tf.int64)
    flat = tf.reshape(ids, [-1])
    places = tf.minimum(tf.searchsorted(gone, flat), len(removed) - 1)
    is_gone = tf.equal(tf.gather(gone, places), flat)
    is_gone = tf.reshape(is_gone, tf.shape(ids))
    return tf.where(is_gone, tf.constant(-1, tf.int64), ids)


def split_negatives(
    labels: Labels, count: int, rank: int | None
) -> tuple[Labels, tf.Tensor | None]:
    """`(labels, negatives)` of integers whose last `count` columns are these.

    `rank` is the rank of labels and features. Without a `count`, negatives are
    None.
    """
    if not count:
        return labels, None
    if isinstance(labels, tf.RaggedTensor):
        raise ValueError(
            "`labels` of a head with `num_negatives` must be padded: the "
            "negatives are the last columns. Received: a RaggedTensor"
        )
    labels = as_tensor(labels)
    width = labels.shape[-1] if labels.shape.rank else None
    is_wrong = labels.shape.rank not in (None, rank)
    if is_wrong or (width is not None and width <= count):
        raise ValueError(
            f"`labels` of a head with num_negatives={count} must have the "
            f"negatives in their last columns: [batch, p + {count}]. "
            f"Received: shape {labels.shape}"
        )
    with require(
        tf.shape(labels)[-1] > count,
        "labels_must_have_columns_before_negatives",
        f"`labels` must have columns before their num_negatives={count}. "
        "Received: shape",
        tf.shape(labels),
    ):
        labels = tf.identity(labels)
    return labels[..., :-count], labels[..., -count:]


def offset_specs(
    removed: Sequence[int], kernels: Sequence[WeightSpec]
) -> list[WeightSpec]:
    """Biases, named by `kernels`, that keep removed classes out, if any."""
    found = []
    for kernel in kernels if removed else []:
        is_gone = np.isin(kernel.classes, removed)
        offsets = np.where(is_gone, REMOVED_LOGIT, 0.0).astype(np.float32)
        found.append(
            WeightSpec(
                kernel.bias,
                offsets.shape,
                constant(offsets),
                trainable=False,
                first=kernel.first,
            )
        )
    return found


def packed_names(names: Sequence[str] | None) -> dict[str, str] | None:
    """Names as a configuration has them; None without names."""
    if names is None:
        return None
    data = zlib.compress("\n".join(names).encode("utf-8"), 6)
    return {"packed": base64.b64encode(data).decode("ascii")}


def unpacked_names(given: Any) -> Any:
    """The names of `packed_names`; others as they are."""
    if not isinstance(given, Mapping) or set(given) != {"packed"}:
        return given
    data = zlib.decompress(base64.b64decode(given["packed"]))
    return data.decode("utf-8").split("\n")


def checked_names(
    argument: str, given: Any, num_classes: int | None = None
) -> list[str]:
    """Names of classes as a list of str, which a file can hold; or ValueError.

    With `num_classes`, there must be as many.
    """
    names = as_names(argument, given)
    if num_classes not in (None, len(names)):
        raise ValueError(
            f"`{argument}` must have a name for each class. Received: "
            f"{len(names)} names with num_classes={num_classes}"
        )
    for class_id, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(
                f"`{argument}` must be strings. Received: {name!r} "
                f"({type(name).__name__}) for class {class_id}"
            )
        if not is_one_line(name):
            raise ValueError(
                f"`{argument}` must be of one line each, not empty, without "
                "NULs, lone surrogates and byte order marks. Received: "
                f"{name!r} for class {class_id}"
            )
    return names


def checked_removed(given: Iterable[int], num_classes: int) -> list[int]:
    """Rising list of int."""
    given = as_list("removed", given, "class ids", numbers.Integral)
    removed = np.unique(as_ids("removed", given)).tolist()
    if removed and not 0 <= removed[0] <= removed[-1] < num_classes:
        raise ValueError(
            "`removed` must be class ids in [0, num_classes). Received: "
            f"{[x for x in removed if not 0 <= x < num_classes][:5]} with "
            f"num_classes={num_classes}"
        )
    if len(removed) == num_classes:
        raise ValueError(
            "`removed` must leave a class. Received: all of num_classes="
            f"{num_classes}"
        )
    return removed


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
