"""Class vectors of a head, and all that is known of them."""

import dataclasses
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import shards as shards_lib
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import norms
from tfxclass.ops import placement
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.ops.stored_rows import zeros_variable
from tfxclass.types import Variable

# Random initial values differ by under 1 % from what the initializer says.
# Training makes them 1.7 times as large in small models, and 8 in others.
_TRAINED_RATIO = 1.3
_SAMPLED_ROWS = 1000
# Rows that are normalized at a time for an export.
_BLOCK = 65_536

#: Exponentials of 256 rows and 131,072 classes: they are kept between passes.
KEPT_BYTES = 2**27

# The `ClassMatrix` of each variable that it owns, by the variable's id. Keras
# hands optimizers and files variables alone, and they cannot be keys: they
# have no hash, and `==` compares their elements.
_OWNERS: weakref.WeakValueDictionary[int, "ClassMatrix"] = (
    weakref.WeakValueDictionary()
)


class ClassRows(NamedTuple):
    """The rows of consecutive classes; logits are `queries . rows + bias`.

    Attributes:
        kernel: variable or float32 tensor `[capacity, dim]`; rows from `size`
            on are padding, unless that is None.
        bias: variable or tensor `[capacity]`, or None.
        normalize: bool, whether rows are divided by their norms (cosine).
        first: int, the first class.
        device: str, where all rows are computed with, if not where the step
            is: on the host or the server that holds them.
        log_counts: float32 `[capacity]` of rows that are a sample, log of the
            expected count of each; infinite for a row that is none.
        bfloat16_products: bool, whether products of the exact softmax may be
            of numbers rounded to bfloat16.
        kept_bytes: int, of exponentials that it may keep between its passes.
        is_stock: bool, whether only TensorFlow's own ops may read them, as in
            an export.
    """

    kernel: Any
    bias: Any = None
    normalize: bool = False
    first: int = 0
    size: int | None = None
    device: str | None = None
    log_counts: Any = None
    bfloat16_products: bool = False
    kept_bytes: int = KEPT_BYTES
    is_stock: bool = False

    @property
    def capacity(self) -> int:
        """Rows of `kernel`."""
        return self.kernel.shape[0]

    @property
    def num_classes(self) -> int:
        """Rows of `kernel` that are no padding."""
        return self.capacity if self.size is None else self.size

    def local_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows of classes `ids`, int64; -1 for padding and other classes."""
        if not self.first and self.size is None:
            return ids
        local = ids - self.first
        is_here = (ids >= 0) & (local >= 0) & (local < self.num_classes)
        return tf.where(is_here, local, -1)

    def gather(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Rows `ids`, int64 `[...]`; their gradients are row-sparse.

        Returns `(kernel, bias)`: float32 `[..., dim]`, normalized if need be,
        and `[...]` or None.
        """
        kernel = placement.gather(self.kernel, ids)
        kernel = norms.normalize(kernel) if self.normalize else kernel
        if self.bias is None:
            return kernel, None
        return kernel, placement.gather(self.bias, ids)

    def whole(self) -> "ClassRows":
        """`ClassRows` of tensors without padding."""
        kernel, bias = self._read(self.kernel), self._read(self.bias)
        return self._replace(kernel=kernel, bias=bias)

    def _read(self, variable):
        if variable is None:
            return None
        if isinstance(variable, StoredRows):
            return variable.read()
        with placement.on(self.device):
            values = tf.convert_to_tensor(variable)
        # The gradient of a slice is a copy.
        if self.size is None or self.size == values.shape[0]:
            return values
        return values[: self.size]

    def products(self, queries: tf.Tensor) -> tf.Tensor:
        """Logits of all classes for queries `[batch, dim]`, in one product."""
        rows = self.whole()
        kernel = bfloat16_rows.floats(rows.kernel)
        logits = tf.matmul(queries, kernel, transpose_b=True)
        if rows.normalize:
            logits *= norms.inverse_norms(kernel)
        return logits if rows.bias is None else logits + rows.bias

    def servable(self) -> "ClassRows":
        """Variables to serve: those at hand, or a normalized float32 copy."""
        rows = self._replace(
            kernel=tf_variable(self.kernel),
            bias=tf_variable(self.bias),
            device=None,
            is_stock=True,
        )
        if not self.normalize:
            return rows
        kernel = tf.convert_to_tensor(rows.kernel)
        normalized = zeros_variable(kernel.shape, tf.float32, "rows")
        for start in range(0, kernel.shape[0], _BLOCK):
            part = bfloat16_rows.widen(kernel[start : start + _BLOCK])
            normalized[start : start + _BLOCK].assign(norms.normalize(part))
        return rows._replace(kernel=normalized, normalize=False)


@dataclasses.dataclass(eq=False, repr=False)
class ClassMatrix:
    """Class vectors and their biases, as a head makes them in `build`.

    The head, its sampler and its exports read `ClassRows` of it. An optimizer,
    which is handed the variables alone, finds it with `of`.

    Attributes:
        kernel: Keras variable `[rows, dim]`, or `SplitRows` of servers.
        bias: as `kernel`, `[rows]`, or None.
        normalize, bfloat16_products: of `ClassRows`.
        seed: int or None, of the stochastic rounding of class vectors.
        initial_rms: float, root mean square of the initial values; None where
            the initializer does not tell it.
        is_tied: bool, whether the kernel is an embedding.
        is_apart: bool, whether it lies on another device than the step, on a
            server or on the host, and is computed with there.
        shards: the `Shards` whose rows the variables have, or None.
        on_moved: function of the ids of class vectors, int64 `[n]`, that
            `LocalSGD` averaged: a sampler knows the rows of its own samples.
    """

    kernel: Any
    bias: Any = None
    normalize: bool = False
    seed: int | None = None
    initial_rms: float | None = None
    is_tied: bool = False
    is_apart: bool = False
    bfloat16_products: bool = False
    shards: Any = None

    def __post_init__(self) -> None:
        self.seed = int(self.seed or 0)
        self.on_moved: Callable[[tf.Tensor], None] = lambda ids: None
        self._optimizer: Any = lambda: None
        #: Function that returns the last `DeferredGradient`, or None.
        self.deferred_gradient: Any = lambda: None
        #: The variables with class vectors, one for each server.
        self.parts = shards_lib.parts_of(self.kernel)
        #: Weak references to what was given to `own`.
        self.owned: list[Any] = []
        for variable in self.variables:
            for part in shards_lib.parts_of(variable):
                self.own(part)

    @property
    def variables(self) -> list[Any]:
        """The kernel, and the bias if there is one."""
        return [x for x in (self.kernel, self.bias) if x is not None]

    def own(self, variable: Variable) -> None:
        """Makes `owner_of` find this matrix by a variable."""
        # Optimizer state may live shorter, and another variable get its id.
        self.owned.append(weakref.ref(variable))
        _OWNERS[id(variable)] = self

    @property
    def device(self) -> str | None:
        """The device that reads all class vectors, str; None is the step's."""
        return placement.device_of(self.kernel) if self.is_apart else None

    @property
    def is_half(self) -> bool:
        """Whether class vectors are stored in bfloat16."""
        return bfloat16_rows.is_half(self.parts[0])

    @property
    def rows(self) -> ClassRows:
        """The `ClassRows` of all classes, which are in no shards."""
        return ClassRows(
            self.kernel,
            self.bias,
            self.normalize,
            device=self.device,
            bfloat16_products=self.bfloat16_products,
        )

    def rows_by_shard(self) -> dict[int, ClassRows]:
        """The `ClassRows` by shard: in a replica its own, else all of them."""
        shards = self.shards
        if shards is None:
            return {0: self.rows}
        number = shards_lib.batch_of(shards).shard
        if number is not None or shards.count == 1:
            parts = {number or 0: self.variables}
        else:
            local = [shards.components(x) for x in self.variables]
            parts = {
                pairs[0][0]: [part for _, part in pairs]
                for pairs in zip(*local, strict=True)
            }
        return {i: self._shard(i, *parts[i]) for i in parts}

    def _shard(self, number, kernel, bias=None):
        is_here = self.shards.is_of_replicas
        host = None if is_here else placement.host_of(kernel)
        return self.rows._replace(
            kernel=kernel,
            bias=bias,
            first=self.shards.starts[number],
            size=self.shards.sizes[number],
            device=host,
        )

    def values(self) -> tf.Tensor:
        """All class vectors as they are stored, float32; of all shards."""
        parts = [x.whole().kernel for x in self.rows_by_shard().values()]
        parts = [bfloat16_rows.floats(x) for x in parts]
        if self.shards is None:
            return parts[0]
        exchange = shards_lib.batch_of(self.shards)
        return tf.concat([exchange.gather(x) for x in parts], axis=0)

    def servable(self) -> ClassRows:
        """The `ClassRows` that an export saves, of all shards."""
        rows = self.rows
        if self.shards is not None and self.shards.count > 1:
            with tf.device("CPU:0"):
                kernel, *biases = (
                    tf.Variable(self.shards.read(x), trainable=False)
                    for x in self.variables
                )
            rows = rows._replace(kernel=kernel, bias=(*biases, None)[0])
        return rows.servable()

    def is_trained(self) -> bool:
        """Whether values are much larger than their initializer makes them."""
        if self.initial_rms is None:
            return False
        rows = self.kernel.shape[0]
        ids = np.linspace(0, rows - 1, min(rows, _SAMPLED_ROWS))
        with tf.init_scope():
            # A variable that is created in a tf.function has no values before
            # the function is traced.
            if not tf_variable(self.kernel).is_initialized():
                return False
            vectors = placement.gather(self.kernel, ids.astype(np.int64))
            squares = tf.square(tf.cast(vectors, tf.float32))
            rms = float(tf.sqrt(tf.reduce_mean(squares)))
        return rms > _TRAINED_RATIO * self.initial_rms

    @property
    def optimizer(self) -> Any:
        """The optimizer of ours that updates a shard on its replica, or None.

        Others would add up the gradients of different classes.
        """
        return self._optimizer()

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    @property
    def differs_between_replicas(self) -> bool:
        """Whether the optimizer updates each replica by itself."""
        return getattr(self.optimizer, "differs_between_replicas", False)


def owner_of(variable: Any) -> ClassMatrix | None:
    """The `ClassMatrix` that a variable or its optimizer state belongs to."""
    matrix = _OWNERS.get(id(variable))
    if matrix is None or all(x() is not variable for x in matrix.owned):
        return None
    return matrix


def of(variable: Variable) -> ClassMatrix | None:
    """The `ClassMatrix` whose class vectors, or a server's, a variable has."""
    matrix = owner_of(variable)
    if matrix is None or all(part is not variable for part in matrix.parts):
        return None
    return matrix


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
    for variable in variables:
        matrix = of(variable)
        if matrix is not None and matrix.is_half:
            name = type(optimizer).__name__
            raise ValueError(_rounds(f"a {name} for {variable.path!r}"))


def refuse_rounding(values: Any) -> None:
    """The constraint of new bfloat16 class vectors, which raises ValueError.

    Optimizers of Keras call it. One of ours removes it when it is built.
    """
    raise ValueError(_rounds(f"another one for {values.path!r}"))


def _rounds(received):
    return (
        "`optimizer` must be one of tfxclass.optimizers, e.g. HeadAdam, "
        'for rows of kernel_dtype="bfloat16": others round small steps '
        f"to none. Received: {received}."
    )
