"""The weights of an output layer: what is declared, and how they are made."""

import contextlib
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.initializers import rms_of
from tfxclass.ops import placement
from tfxclass.rows import class_matrix
from tfxclass.rows.rounded_initializer import Rounded
from tfxclass.types import Shape


class WeightSpec(NamedTuple):
    """A weight of a head.

    Attributes:
        name: str.
        shape: tuple of ints.
        initializer: Keras initializer, or its name.
        dtype: str.
        trainable: bool.
        is_rows: bool, whether steps gather its rows: they may then lie on the
            host or on a server.
    """

    name: str
    shape: tuple
    initializer: Any
    dtype: str = "float32"
    trainable: bool = True
    is_rows: bool = True

    @property
    def size(self) -> int:
        """How many numbers, int."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        """int."""
        return self.size * np.dtype(self.dtype).itemsize


def width_of(shape: Shape) -> int:
    """The width of features of a shape; ValueError if it has none."""
    dim = shape[-1] if len(shape) > 1 else None
    if dim is None:
        raise ValueError(
            "The features of a head must have shape [batch, dim], or "
            "[batch, time, dim], with a known dim. Received: "
            f"{tuple(shape)}."
        )
    return dim


def add_weights(
    head: keras.layers.Layer, dim: int, shared: dict[str, keras.Variable]
) -> dict[str, keras.Variable]:
    """Makes the weights of a head for features of width `dim`.

    Args:
        head: an `OutputHead` that is being built.
        dim: int.
        shared: weights by name that belong to another layer.

    Returns:
        The variables by name, in the order of `weight_specs`.
    """
    found: dict[str, keras.Variable] = {}
    for spec in head.weight_specs(dim):
        kernel = found.get("kernel")
        if spec.name in shared:
            found[spec.name] = shared[spec.name]
        elif spec.is_rows:
            found[spec.name] = head.add_rows(spec, kernel)
        else:
            kernel = kernel if head._is_apart else None
            found[spec.name] = add_weight(head, spec, kernel)
    return found


def is_on_host(head: keras.layers.Layer) -> bool:
    """Whether class vectors lie in host memory, and the step does not."""
    reason = placement.why_not_on_gpu(head)
    if reason is None:
        return False
    placement.warn_once(reason)
    return not tf.distribute.has_strategy()


def random_projection(
    dim: int, width: int, stddev: float, seed: int | None
) -> WeightSpec:
    """`WeightSpec` of a fixed Gaussian matrix `[dim, width]`."""
    initializer = keras.initializers.RandomNormal(stddev=stddev, seed=seed)
    return WeightSpec(
        "projection",
        (dim, width),
        initializer,
        trainable=False,
        is_rows=False,
    )


def add_rows(
    head: keras.layers.Layer,
    spec: WeightSpec,
    kernel: keras.Variable | None = None,
) -> tuple[keras.Variable, bool]:
    """Makes a weight whose rows are gathered.

    Args:
        head: an `OutputHead` that is being built.
        spec: `WeightSpec`.
        kernel: the class matrix; the weight lies on the same device.

    Returns:
        `(variable, is_apart)`: is_apart is whether it lies on another device
        than the step, on a server or on the host.
    """
    servers = tf.distribute.ParameterServerStrategy
    is_apart = isinstance(tf.distribute.get_strategy(), servers)
    on_host = head.is_on_host()
    is_apart = is_apart or on_host
    with tf.device("CPU:0") if on_host else contextlib.nullcontext():
        variable = add_weight(head, spec, kernel if is_apart else None)
    if len(spec.shape) == 2:
        class_matrix.register(variable, head.seed)
        class_matrix.of(variable).initial_rms = rms_of(
            spec.initializer, spec.shape
        )
    return variable, is_apart


def add_weight(
    head: keras.layers.Layer,
    spec: WeightSpec,
    kernel: keras.Variable | None = None,
) -> keras.Variable:
    """Makes a weight, on the device of `kernel` if that is given."""
    initializer = spec.initializer
    if spec.dtype == "bfloat16":
        initializer = Rounded(keras.initializers.get(initializer))
    try:
        # Autocast would copy every row in each step. As for the scope: `fit`
        # builds a model without an Input while it traces a step, and a variable
        # of a traced function keeps a second copy of its initial value.
        with tf.init_scope(), _colocated_with(kernel):
            return head.add_weight(
                name=spec.name,
                shape=spec.shape,
                initializer=initializer,
                dtype=spec.dtype,
                trainable=spec.trainable,
                autocast=False,
            )
    except tf.errors.OpError as error:
        # Workers send each other the initial values. The first worker that
        # ends leaves the others without an answer.
        if "Collective ops is aborted" not in str(error):
            raise
        raise ValueError(
            "All workers have to make the same head. Received: "
            f"`{spec.name}` of shape {list(spec.shape)} for num_classes="
            f"{head.num_classes} here, another shape in another worker, "
            "or no answer from it."
        ) from error


def _colocated_with(kernel):
    """Scope of variables that lie on the device of `kernel`, if given."""
    if kernel is None:
        return contextlib.nullcontext()
    if not tf.distribute.has_strategy():
        return placement.colocate_with(kernel)
    strategy = tf.distribute.get_strategy()
    return strategy.extended.colocate_vars_with(kernel.value)


@contextlib.contextmanager
def loading_into(head: keras.layers.Layer) -> Iterator[None]:
    """Tells what to do where saved weights have other shapes than a head's."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"The saved weights do not fit the head {head.name!r}, which has "
            f"num_classes={head.num_classes}. {error} Fix: if the number of "
            "classes differs, make the model with the number that was saved, "
            "load its weights, and then call tfxclass.add_classes or "
            "tfxclass.remove_classes."
        ) from error
