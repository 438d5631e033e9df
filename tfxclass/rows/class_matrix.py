"""What heads, samplers and optimizers tell each other of a class matrix.

An optimizer is handed variables, not heads. `of(variable)` finds what else is
known of a variable, without an attribute on the variable itself.
"""

import weakref
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.keras_internals import tf_variable
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import placement
from tfxclass.types import Variable
from tfxclass.weak_registry import WeakRegistry

_MATRICES = WeakRegistry()
# Random initial values differ by under 1 % from what the initializer says.
# Training makes them 1.7 times as large in small models, and 8 in others.
_TRAINED_RATIO = 1.3
_SAMPLED_ROWS = 1000


class ClassMatrix:
    """What is known about a variable in addition to its values.

    Attributes:
        seed: int, of the stochastic rounding of class vectors; None where the
            variable holds no class vectors, as a bias or an encoder's weight.
        is_tied: bool, whether it is an embedding that a head is tied to.
        is_normalized: bool, whether a head normalizes the class vectors
            (`similarity="cosine"`).
        initial_rms: float, root mean square of the initial values; None where
            the initializer does not tell it.
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self.is_tied = False
        self.is_normalized = False
        self.initial_rms: float | None = None
        self._shard_owner = _gone
        self._local_optimizer = _gone
        self._subscriber = _gone

    @property
    def keeps_shards(self) -> bool:
        """Whether an optimizer updates each shard on its own replica."""
        return self._shard_owner() is not None

    def set_shard_owner(self, optimizer: Any) -> None:
        """Makes `keeps_shards` true while the optimizer lives."""
        self._shard_owner = weakref.ref(optimizer)

    @property
    def differs_between_replicas(self) -> bool:
        """Whether an optimizer updates each replica by itself."""
        return self._local_optimizer() is not None

    def set_local_optimizer(self, optimizer: Any) -> None:
        """Makes `differs_between_replicas` true while the optimizer lives."""
        self._local_optimizer = weakref.ref(optimizer)

    def subscribe(self, on_update: Callable[[tf.Tensor], None]) -> None:
        """Has the method `on_update` called with the ids of updated rows.

        Only `LocalSGD` notifies, of the rows that an average changes: a
        sampler knows the rows of its own samples.
        """
        self._subscriber = weakref.WeakMethod(on_update)

    def notify(self, ids: tf.Tensor) -> None:
        """Tells the subscriber of updated rows, int64 `[n]`."""
        on_update = self._subscriber()
        if on_update is not None:
            on_update(ids)


def of(variable: Variable) -> ClassMatrix:
    """The `ClassMatrix` of a variable, made when it is first asked for."""
    found = _MATRICES.get(variable)
    if found is None:
        found = ClassMatrix()
        _MATRICES.set(variable, found)
    return found


def register(variable: Variable, seed: int | None) -> None:
    """Says that `variable` holds class vectors of a head with this seed."""
    of(variable).seed = int(seed or 0)


def is_trained(variable: Variable) -> bool:
    """Whether values are much larger than their initializer makes them.

    They come from training, from a file, or from data such as class means.
    """
    initial = of(variable).initial_rms
    if initial is None:
        return False
    rows = variable.shape[0]
    ids = np.linspace(0, rows - 1, min(rows, _SAMPLED_ROWS)).astype(np.int64)
    with tf.init_scope():
        # A variable that is created in a tf.function has no values before the
        # function is traced.
        if not tf_variable(variable).is_initialized():
            return False
        vectors = tf.cast(placement.gather(variable, ids), tf.float32)
        rms = float(tf.sqrt(tf.reduce_mean(tf.square(vectors))))
    return rms > _TRAINED_RATIO * initial


def holds_class_vectors(variable: Variable) -> bool:
    """Whether `register` was called for `variable`."""
    return seed_of(variable) is not None


def is_of_head(variable: Variable) -> bool:
    """Whether it holds class vectors, or a tied embedding."""
    found = _MATRICES.get(variable)
    return found is not None and (found.seed is not None or found.is_tied)


def holds_bfloat16(variable: Variable) -> bool:
    """Whether it holds class vectors in bfloat16."""
    return holds_class_vectors(variable) and bfloat16_rows.is_half(variable)


def seed_of(variable: Variable) -> int | None:
    """The seed that `register` was given, or None."""
    found = _MATRICES.get(variable)
    return None if found is None else found.seed


def check_rounded(
    variables: Iterable[Variable], optimizer: keras.optimizers.Optimizer
) -> None:
    """Raises ValueError for bfloat16 class vectors and another optimizer.

    Optimizers of Keras round to nearest, and small steps to none.
    """
    # The optimizer within a LossScaleOptimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "rounds_bfloat16_rows", False):
        return
    for variable in filter(holds_bfloat16, variables):
        raise ValueError(
            "`optimizer` must be one of tfxclass.optimizers, e.g. HeadAdam, "
            'for rows of kernel_dtype="bfloat16": others round small steps '
            f"to none. Received: a {type(optimizer).__name__} for "
            f"{variable.path!r}."
        )


def _gone():
    """A reference to nothing."""
