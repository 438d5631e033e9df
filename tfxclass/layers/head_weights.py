"""The weights of an output layer: what is declared, and how they are made."""

import contextlib
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.initializers import InBlocks
from tfxclass.initializers import rms_of
from tfxclass.ops import placement
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.rows.class_matrix import refuse_rounding
from tfxclass.types import Shape


class WeightSpec(NamedTuple):
    """A weight of a head.

    Attributes:
        name, shape, initializer, dtype, trainable: as in Keras' `add_weight`.
        is_rows: bool, whether steps gather its rows: they may then lie on the
            host or on a server. A matrix of them has class vectors.
        bias: str, name of the weight with their biases, if there is one.
        normalize: bool, whether logits are cosines of class vectors.
        first: int, the class of the first row.
        part: int, which of `part_queries` class vectors are multiplied with;
            None where rows of classes are no such vectors.
    """

    name: str
    shape: tuple
    initializer: Any
    dtype: str = "float32"
    trainable: bool = True
    is_rows: bool = True
    bias: str = ""
    normalize: bool = False
    first: int = 0
    part: int | None = None

    @property
    def is_class_matrix(self) -> bool:
        """Whether it has class vectors."""
        return self.is_rows and len(self.shape) == 2

    @property
    def classes(self) -> np.ndarray:
        """The class of each row, int64 `[rows]`, of a weight of classes."""
        return self.first + np.arange(self.shape[0])

    @property
    def size(self) -> int:
        """How many numbers, int."""
        return math.prod(self.shape)

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
    head: keras.layers.Layer,
    specs: Sequence[WeightSpec],
    shared: dict[str, keras.Variable],
) -> tuple[dict[str, keras.Variable], dict[str, ClassMatrix]]:
    """Makes weights, by name; `shared` ones belong to another layer."""
    servers = tf.distribute.ParameterServerStrategy
    is_own = any(spec.is_rows and spec.name not in shared for spec in specs)
    # Of a tied head, the rows lie where their owner put them.
    is_apart = is_own and (
        head.is_on_host() or isinstance(tf.distribute.get_strategy(), servers)
    )
    found: dict[str, keras.Variable] = {}
    for spec in specs:
        kernel = found.get("kernel") if is_apart else None
        if spec.name in shared:
            found[spec.name] = shared[spec.name]
        elif spec.is_rows:
            found[spec.name] = _add_rows(head, spec, is_apart, kernel)
        else:
            found[spec.name] = add_weight(head, spec, kernel)
    shards = head.shards
    is_split = shards is not None and shards.count > 1
    matrices = {
        spec.name: ClassMatrix(
            found[spec.name],
            found.get(spec.bias),
            spec.normalize,
            head.seed,
            # Rows in shards always count as new to an optimizer.
            None if is_split else rms_of(spec.initializer, spec.shape),
            spec.name in shared,
            is_apart,
            head.compute_dtype == "bfloat16",
            shards,
        )
        for spec in specs
        if spec.is_class_matrix
    }
    return found, matrices


def constant(values: np.ndarray) -> Callable[..., tf.Tensor]:
    """An initializer that gives these numbers, in their own type."""
    return lambda shape, dtype=None: tf.constant(values)


def fixed_spec(
    name: str, shape: tuple, initializer: Any, dtype: str = "float32"
) -> WeightSpec:
    """`WeightSpec` of numbers that are not trained, and read as a whole."""
    return WeightSpec(
        name, shape, initializer, dtype, trainable=False, is_rows=False
    )


def random_projection(
    dim: int, width: int, stddev: float, seed: int | None
) -> WeightSpec:
    """`WeightSpec` of a fixed Gaussian matrix `[dim, width]`."""
    initializer = keras.initializers.RandomNormal(stddev=stddev, seed=seed)
    return fixed_spec("projection", (dim, width), initializer)


def _add_rows(head, spec, is_apart, kernel):
    """Makes a weight whose rows are gathered, in shards if there are any."""
    on_host = is_apart and not tf.distribute.has_strategy()

    def add(shape, initializer, suffix=""):
        name = spec.name + suffix
        part = spec._replace(name=name, shape=shape, initializer=initializer)
        return add_weight(head, part)

    with tf.device("CPU:0") if on_host else contextlib.nullcontext():
        if head.shards is None:
            return add_weight(head, spec, kernel)
        return head.shards.add(add, spec.shape, spec.initializer)


def add_weight(
    head: keras.layers.Layer,
    spec: WeightSpec,
    kernel: keras.Variable | None = None,
) -> keras.Variable:
    """Makes a weight, on the device of `kernel` if that is given."""
    initializer, constraint = spec.initializer, None
    if spec.dtype == "bfloat16":
        initializer = InBlocks(initializer)
        constraint = refuse_rounding
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
                constraint=constraint,
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
