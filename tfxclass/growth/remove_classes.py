"""`remove_classes`: classes that are never an answer again."""

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids
from tfxclass.core.class_update import ClassUpdate
from tfxclass.growth import transfer_state
from tfxclass.growth.add_classes import changed
from tfxclass.inference.graph import encoder_of


def remove_classes(model: keras.Model, ids: ArrayLike) -> keras.Model:
    """A model that never answers with some classes; others keep their ids.

    Use it to take classes out of service without training. The probability of a
    removed class is 0, and the others are renormalized. Labels of removed
    classes count as padding in training, so old data may still have them.
    `num_classes` does not change. The next `tfxclass.add_classes` uses the free
    ids and their class vectors first. In a tree, the leaves are removed.

    Args:
        model: a built Keras model that ends in a head. It is not changed. The
            layers before the head are shared.
        ids: integers `[n]`, or one integer, classes to remove.

    Returns:
        A built `keras.Model`, compiled as `model`, with its optimizer's state.

    Raises:
        ValueError: if there are no ids, ids are out of range or removed
            already, all classes or all of a cluster of an `AdaptiveSoftmax`
            would be removed, the head has `label_smoothing`, or gradients are
            being accumulated.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    model = tfxclass.remove_classes(model, [3, 17])
    ```
    """
    _, _, head = encoder_of(model)
    removed = _checked(ids, head)
    transfer_state.check_can_change(model)
    change = ClassUpdate(head.num_classes, np.zeros(0, np.int64), removed)
    return changed(model, head, change)


def _checked(ids, head):
    """int64, rising."""
    given = np.atleast_1d(as_ids("ids", ids))
    if given.ndim != 1 or not len(given):
        raise ValueError(
            "`ids` must be class ids, integers of shape [n], one at least. "
            f"Received: dtype={given.dtype} of shape {given.shape}"
        )
    given = np.unique(given.astype(np.int64))
    bad = (given < 0) | (given >= head.num_classes)
    bad |= np.isin(given, head.removed)
    if np.any(bad):
        raise ValueError(
            "`ids` must be classes in [0, num_classes) that were not removed "
            f"before. Received: {given[bad][:5].tolist()} with num_classes="
            f"{head.num_classes}"
        )
    if len(given) == head.num_answers:
        raise ValueError(
            "`ids` must leave a class. Received: all of the "
            f"{head.num_answers} classes"
        )
    return given
