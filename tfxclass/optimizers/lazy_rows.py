"""What the lazy optimizers share: row gradients never become dense."""

import contextlib
import weakref

import tensorflow as tf

from tfxclass import placement
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers.sharded_rows import ShardedRows

_OPTIMIZER = "_tfxclass_lazy_optimizer"


def catch_up(variable, ids=None):
    """Applies the steps that rows skipped, before they are read.

    A head calls this in front of each gather from `variable`, and needs not
    know the optimizer: nothing happens unless one with `catch_up=True` was
    built for the variable. In a `tf.function` the gather has to come after
    this call in the Python code; automatic control dependencies keep the two
    in order, and the update after both. Gather from `variable.value`: a
    gather from the Keras variable itself first reads the whole matrix as a
    tensor, and a row update that runs while this tensor lives has to copy it.

    Build the optimizer before the function is traced (`fit` does).

    Args:
        variable: `keras.Variable`.
        ids: integer tensor of any shape, the rows about to be read. None
            means all of them: before an evaluation, an export, or a save that
            something other than this optimizer will read.
    """
    reference = getattr(variable, _OPTIMIZER, None)
    optimizer = reference() if reference is not None else None
    if optimizer is None:
        return
    if ids is None:
        optimizer.catch_up_all(variable)
    else:
        optimizer.catch_up_rows(variable, ids)


class LazyRows(ShardedRows):
    """Mixin in front of a Keras optimizer.

    Dense gradients go to Keras. A `tf.IndexedSlices` gradient moves only the
    rows it names, and their slots; weight decay and clipping keep to these
    rows too. Subclasses give `_slots`, `_update_op` and `_catch_up_op`.
    """

    def __init__(self, *args, catch_up=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.catch_up = catch_up

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        if not self.catch_up:
            return
        self._last_steps = [self._add_last_step(v) for v in variables]
        for variable in variables:
            setattr(variable, _OPTIMIZER, weakref.ref(self))

    def _add_last_step(self, variable):
        """How many steps each row has seen, int64 [num_rows]."""
        if not len(variable.shape):
            return None
        if self._overwrite_variable_with_gradient(variable):
            return None

        def add():
            return self.add_variable(
                shape=(variable.shape[0],),
                dtype="int64",
                name=f"{_path(variable).replace('/', '_')}_last_step",
            )

        strategy = self._distribution_strategy
        with strategy.extended.colocate_vars_with(tf_variable(variable)):
            with _home(variable):
                return self._add_in_shards(variable, add)

    def add_variable_from_reference(self, reference_variable, **kwargs):
        with _home(reference_variable):
            return super().add_variable_from_reference(
                reference_variable, **kwargs
            )

    def catch_up_rows(self, variable, ids):
        """Brings rows to where the dense optimizer would have them now.

        Args:
            variable: one of the variables the optimizer was built with.
            ids: integer tensor of any shape.

        Raises:
            ValueError: without `catch_up=True`.
        """
        self._check_catches_up()
        ids = tf.reshape(tf.cast(ids, tf.int64), [-1])
        variable = tf_variable(variable)
        if tf.distribute.get_replica_context() is not None:
            self._catch_up(variable, ids)
            return
        self._distribution_strategy.extended.update(
            variable, self._catch_up, args=(ids,), group=False
        )

    def catch_up_all(self, variable):
        """`catch_up_rows` for every row; O(num_rows)."""
        self._check_catches_up()
        self.catch_up_rows(variable, tf.range(variable.shape[0], dtype="int64"))

    def _check_catches_up(self):
        if not self.catch_up:
            raise ValueError(
                "Rows can only be caught up by an optimizer that was made "
                f"with `catch_up=True`. Received: {self.name} with "
                "catch_up=False"
            )

    def _catch_up(self, variable, ids):
        index = self._get_variable_index(variable)
        last_step = self._last_steps[index]
        if last_step is None:
            return
        self._catch_up_op(
            variable.handle,
            [tf_variable(slot).handle for slot in self._slots(index)],
            tf_variable(last_step).handle,
            ids,
            step=tf.cast(self.iterations, tf.int64),
            decay=self._decay(variable, self.learning_rate),
        )

    def _decay(self, variable, learning_rate):
        """Learning rate times weight decay, float32 scalar."""
        if self.weight_decay is None or not self._use_weight_decay(variable):
            return tf.zeros([], tf.float32)
        return tf.cast(learning_rate, tf.float32) * self.weight_decay

    def apply(self, grads, trainable_variables=None):
        grads = [row_gradients.divisible(gradient) for gradient in grads]
        return super().apply(grads, trainable_variables)

    def _backend_apply_gradients(self, grads, trainable_variables):
        rows = [isinstance(g, tf.IndexedSlices) for g in grads]
        for is_rows, variable in zip(rows, trainable_variables):
            if is_rows:
                self._check_lazy(variable)
        dense = [v for r, v in zip(rows, trainable_variables) if not r]
        if self.catch_up:
            for variable in dense:
                self._catch_up_all_replicas(variable)
        if not any(rows):
            super()._backend_apply_gradients(grads, trainable_variables)
            return
        grads = self._clip_gradients(grads)
        # Row gradients bring their decay along, in the fused update.
        self._apply_weight_decay(dense)
        self._backend_update_step(
            grads, trainable_variables, self.learning_rate
        )

    def _check_lazy(self, variable):
        """Refuses what would touch every row in every step."""
        problems = {
            "use_ema=True": self.use_ema,
            f"gradient_accumulation_steps={self.gradient_accumulation_steps}": (
                self.gradient_accumulation_steps
            ),
            "a constraint on the variable": variable.constraint,
            f"a variable of dtype {variable.dtype}": (
                variable.dtype != "float32"
            ),
        }
        for problem, is_present in problems.items():
            if is_present:
                raise ValueError(
                    f"{type(self).__name__} updates only the touched rows of "
                    "a float32 variable; an average, accumulator or "
                    "constraint would cost all rows in every step. Received: "
                    f"{problem}, and a row gradient (tf.IndexedSlices) for "
                    f"'{_path(variable)}' of shape {tuple(variable.shape)}. "
                    "Fix: leave it out, or use "
                    f"keras.optimizers.{type(self).__name__[4:]}."
                )

    def _catch_up_all_replicas(self, variable):
        if not len(variable.shape):
            return

        def update(strategy, variable, ids):
            strategy.extended.update(
                variable, self._catch_up, args=(ids,), group=False
            )

        tf.__internal__.distribute.interim.maybe_merge_call(
            update,
            self._distribution_strategy,
            tf_variable(variable),
            tf.range(variable.shape[0], dtype="int64"),
        )

    def _clip_gradients(self, grads):
        """As Keras, on the sums of the rows: a norm counts each row once."""
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        grads = list(map(row_gradients.summed_rows, grads))
        values = map(row_gradients.values_of, grads)
        clipped = super()._clip_gradients(list(values))
        return list(map(row_gradients.with_values, grads, clipped))

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices):
            self._row_step(gradient, variable, learning_rate)
            return
        super().update_step(gradient, variable, learning_rate)
        if not self.catch_up:
            return
        last_step = self._last_steps[self._get_variable_index(variable)]
        if last_step is not None:
            step = tf.cast(self.iterations, tf.int64) + 1
            self.assign(last_step, tf.fill(last_step.shape, step))

    def _row_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        ids = tf.cast(gradient.indices, tf.int64)
        last_step = None
        if self.catch_up:
            # Most often done before the rows were read; then it costs little.
            # Not before the gather is done: what it reads would be copied.
            with tf.control_dependencies([gradient.values]):
                self._catch_up(variable, ids)
            last_step = tf_variable(self._last_steps[index]).handle
        self._update_op(
            variable.handle,
            [tf_variable(slot).handle for slot in self._slots(index)],
            last_step,
            ids,
            tf.cast(gradient.values, tf.float32),
            step=tf.cast(self.iterations, tf.int64),
            learning_rate=tf.cast(learning_rate, tf.float32),
            decay=self._decay(variable, learning_rate),
        )

    def get_config(self):
        config = super().get_config()
        config.update({"catch_up": self.catch_up})
        return config


def _home(variable):
    """Where a slot of `variable` lies; a strategy sees to it by itself."""
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return placement.beside(variable)


def _path(variable):
    # A bare tf.Variable has only a name.
    return getattr(variable, "path", variable.name)


def tf_variable(variable):
    # Not `.value`, which under autocast is a tensor and has no handle.
    return getattr(variable, "_value", variable)
