"""What is used of the insides of Keras' optimizers."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from typing import Any as _Base  # Keras' class is to the right of it.
else:
    _Base = object


class OptimizerHooks(_Base):
    """Mixin in front of a Keras optimizer: its private methods, renamed.

    Keras calls the hooks `_on_apply`, `_on_clip` and `_on_all_reduce`. A
    subclass overrides them, and `super()` leads to what Keras does. The other
    methods are for subclasses to call.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: The strategy in scope when the optimizer was made.
        self._strategy = tf.distribute.get_strategy()

    def _backend_apply_gradients(self, grads, variables):
        self._on_apply(grads, variables)

    def _clip_gradients(self, grads):
        return self._on_clip(grads)

    def _all_reduce_sum_gradients(self, pairs):
        return self._on_all_reduce(pairs)

    def _on_apply(self, grads, variables):
        """All of a step after the loss scale: clip, decay, update."""
        super()._backend_apply_gradients(grads, variables)

    def _on_clip(self, grads):
        """The gradients, clipped as the constructor's arguments say."""
        return super()._clip_gradients(grads)

    def _on_all_reduce(self, pairs):
        """Pairs of gradient and variable, gradients summed over replicas."""
        pairs = list(pairs)
        is_given = any(gradient is not None for gradient, _ in pairs)
        if is_given and not tf.distribute.has_strategy():
            # Without one TensorFlow sums nothing, but keeps the graph for ever.
            return pairs
        return super()._all_reduce_sum_gradients(pairs)

    def _update_all(self, grads, variables):
        """Calls `update_step` for each variable, where it lies."""
        self._backend_update_step(grads, variables, self.learning_rate)

    def _decay_all(self, variables):
        """Applies weight decay to variables as a whole."""
        self._apply_weight_decay(variables)

    def _has_decay(self, variable):
        """Whether a variable is not excluded from weight decay.

        Only after `build`: Keras 3.16 refuses to tell before.
        """
        return self._use_weight_decay(variable)

    @property
    def _gradient_sums(self):
        """The accumulators of `gradient_accumulation_steps`, or none."""
        return self._accumulated_gradients

    @property
    def _is_replicated(self):
        """Whether several replicas take a step together."""
        return self._strategy.num_replicas_in_sync > 1

    @property
    def _built_for(self):
        """The variables that `build` was given, a list.

        An attribute of ours would make them variables of the optimizer.
        """
        return self._trainable_variables

    def _index_of(self, variable):
        """Place of a variable, or of a replica's copy, in `build`'s list."""
        return self._get_variable_index(variable)

    def _key_of(self, variable):
        """A key of a variable, the same for its copies on replicas."""
        return self._var_key(variable)


@contextlib.contextmanager
def eager_variables() -> Iterator[None]:
    """Makes variables at once, also where a `tf.function` is traced.

    `fit` builds an optimizer while it traces the first step. TensorFlow takes a
    variable of a traced function for the function's own. It would then trace
    the step again, and keep a copy of the variable's initial value.
    """

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        options["experimental_enable_variable_lifting"] = False
        return next_creator(**options)

    with tf.init_scope(), tf.variable_creator_scope(create):
        yield


def count_step(optimizer: keras.optimizers.Optimizer) -> None:
    """Moves the count of steps on, without one.

    `iterations` itself is another number where gradients are accumulated.
    """
    optimizer._iterations.assign_add(1)


def num_applied(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """How often gradients were applied, int64 scalar.

    `iterations` is fewer where they are accumulated.
    """
    return tf.cast(optimizer._iterations, tf.int64)


def merge_call(
    function: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any
) -> Any:
    """Calls `function(strategy, *args)` once for all replicas.

    Where the strategy need not wait for the others, in each replica.
    """
    merge = tf.__internal__.distribute.interim.maybe_merge_call
    return merge(function, strategy, *args)
