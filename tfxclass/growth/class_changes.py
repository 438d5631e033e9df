"""`add_classes` and `remove_classes`: the same model with other classes."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids
from tfxclass.checks import as_names
from tfxclass.checks import check_positive_int
from tfxclass.core.class_update import ClassUpdate
from tfxclass.data.batches import Batches
from tfxclass.growth import transfer_state
from tfxclass.growth.initialize_classes import class_means
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import find_head

_NO_IDS = np.zeros(0, np.int64)


def next_class_ids(model: keras.Model, count: int) -> np.ndarray:
    """The ids that `add_classes` gives to `count` new classes.

    They are int64 `[count]`: the ids of removed classes, in rising order, and
    then the ids after the last class.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    new = tfxclass.next_class_ids(model, 2)  # [100, 101]
    ```
    """
    count = check_positive_int("count", count)
    head = find_head(model)
    free = list(head.removed)[:count]
    following = range(head.num_classes, head.num_classes + count - len(free))
    return np.array([*free, *following], np.int64)


def add_classes(
    model: keras.Model,
    count: int,
    data: Any = None,
    labels: Sequence[str] | None = None,
    batch_size: int = 32,
    class_features: Any = None,
) -> keras.Model:
    """A model with `count` more classes; everything else stays the same.

    Use it when new classes arrive after training. Old classes keep their ids,
    class vectors and optimizer state. The new model is built and compiled as
    `model` is, so `fit` can continue with old and new data. It shares the
    layers before the head with `model`, which is not changed.

    With `data`, new classes are found before any further training. The vector
    of a new class is the difference between its mean normalized features and
    the mean of the others in `data`, scaled to the length of the other class
    vectors. Its bias is the median of their biases. Without data, the
    initializer sets the vector (with a warning if some of the classes have
    data).

    In heads with groups of classes, new classes go to the group of the rarest
    classes. In a tree, wide nodes (and all nodes with `multi_label="plt"`) get
    more children. A node with two children splits the leaf of the nearest
    class. Counts of samplers and of `LossOptions` get the number of examples in
    `data`, or else the lowest count. `thresholds` of new classes are the median
    of the others.

    Args:
        model: a built Keras model that ends in a head.
        count: int, number of new classes. Their ids are `next_class_ids(model,
            count)`.
        data: examples of the new classes as for `fit`, `(x, y)` or batches of
            them, where y has the new ids. Or None. Add examples of old classes
            if there are fewer new classes than feature dimensions: they show
            what all features have in common.
        labels: names of the new classes, which a head with `class_names` needs.
        batch_size: int, number of examples whose features are computed at a
            time.
        class_features: for a `TwoTowerSoftmax`, instead of `data`: features of
            the new classes, in their order, in the structure of the head's.

    Raises:
        ValueError: if an argument does not fit the model, there is no single
            head, or gradients are being accumulated.
        InvalidArgumentError: if labels are out of range.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    x = np.random.default_rng(0).normal(size=[10, 20])
    y = np.arange(10) % 2
    new = tfxclass.next_class_ids(model, 2)
    model = tfxclass.add_classes(model, 2, (x, new[y]))
    ```

    References:
        Qi, Brown and Lowe, Low-Shot Learning with Imprinted Weights, CVPR 2018.
    """
    encoder, head = encoder_of(model)
    added = next_class_ids(model, count)
    num_classes = max(head.num_classes, int(added[-1]) + 1)
    names = _names(head, labels, added)
    change = ClassUpdate(num_classes, added, _NO_IDS, names)
    transfer_state.check_can_change(model)
    _check_features(head, class_features, data)
    means = None
    if data is not None:
        batches = Batches("data", data, batch_size)
        means = class_means(encoder, head, batches, added, num_classes)
        _warn_of_missing(means, added)
        change = change._replace(counts=means.counts)
    change = change._replace(places=head.growth.places_near(means, len(added)))
    other = transfer_state.changed_model(model, head, change, means)
    if class_features is not None:
        find_head(other).set_class_features(added, class_features)
    return other


def remove_classes(model: keras.Model, ids: ArrayLike) -> keras.Model:
    """A model that never answers with some classes; others keep their ids.

    Use it to take classes out of service without training. The new model is
    made as by `tfxclass.add_classes`. The probability of a removed class is 0,
    and the others are renormalized. Labels of removed classes count as padding
    in training. `num_classes` does not change. The next `tfxclass.add_classes`
    uses the free ids and their class vectors first.

    Args:
        model: a built Keras model that ends in a head.
        ids: integers `[n]`, or one integer, classes to remove.

    Raises:
        ValueError: if ids are missing, out of range or removed already, all
            classes or all of a cluster of an `AdaptiveSoftmax` would be
            removed, the head has `label_smoothing`, or gradients are being
            accumulated.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    model = tfxclass.remove_classes(model, [3, 17])
    ```
    """
    _, head = encoder_of(model)
    removed = _removable(ids, head)
    transfer_state.check_can_change(model)
    change = ClassUpdate(head.num_classes, _NO_IDS, removed)
    return transfer_state.changed_model(model, head, change)


def _check_features(head, class_features, data):
    """Refuses class features where there are none, and else their lack."""
    is_encoded = hasattr(head, "class_encoder")
    if is_encoded and (class_features is None or data is not None):
        raise ValueError(
            f"New classes of {head.name!r}, a {type(head).__name__}, need "
            "`class_features` and take no `data`. Received: "
            f"class_features={class_features!r}, data={data!r}"
        )
    if class_features is not None and not is_encoded:
        raise ValueError(
            "`class_features` is for a TwoTowerSoftmax. Received: a "
            f"{type(head).__name__}. Fix: give examples as `data`"
        )


def _warn_of_missing(means, added):
    ids = added[means.counts == 0]
    if len(ids):
        others = " and others" if len(ids) > 5 else ""
        warnings.warn(
            f"{len(ids)} new classes have no example in `data` and get random "
            f"initial class vectors: {ids[:5].tolist()}{others}",
            stacklevel=3,
        )
    if means.seen.classes == 1:
        warnings.warn(
            "`data` has rows of one class alone, which may be found in place "
            "of others. Fix: give rows of some old classes, too.",
            stacklevel=3,
        )


def _names(head, labels, added):
    """Names of the new classes; None where there are none."""
    if labels is None and head.class_names is None:
        return None
    if labels is None or head.class_names is None:
        given = "no labels" if labels is None else "labels"
        known = "without" if head.class_names is None else "with"
        raise ValueError(
            "`labels` are the names of new classes, for a head with "
            "`class_names`. Fix: name all or none, e.g. head.class_names = "
            f"[...]. Received: {given} for {head.name!r} {known} class_names"
        )
    given = as_names("labels", labels)
    if len(given) != len(added):
        raise ValueError(
            "`labels` must have a name for each new class. Received: "
            f"{len(given)} names with count={len(added)}"
        )
    return given


def _removable(ids, head):
    """int64, rising."""
    given = np.atleast_1d(as_ids("ids", ids))
    if given.ndim != 1 or not len(given):
        raise ValueError(
            "`ids` must be class ids, integers of shape [n], one at least. "
            f"Received: shape {given.shape}"
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
