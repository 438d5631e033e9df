"""The base of the optimizers that update only the rows a step touches."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass import shards as shards_lib
from tfxclass.checks import check_choice
from tfxclass.checks import suggesting_arguments
from tfxclass.core.scopes import check_made_within
from tfxclass.keras_internals import OptimizerHooks
from tfxclass.keras_internals import is_for_xla
from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers import sharded_slots
from tfxclass.optimizers.gradient_sums import GradientSums
from tfxclass.optimizers.variable_groups import path_of
from tfxclass.rows import class_matrix
from tfxclass.rows.class_gradients import apply_by_class
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import Initializer
from tfxclass.types import Store
from tfxclass.types import Variable

# Names of Keras' optimizer state.
_FIRST_MOMENTS = ("momentum",)
_SECOND_MOMENTS = ("velocity", "velocity_hat", "accumulator")
# Options that need the whole gradient before the first row is updated.
_NEED_WHOLE_GRADIENT = (
    "gradient_accumulation_steps",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "loss_scale_factor",
    "l2",
)


class RowOptimizer(OptimizerHooks):
    """Mixin in front of a Keras optimizer.

    Keras handles dense gradients. A `tf.IndexedSlices` gradient updates only
    the rows that it names and their optimizer state. Weight decay, L2
    regularization and clipping apply to these rows alone.

    A subclass defines `_slots` and `_update_op`, and the values of
    `second_moment` and `slot_dtype` that it supports.

    Args:
        *args: as for the Keras optimizer.
        second_moment: str, one of `SECOND_MOMENTS`; see `LazyAdam`.
        slot_dtype: str, one of `SLOT_DTYPES`; see `LazyAdam`.
        l2: float >= 0; see `LazyAdam`.
        **kwargs: as for the Keras optimizer.
    """

    SECOND_MOMENTS = ("element",)
    SLOT_DTYPES = ("float32",)
    #: Updates of bfloat16 class vectors are rounded stochastically.
    rounds_bfloat16_rows = True

    def __init__(
        self,
        *args: Any,
        second_moment: str = "element",
        slot_dtype: str = "float32",
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("use_ema"):
            raise ValueError(
                "A moving average changes all class vectors in each step, and "
                f"{type(self).__name__} updates those that a step touches. "
                "Fix: tfxclass.optimizers.MultiOptimizer with "
                "keras.optimizers.Adam(use_ema=True) for the other layers. "
                f"Received: use_ema={kwargs['use_ema']}"
            )
        with suggesting_arguments(type(self), kwargs):
            super().__init__(*args, **kwargs)
        check_choice("second_moment", second_moment, self.SECOND_MOMENTS)
        check_choice("slot_dtype", slot_dtype, self.SLOT_DTYPES)
        if second_moment == "row" or slot_dtype == "bfloat16":
            library.require_compiled(
                f"second_moment={second_moment!r} with "
                f"slot_dtype={slot_dtype!r}"
            )
        if not 0 <= l2 < math.inf:
            raise ValueError(f"`l2` must be finite and >= 0. Received: {l2}")
        self.second_moment = second_moment
        self.slot_dtype = slot_dtype
        self.l2 = l2
        self._sums = None
        # Indices of variables whose row gradients have been checked.
        self._checked = set()
        self._check_arguments()

    def _check_arguments(self):
        """Raises ValueError for arguments that a subclass cannot combine."""

    def _slots(self, index: int) -> list[Variable]:
        """The optimizer state of a variable that row updates write."""
        raise NotImplementedError

    def _update_op(
        self,
        variable: tf.Tensor,
        slots: list[tf.Tensor],
        ids: tf.Tensor,
        grads: Any,
        *,
        learning_rate: Any,
        **options: Any,
    ) -> Any:
        """Calls a function of `row_update`; `options` are for that."""
        raise NotImplementedError

    @property
    def can_step_by_class(self) -> bool:
        """Whether no option needs the whole gradient of a class matrix."""
        # A subclass that overrides `update_step` must see the gradient.
        has_own_step = type(self).update_step is not RowOptimizer.update_step
        return not (
            has_own_step
            or self.second_moment == "matrix"
            or any(getattr(self, name) for name in _NEED_WHOLE_GRADIENT)
        )

    def _on_build(self, variables):
        check_made_within(self._strategy, variables)
        if any(map(class_matrix.holds_bfloat16, variables)):
            library.require_compiled('Training of kernel_dtype="bfloat16"')
        sharded_slots.take_charge(self, variables)
        super()._on_build(variables)
        if self.gradient_accumulation_steps and not self._is_replicated:
            self._sums = GradientSums(self, variables)

    def _check_shards(self, variable):
        """Refuses what needs the gradient or the variable as a whole."""
        sharded_slots.check(self, variable)

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
    ) -> keras.Variable:
        shape_and_dtype = self._slot_format(reference_variable, name)
        if shape_and_dtype is None:
            add = super().add_variable_from_reference
            with _device_of(reference_variable):
                return sharded_slots.add(
                    reference_variable,
                    lambda: add(
                        reference_variable, name=name, initializer=initializer
                    ),
                )
        shape, dtype = shape_and_dtype
        path = path_of(reference_variable).replace("/", "_")
        extended = self._strategy.extended
        with extended.colocate_vars_with(tf_variable(reference_variable)):
            with _device_of(reference_variable):
                return sharded_slots.add(
                    reference_variable,
                    lambda: self.add_variable(
                        shape, initializer, dtype=dtype, name=f"{path}_{name}"
                    ),
                )

    def _slot_format(self, variable, name):
        """Shape and dtype of optimizer state; None if the variable's own."""
        if name == "velocity" and self._has_matrix_moment(variable):
            is_double = tf.as_dtype(variable.dtype) == tf.float64
            # A weighted sum of mean squares, and the sum of the weights. A
            # matrix, because growth takes a vector for one number a class.
            return (1, 2), "float64" if is_double else "float32"
        if self._has_bfloat16_moments(variable) and name in _FIRST_MOMENTS:
            return variable.shape, "bfloat16"
        if self._has_row_moments(variable) and name in _SECOND_MOMENTS:
            return variable.shape[:1], "float32"
        if class_matrix.holds_bfloat16(variable):
            return variable.shape, "float32"
        return None

    def _has_matrix_moment(self, variable):
        """Whether all rows of a variable share one second moment."""
        return bool(
            self.second_moment == "matrix"
            and class_matrix.holds_class_vectors(variable)
            and len(variable.shape) > 1
        )

    def _has_bfloat16_moments(self, variable):
        return self.slot_dtype == "bfloat16" and _are_narrow(variable)

    def _has_row_moments(self, variable):
        """Whether second moments have one number for each row."""
        if self.second_moment == "row" and _are_narrow(variable):
            return True
        # The op has no bfloat16 first moments with full second ones.
        return self._has_bfloat16_moments(variable)

    def _storage(self, index):
        """How a variable and its state are stored, for `row_update`."""
        variable = self._built_for[index]
        dtype = tf.as_dtype(variable.dtype)
        is_half = class_matrix.holds_bfloat16(variable)
        is_random = is_half or self._has_bfloat16_moments(variable)
        moment = None
        if self._has_matrix_moment(variable):
            moment = tf_variable(self._matrix_moment(index)).handle
        return row_update.RowStorage(
            dtype,
            tf.float32 if is_half else dtype,
            row_moments=self._has_row_moments(variable),
            bfloat16_moments=self._has_bfloat16_moments(variable),
            # Kernels of one head, and heads of one seed, differ by index.
            seed=(class_matrix.seed_of(variable) or 0) * 1024 + index,
            step=num_applied(self) if is_random else 0,
            second_moment=moment,
        )

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        grads = [row_gradients.divisible(gradient) for gradient in grads]
        return super().apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        grads, variables = apply_by_class(self, grads, variables)
        if not variables:
            return
        grads = [self._as_rows(g, v) for g, v in zip(grads, variables)]
        for gradient, variable in zip(grads, variables):
            if isinstance(gradient, tf.IndexedSlices):
                self._check_xla(variable)
                self._check_rows(variable)
        if self._sums is None:
            self._step(grads, variables)
            return
        tf.cond(
            self._sums.is_last(),
            lambda: self._step_with_means(grads, variables),
            lambda: self._sums.add(grads, variables),
        )

    def _has_own_rule(self, variable):
        """Whether a subclass updates the variable by a rule of its own."""
        del variable
        return False

    def _as_rows(self, gradient, variable):
        """Names all rows where Keras cannot update the variable."""
        if isinstance(gradient, tf.IndexedSlices):
            return gradient
        variable = self._built_for[self._index_of(variable)]
        if not (
            class_matrix.holds_bfloat16(variable)
            or self._has_row_moments(variable)
            or self._has_matrix_moment(variable)
            or self._has_own_rule(variable)
        ):
            return gradient
        return row_gradients.AllRows(gradient)

    def _check_xla(self, variable):
        """Refuses a step that XLA is to compile, as Keras asks on a GPU."""
        if is_for_xla():
            raise ValueError(
                f"{type(self).__name__} updates rows by ops that XLA cannot "
                "compile. Keras compiles a training step by XLA on a GPU, if "
                "all layers of the model allow it (tfxclass's heads do not). "
                f"Received: a row gradient of {path_of(variable)!r} in such a "
                "step. Fix: model.compile(..., jit_compile=False)."
            )

    def _check_rows(self, variable):
        """Refuses options that need all rows of the variable, once."""
        index = self._index_of(variable)
        if index in self._checked:
            return
        variable = self._built_for[index]
        keras_name = type(self).__name__.removeprefix("Lazy")
        if getattr(variable, "constraint", None) is not None:
            raise ValueError(
                f"{type(self).__name__} updates the rows that a step touches, "
                "and does not apply constraints to them. Received: a "
                f"constraint on {path_of(variable)!r}, which has a row "
                "gradient (tf.IndexedSlices). Fix: leave the constraint out "
                '(a head with similarity="cosine" normalizes class vectors), '
                f"or use keras.optimizers.{keras_name}."
            )
        if self.gradient_accumulation_steps and self._is_replicated:
            raise ValueError(
                "`gradient_accumulation_steps` with a row gradient "
                "(tf.IndexedSlices) needs a single replica. Received: "
                f"{self.gradient_accumulation_steps} for "
                f"{path_of(variable)!r} with several replicas. Fix: leave it "
                f"out, or use keras.optimizers.{keras_name}."
            )
        self._checked.add(index)

    def _step(self, grads, variables):
        if any(isinstance(g, tf.IndexedSlices) for g in grads):
            self._row_steps(grads, variables)
        else:
            super()._on_apply(grads, variables)

    def _step_with_means(self, grads, variables):
        self._sums.add(grads, variables)
        self._row_steps(self._sums.means(grads, variables), variables)
        self._sums.clear()

    def _row_steps(self, grads, variables):
        """As Keras' step, with weight decay in the row updates."""
        grads = self._on_clip(grads)
        is_dense = [not isinstance(g, tf.IndexedSlices) for g in grads]
        self._decay_all([v for d, v in zip(is_dense, variables) if d])
        self._update_all(grads, variables)

    def _on_clip(self, grads):
        """Clips as Keras does, with duplicate rows summed first."""
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        grads = list(map(row_gradients.summed_rows, grads))
        values = map(row_gradients.values_of, grads)
        clipped = super()._on_clip(list(values))
        return list(map(row_gradients.with_values, grads, clipped))

    def _on_all_reduce(self, pairs):
        def reduce_whole(whole):
            return row_gradients.all_reduce(reduce_dense, whole)

        reduce_dense = super()._on_all_reduce
        return sharded_slots.all_reduce(reduce_whole, pairs)

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: Any
    ) -> None:
        if self.l2 and self._has_decay(variable):
            gradient = _with_l2(gradient, variable, self.l2)
        if isinstance(gradient, tf.IndexedSlices):
            self._update_rows(
                variable,
                tf.cast(gradient.indices, tf.int64),
                gradient.values,
                learning_rate,
            )
        else:
            super().update_step(gradient, variable, learning_rate)

    def _update_rows(self, variable, ids, grads, learning_rate):
        """One step of the rows `ids`; what the op returns."""
        index = self._index_of(variable)
        storage = self._storage(index)
        if not isinstance(grads, ClassGradient):
            grads = tf.cast(grads, storage.slot_dtype)
        return self._update_op(
            variable.handle,
            [tf_variable(slot).handle for slot in self._slots(index)],
            ids,
            grads,
            learning_rate=learning_rate,
            storage=storage,
            decay=self._decay(variable, learning_rate),
        )

    def _decay(self, variable, learning_rate):
        """Learning rate times weight decay, float64 scalar."""
        if self.weight_decay is None or not self._has_decay(variable):
            return tf.zeros([], tf.float64)
        return tf.cast(learning_rate, tf.float64) * self.weight_decay

    def save_own_variables(self, store: Store) -> None:
        shards_lib.save(self.variables, store)

    def load_own_variables(self, store: Store) -> None:
        load = super().load_own_variables
        sharded_slots.load(self.variables, store, load)

    def get_config(self) -> Config:
        own = {"l2": self.l2}
        if len(self.SECOND_MOMENTS) > 1:
            own["second_moment"] = self.second_moment
        if len(self.SLOT_DTYPES) > 1:
            own["slot_dtype"] = self.slot_dtype
        return {**super().get_config(), **own}


def _are_narrow(variable):
    """Whether optimizer state may have another shape or dtype."""
    dtype = tf.as_dtype(variable.dtype)
    is_narrow = dtype in (tf.float32, tf.bfloat16)
    return is_narrow and class_matrix.holds_class_vectors(variable)


def _with_l2(gradient, variable, l2):
    """`gradient + l2 * variable`, each touched row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        here = tf.cast(tf.convert_to_tensor(variable), gradient.dtype)
        return gradient + l2 * here
    gradient = row_gradients.summed_rows(gradient)
    rows = placement.gather(variable, gradient.indices)
    rows = tf.cast(rows, gradient.values.dtype)
    return row_gradients.with_values(gradient, gradient.values + l2 * rows)


def _device_of(variable):
    """The device scope of optimizer state; strategies place their own."""
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return placement.colocate_with(variable)
