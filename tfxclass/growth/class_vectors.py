"""`set_class_vectors`: class vectors that another program trained."""

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_distinct_classes
from tfxclass.checks import as_finite_floats
from tfxclass.checks import check_choice
from tfxclass.checks import check_class_order
from tfxclass.inference.graph import find_head
from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.two_tower_softmax import TwoTowerSoftmax
from tfxclass.rows.sharded_rows import read
from tfxclass.rows.sharded_rows import write


def set_class_vectors(
    model: keras.Model,
    vectors: ArrayLike,
    bias: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    class_axis: int | None = None,
) -> keras.Model:
    """Sets the class vectors of a head, and its bias, to given numbers.

    Use it to start from the vectors of another program: NumPy arrays, the
    weight of a linear layer of PyTorch, or word vectors. Call it before
    training, since samplers build their indexes in the first step.

    Args:
        model: a built Keras model that ends in a head with one class vector for
            each class. It is changed in place, and returned.
        vectors: array of numbers, `[num_classes, dim]` as the `weight` of
            `torch.nn.Linear`, or `[dim, num_classes]` as the `kernel` of
            `keras.layers.Dense`. A PyTorch tensor is copied.
        bias: array `[num_classes]`, for a head with `use_bias=True`. By default
            the bias stays as it is.
        ids: integers `[n]`, distinct classes that `vectors` and `bias` are for.
            Other classes keep theirs. Defaults to all classes.
        class_axis: 0 or 1, the axis of `vectors` with the classes. By default
            the shape decides. A square matrix needs it.

    Raises:
        ValueError: if numbers are not finite or of another shape, or the head
            has none of its own.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    vectors = np.random.default_rng(0).normal(size=[100, 20])
    tfxclass.set_class_vectors(model, vectors)
    ```
    """
    head = find_head(model)
    check_has_vectors(head)
    count, dim = head.kernel.shape
    ids = None if ids is None else as_distinct_classes(ids, count)
    given = count if ids is None else len(ids)
    if ids is None:
        check_class_order("vectors", vectors)
        check_class_order("bias", bias)
    values = _classes_first(
        as_finite_floats("vectors", vectors), class_axis, given, dim
    )
    _assign(head.kernel, values, ids)
    if bias is not None:
        _set_bias(head, as_finite_floats("bias", bias), ids, given)
    return model


def check_has_vectors(head: keras.layers.Layer) -> None:
    """Raises ValueError unless the class vectors of a head may be set."""
    if not isinstance(head, ClassHead):
        raise ValueError(
            "The head must have one class vector for each class, such as "
            f"FullSoftmax and SampledSoftmax. Received: {type(head).__name__}"
        )
    if isinstance(head, TwoTowerSoftmax) or head.tie is not None:
        owner = "`class_tower` makes" if head.tie is None else "`tied_to` has"
        raise ValueError(
            f"{owner} the class vectors of {head.name!r}, a "
            f"{type(head).__name__}. Fix: set the weights of that layer"
        )
    if not head.built:
        raise ValueError(
            f"The head {head.name!r} is not built, so it has no class vectors. "
            "Fix: call the model on a batch first, or begin it with a "
            "keras.Input"
        )


def _classes_first(values, class_axis, count, dim):
    """`values` as `[count, dim]`."""
    check_choice("class_axis", class_axis, (None, 0, 1))
    shapes = {0: (count, dim), 1: (dim, count)}
    fitting = [axis for axis, shape in shapes.items() if shape == values.shape]
    if class_axis is None and len(fitting) == 2:
        raise ValueError(
            "`class_axis` must be given for a square matrix, whose shape does "
            f"not tell which axis has the classes. Received: shape "
            f"{values.shape}. Fix: class_axis=0 for torch.nn.Linear's weight "
            "and for word vectors, class_axis=1 for keras.layers.Dense's kernel"
        )
    if not fitting or class_axis not in (None, *fitting):
        wanted = shapes.values() if class_axis is None else [shapes[class_axis]]
        raise ValueError(
            "`vectors` must have the shape "
            f"{' or '.join(map(str, wanted))}: {count} classes of {dim} "
            f"features. Received: shape {values.shape}, class_axis={class_axis}"
        )
    axis = fitting[0] if class_axis is None else class_axis
    return values if axis == 0 else values.T


def _set_bias(head, values, ids, count):
    if values.shape != (count,):
        raise ValueError(
            f"`bias` must have one number for each of {count} classes. "
            f"Received: shape {values.shape}"
        )
    if head.bias is not None:
        _assign(head.bias, values, ids)
    elif np.any(values):
        raise ValueError(
            f"The head {head.name!r} has no bias. Received: a bias that is not "
            "0. Fix: make the head with use_bias=True"
        )


def _assign(variable, values, ids):
    if ids is not None:
        rows, values = values, np.array(read(variable))
        values[ids] = rows
    write(variable, values)
