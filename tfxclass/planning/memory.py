"""Estimates the memory of a head before it is built."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.initializers import CONSTANTS
from tfxclass.initializers import InBlocks
from tfxclass.layers.output_head import OutputHead
from tfxclass.optimizers import HeadAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.rows.class_matrix import ClassMatrix

# Copies of a matrix that Keras holds next to it (measured): an initializer the
# drawn and the scaled numbers, an optimizer two terms of a moment's step.
_DRAWN_COPIES, _UPDATE_COPIES = 2, 2
# The shape of a matrix for which an optimizer is asked.
_SMALL = (3, 2)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Memory that a head needs for training, on one device.

    Attributes:
        parameters: int, number of trainable weights.
        fixed_parameters: int, number of weights that are saved but not trained.
        weight_bytes: int, bytes of all weights.
        slot_bytes: int, bytes of the optimizer state for the head's weights.
        gradient_bytes: int, bytes of the gradients and their update.
        activation_bytes: int, bytes of logits and gathered class vectors of a
            step.
        index_bytes: int, bytes of the sampler's index, its refresh and its
            searches, or of the tree. Each thread that searches has one byte for
            each class (two with `LSHSampler`).
        initialization_bytes: int, the most that an initializer needs in
            addition to the weights, before training starts.
    """

    parameters: int
    fixed_parameters: int
    weight_bytes: int
    slot_bytes: int
    gradient_bytes: int
    activation_bytes: int
    index_bytes: int
    initialization_bytes: int

    @property
    def step_bytes(self) -> int:
        """What a training step needs in addition to the weights."""
        step = self.gradient_bytes + self.activation_bytes + self.index_bytes
        return self.slot_bytes + step

    @property
    def total_bytes(self) -> int:
        """The largest memory at any one time, in bytes, for the head alone.

        It does not include TensorFlow itself, or memory that malloc keeps after
        it was freed: on processors without AVX-512, a third more with
        `FullSoftmax` and twice as much with `DropMax`, unless
        `MALLOC_MMAP_THRESHOLD_=262144` is in the environment.
        """
        most = max(self.step_bytes, self.initialization_bytes)
        return self.weight_bytes + most

    def __str__(self):
        names = ("weight", "slot", "gradient", "activation", "index", "total")
        sizes = [getattr(self, name + "_bytes") / 1e6 for name in names]
        parts = [f"{n} {size:,.1f} MB" for n, size in zip(names, sizes)]
        return f"{self.parameters:,} parameters; " + ", ".join(parts)


def estimate(
    head: keras.layers.Layer,
    dim: int,
    batch: int,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    replicas: int = 1,
) -> Estimate:
    """Estimates the memory for training a head, without building it.

    Use it to find out whether a head fits. `print` shows the result.

    Args:
        head: a head of `tfxclass.layers`.
        dim: int, width of the features.
        batch: int, number of examples in a training step.
        optimizer: a Keras or tfxclass optimizer, or a name as in `compile`.
            Defaults to `HeadAdam()`. Optimizers of Keras need dense gradients.
            In a `MultiOptimizer`, the head's counts.
        replicas: int, number of replicas of a strategy, each with `batch`
            examples. With several, an exact head needs its whole gradient.

    Returns:
        An `Estimate`.

    Raises:
        ValueError: if an argument is not a head, not an optimizer, or not
            positive.

    Example:

    ```python
    head = tfxclass.layers.ProjectedSoftmax(1_000_000, 100)
    print(tfxclass.estimate(head, dim=2048, batch=256))
    ```
    """
    is_head = isinstance(head, OutputHead)
    check_value("head", head, is_head, "a head of tfxclass.layers")
    dim = check_positive_int("dim", dim)
    batch = check_positive_int("batch", batch)
    replicas = check_positive_int("replicas", replicas)
    optimizer = HeadAdam() if optimizer is None else optimizer
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, MultiOptimizer):
        optimizer = optimizer.optimizer_of(head)
    weights = head.device_specs(dim)
    trained = [w for w in weights if w.trainable]
    shapes = [w.shape for w in trained]
    return Estimate(
        parameters=sum(w.size for w in trained),
        fixed_parameters=sum(w.size for w in weights if not w.trainable),
        weight_bytes=sum(w.bytes for w in weights),
        slot_bytes=sum(_slot_bytes(optimizer, w) for w in trained),
        gradient_bytes=_gradient_bytes(
            head, batch, shapes, optimizer, replicas
        ),
        activation_bytes=head.activation_bytes(batch, dim),
        index_bytes=head.index_bytes(dim),
        initialization_bytes=max(map(_initializer_bytes, weights), default=0),
    )


def _initializer_bytes(weight):
    drawn = InBlocks(weight.initializer)
    if not weight.is_rows or isinstance(drawn.initializer, CONSTANTS):
        return 0
    in_blocks = isinstance(weight.initializer, InBlocks)
    if in_blocks or weight.dtype == "bfloat16":
        rows = drawn.block_rows(weight.shape)
        # The result, too, is a block next to the matrix.
        return (_DRAWN_COPIES + 1) * 4 * rows * math.prod(weight.shape[1:])
    return _DRAWN_COPIES * 4 * weight.size


def _slots_of(optimizer, dtype="float32", are_class_rows=True):
    """`(shape, bytes of a number)` of each state of a matrix `_SMALL`."""
    copy = type(optimizer).from_config(optimizer.get_config())
    variable = keras.Variable(np.zeros(_SMALL), dtype=dtype)
    # An optimizer finds it while it lives.
    matrix = ClassMatrix(variable) if are_class_rows else None
    before = len(copy.variables)
    copy.build([variable])
    del matrix
    slots = copy.variables[before:]
    return [(tuple(x.shape), tf.as_dtype(x.dtype).size) for x in slots]


def _slot_bytes(optimizer, weight):
    """Bytes of state as large as a weight, and of state with a number a row."""
    are_class_rows = weight.is_rows and len(weight.shape) == 2
    slots = _slots_of(optimizer, weight.dtype, are_class_rows)
    numbers = {_SMALL: weight.size, _SMALL[:1]: weight.shape[0]}
    return sum(size * numbers.get(shape, 0) for shape, size in slots)


def _gradient_bytes(head, batch, shapes, optimizer, replicas):
    rows = head.step_rows(batch)
    if rows is not None and isinstance(optimizer, RowOptimizer):
        # The gathered rows, their gradient, and its sorted sum.
        return sum(12 * rows * math.prod(shape[1:]) for shape in shapes)
    steps_by_class = getattr(optimizer, "can_step_by_class", False)
    if steps_by_class and head.steps_by_class and replicas == 1:
        # The gradient of a bias comes with the pass, and Keras moves that.
        shapes = [shape for shape in shapes if len(shape) < 2]
    has_full_slots = any(shape == _SMALL for shape, _ in _slots_of(optimizer))
    copies = _UPDATE_COPIES if has_full_slots else 0
    return 4 * sum(map(math.prod, shapes)) * (1 + copies)
