"""The base of the optimizers that update only the rows a step touches."""

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_nonnegative
from tfxclass.checks import suggesting_arguments
from tfxclass.keras_internals import OptimizerHooks
from tfxclass.keras_internals import eager_variables
from tfxclass.keras_internals import is_for_xla
from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import path_of
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.row_update import RowStorage
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers import rules
from tfxclass.rows import class_gradients
from tfxclass.rows import class_matrix
from tfxclass.rows import sharded_rows
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import Initializer
from tfxclass.types import Store
from tfxclass.types import Variable

# State that an optimizer of Keras may ask for.
_KERAS_STATE = ("momentum", "velocity", "velocity_hat", "accumulator")
# Options that need the rows of all shards.
_NEED_ALL_ROWS = ("clipnorm", "global_clipnorm", "gradient_accumulation_steps")
# Options that need the whole gradient before the first row is updated.
_NEED_WHOLE_GRADIENT = (*_NEED_ALL_ROWS, "clipvalue", "loss_scale_factor", "l2")


class RowOptimizer(OptimizerHooks):
    """Mixin in front of a Keras optimizer.

    Keras handles dense gradients. A `tf.IndexedSlices` gradient updates only
    the rows that it names and their optimizer state. Weight decay, L2
    regularization and clipping apply to these rows alone.

    A subclass defines `_rule_of`, and the values of `second_moment` and
    `slot_dtype` that it supports. `LazyAdam` documents the arguments.
    """

    SECOND_MOMENTS: tuple[str, ...] = ("element",)
    SLOT_DTYPES: tuple[str, ...] = ("float32",)
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
            library.require_compiled(f"{second_moment=} with {slot_dtype=}")
        check_nonnegative("l2", l2)
        self.second_moment, self.slot_dtype = second_moment, slot_dtype
        self.l2 = l2
        self._matrices: dict[str, ClassMatrix] = {}
        self._check_arguments()

    def _check_arguments(self):
        """Raises ValueError for arguments that a subclass cannot combine."""

    def _rule_of(self, variable: Variable, matrix: ClassMatrix | None) -> Any:
        """The update rule of a variable of `build`, one of `rules.py`."""
        raise NotImplementedError

    @property
    def can_step_by_class(self) -> bool:
        """Whether no option needs the whole gradient of a class matrix."""
        # A subclass that overrides `update_step` must see the gradient.
        has_own_step = type(self).update_step is not RowOptimizer.update_step
        needs_all = any(getattr(self, name) for name in _NEED_WHOLE_GRADIENT)
        return not (has_own_step or needs_all or self.second_moment == "matrix")

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        placement.check_made_within(self._strategy, variables)
        found = {self._key_of(v): class_matrix.of(v) for v in variables}
        self._matrices = {key: x for key, x in found.items() if x is not None}
        if any(matrix.is_half for matrix in self._matrices.values()):
            library.require_compiled('Training of kernel_dtype="bfloat16"')
        for variable in variables:
            constraint = getattr(variable, "constraint", None)
            if constraint is class_matrix.refuse_rounding:
                variable.constraint = None
        if self._is_replicated:
            for variable in filter(sharded_rows.shards_of, variables):
                self._check_sharded(variable)
            for matrix in self._matrices.values():
                matrix.optimizer = self
        with eager_variables():
            #: The state of each variable, by name.
            self._states = list(map(self._make_state, variables))
            super().build(variables)

    def _matrix_of(self, variable):
        """The `ClassMatrix` whose class vectors a variable has, or None."""
        return self._matrices.get(self._key_of(variable))

    def _make_state(self, variable):
        """Makes the state that the rule of a variable declares, by name."""
        if getattr(variable, "overwrite_with_gradient", False):
            return {}
        storage = self._storage_of(variable)
        rule = self._rule_of(variable, self._matrix_of(variable))
        specs = rule.state(variable, storage)
        return {name: self._add(variable, name, x) for name, x in specs.items()}

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
    ) -> keras.Variable | None:
        if name in _KERAS_STATE:
            # Keras, too, has None where a variable needs no such state.
            return self._states[self._index_of(reference_variable)].get(name)
        dtype = self._storage_of(reference_variable).slot_dtype.name
        spec = rules.StateSpec(reference_variable.shape, dtype)
        return self._add(reference_variable, name or "var", spec)

    def _add(self, reference, name, spec):
        """Adds state on the device of a variable, and in its shards."""
        constant = keras.initializers.Constant(spec.initial)
        make = functools.partial(
            self.add_variable,
            spec.shape,
            "zeros" if spec.initial == 0.0 else constant,
            dtype=spec.dtype,
            name=re.sub("[/:]", "_", f"{path_of(reference)}_{name}"),
        )
        shards = self._is_replicated and sharded_rows.shards_of(reference)
        if shards:
            # Each replica updates its own shard, and the state of it.
            with shards.creator():
                variable = make()
            class_matrix.owner_of(reference).own(variable)
            return variable
        extended = self._strategy.extended
        with extended.colocate_vars_with(tf_variable(reference)):
            if tf.distribute.has_strategy():
                return make()  # The strategy places it.
            with placement.colocate_with(reference):
                return make()

    def _storage_of(self, variable):
        """How a variable and its state are stored, for `row_update`."""
        dtype = tf.as_dtype(variable.dtype)
        matrix = self._matrix_of(variable)
        if matrix is None or matrix.is_tied:
            return RowStorage(dtype, dtype)
        slot_dtype = tf.float32 if dtype == tf.bfloat16 else dtype
        has_bfloat16 = self.slot_dtype == "bfloat16"
        # The op has no bfloat16 first moments with full second ones.
        is_compact = has_bfloat16 or self.second_moment == "row"
        if slot_dtype != tf.float32 or not is_compact:
            return RowStorage(dtype, slot_dtype)
        return RowStorage(dtype, slot_dtype, True, has_bfloat16)

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        if self.loss_scale_factor is not None:
            grads = [row_gradients.divisible(gradient) for gradient in grads]
        return super().apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        if self.can_step_by_class and not self._is_replicated:
            grads, variables = self._step_by_class(grads, variables)
            if not variables:
                return
        for gradient, variable in zip(grads, variables):
            if self._is_by_rows(gradient, variable):
                self._check_rows(self._built_for[self._index_of(variable)])
        steps = self.gradient_accumulation_steps
        if not steps:
            self._row_steps(grads, variables)
        elif self._is_replicated:
            super()._on_apply(grads, variables)
        else:
            sums = [self._gradient_sums[self._index_of(v)] for v in variables]
            sums = list(map(tf_variable, sums))
            tf.cond(
                (num_applied(self) + 1) % steps == 0,
                lambda: self._step_with_means(grads, variables, sums),
                lambda: row_gradients.add(sums, grads),
            )

    def _step_by_class(self, grads, variables):
        """Updates class vectors by class where it can; the rest is returned."""
        others, of_bias = [], {}
        for gradient, variable in zip(grads, variables):
            deferred = self._deferred(gradient, variable)
            if deferred is None:
                others.append((gradient, variable))
                continue
            step = tf.zeros([0], tf.int64), deferred.gradient
            with tf.control_dependencies(deferred.after):
                found = self._update_rows(variable, *step, self.learning_rate)
            if deferred.of_bias is not None:
                of_bias[id(deferred.of_bias)] = found
        # The pass over the classes has found the gradient of their biases.
        found = [of_bias.get(id(gradient), gradient) for gradient, _ in others]
        return found, [variable for _, variable in others]

    def _deferred(self, gradient, variable):
        """The `DeferredGradient` of class vectors, or None."""
        kernel = self._built_for[self._index_of(variable)]
        matrix = self._matrix_of(kernel)
        if matrix is None or isinstance(gradient, tf.IndexedSlices):
            return None
        is_float32 = self._storage_of(kernel).slot_dtype == tf.float32
        if not is_float32 or getattr(kernel, "constraint", None) is not None:
            return None
        return class_gradients.take(gradient, variable, matrix)

    def _is_by_rows(self, gradient, variable):
        """Whether ours, not Keras' step, updates a variable."""
        if isinstance(gradient, tf.IndexedSlices):
            return True
        variable = self._built_for[self._index_of(variable)]
        storage = self._storage_of(variable)
        is_plain = storage == RowStorage(storage.dtype, storage.dtype)
        rule = self._rule_of(variable, self._matrix_of(variable))
        return not (is_plain and rule.takes_dense)

    def _check_rows(self, variable):
        """Refuses what updates of rows cannot do."""
        name, path = type(self).__name__, path_of(variable)
        of_keras = f"keras.optimizers.{name.removeprefix('Lazy')}"
        if is_for_xla():
            raise ValueError(
                f"{name} updates rows by ops that XLA cannot compile. Fix: "
                "model.compile(..., jit_compile=False). Received: a row "
                f"gradient of {path!r} in a step that Keras compiles by XLA"
            )
        device = placement.device_of(variable)
        if variable.dtype == "float64" and placement.on_gpu(device):
            raise ValueError(
                f"{name} updates float64 rows on a CPU only. Received: "
                f"{path!r} on {device}. Fix: use float32, or make the variable "
                'within `with tf.device("CPU"):`'
            )
        if getattr(variable, "constraint", None) is not None:
            raise ValueError(
                f"{name} does not apply constraints to rows. Received: a "
                f"constraint on {path!r}, which has a row gradient "
                "(tf.IndexedSlices). Fix: leave the constraint out (a head "
                'with similarity="cosine" normalizes class vectors), or use '
                f"{of_keras}"
            )
        if self.gradient_accumulation_steps and self._is_replicated:
            raise ValueError(
                "`gradient_accumulation_steps` with a row gradient "
                "(tf.IndexedSlices) needs a single replica. Received: "
                f"{self.gradient_accumulation_steps} for {path!r} with several "
                f"replicas. Fix: leave it out, or use {of_keras}"
            )

    def _check_sharded(self, variable):
        """Refuses what needs the gradient or the variable as a whole."""
        for name in (*_NEED_ALL_ROWS, "second_moment"):
            value = getattr(self, name)
            if value and value not in ("element", "row"):
                raise ValueError(
                    f"`{name}` needs more than the rows of one replica, but "
                    f"{variable.path!r} is in shards. Received: {name}={value}"
                )

    def _step_with_means(self, grads, variables, sums):
        row_gradients.add(sums, grads)
        steps = self.gradient_accumulation_steps
        by_rows = map(self._is_by_rows, grads, variables)
        means = [row_gradients.mean(s, r, steps) for s, r in zip(sums, by_rows)]
        self._row_steps(means, variables)
        # Also the sums of variables that had no gradient in this step.
        for each in self._gradient_sums:
            if each is not None:
                tf_variable(each).assign(tf.zeros_like(each))

    def _row_steps(self, grads, variables):
        """As Keras' step, with weight decay in the row updates."""
        by_rows = map(self._is_by_rows, grads, variables)
        self._decay_all([v for r, v in zip(by_rows, variables) if not r])
        # Keras calls `update_step` for each variable.
        self._update_all(self._on_clip(grads), variables)

    def _on_clip(self, grads):
        """Clips as Keras does, with duplicate rows summed first."""
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        grads = list(map(row_gradients.summed_rows, grads))
        values = super()._on_clip(list(map(row_gradients.values_of, grads)))
        return list(map(row_gradients.with_values, grads, values))

    def _on_all_reduce(self, pairs):
        reduce = super()._on_all_reduce
        if not tf.distribute.has_strategy():
            return reduce(pairs)
        pairs = list(pairs)
        variables = [self._built_for[self._index_of(v)] for _, v in pairs]
        is_whole = [sharded_rows.shards_of(v) is None for v in variables]
        # Each replica keeps the gradient of its own shard.
        reduced = iter(reduce(list(itertools.compress(pairs, is_whole))))
        return [next(reduced) if x else p for x, p in zip(is_whole, pairs)]

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: Any
    ) -> None:
        if self.l2 and self._has_decay(variable):
            gradient = row_gradients.with_l2(gradient, variable, self.l2)
        if not self._is_by_rows(gradient, variable):
            super().update_step(gradient, variable, learning_rate)
            return
        if isinstance(gradient, tf.IndexedSlices):
            ids, values = tf.cast(gradient.indices, tf.int64), gradient.values
        else:
            ids, values = tf.range(tf.shape(gradient, tf.int64)[0]), gradient
        self._update_rows(variable, ids, values, learning_rate)

    def _update_rows(self, variable, ids, grads, learning_rate):
        """One step of the rows `ids`; what the op returns."""
        index = self._index_of(variable)
        reference = self._built_for[index]
        matrix = self._matrix_of(reference)
        storage = self._storage_of(reference)
        if storage.bfloat16_moments or storage.slot_dtype != storage.dtype:
            # Kernels of one head, and heads of one seed, differ by index.
            seed = (0 if matrix is None else matrix.seed) * 1024 + index
            storage = storage._replace(seed=seed, step=num_applied(self))
        if not isinstance(grads, ClassGradient):
            grads = tf.cast(grads, storage.slot_dtype)
        decay = tf.zeros([], tf.float64)
        if self.weight_decay is not None and self._has_decay(variable):
            decay = tf.cast(learning_rate, tf.float64) * self.weight_decay
        step = rules.RowStep(
            tf_variable(variable),
            {n: tf_variable(x).handle for n, x in self._states[index].items()},
            ids,
            grads,
            learning_rate,
            decay,
            self.iterations,
            storage,
        )
        return self._rule_of(reference, matrix).update(step)

    def save_own_variables(self, store: Store) -> None:
        sharded_rows.save(self.variables, store)

    def load_own_variables(self, store: Store) -> None:
        if sharded_rows.num_saved(store) == len(self.variables):
            sharded_rows.load(self.variables, store)
        else:
            super().load_own_variables(store)  # warns

    def get_config(self) -> Config:
        own: Config = {"l2": self.l2}
        if len(self.SECOND_MOMENTS) > 1:
            own["second_moment"] = self.second_moment
        if len(self.SLOT_DTYPES) > 1:
            own["slot_dtype"] = self.slot_dtype
        return {**super().get_config(), **own}
