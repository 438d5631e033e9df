"""Local SGD in stages, with a proximal term."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_number
from tfxclass.checks import check_optional_int
from tfxclass.keras_internals import eager_variables
from tfxclass.keras_internals import merge_call
from tfxclass.keras_internals import tf_variable
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers import rules
from tfxclass.optimizers.replica_averages import ReplicaAverages
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.optimizers.stages import Stage
from tfxclass.optimizers.stages import StageSchedule
from tfxclass.optimizers.stages import check_stages
from tfxclass.rows.sharded_rows import shards_of
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import LearningRate
from tfxclass.types import Store
from tfxclass.types import Variable

_FOR_EVER = 2**62


@keras.saving.register_keras_serializable(package="tfxclass")
class LocalSGD(RowOptimizer, keras.optimizers.SGD):
    """SGD on each replica by itself; models are averaged now and then.

    Use it to save network traffic with several devices. It is Algorithm 2 of
    the RP paper, in the stages of Algorithm 1. Under a `tf.distribute` strategy
    with K replicas, each steps along the gradient of its own part of the batch:

        z <- z - eta_s (g + (z - z_0) / gamma)

    Every I_s steps, and at the end of a stage, the K models are replaced by
    their mean. z_0 is the mean at the start of the stage. With `interval=1` it
    is synchronous SGD, except for the momentum of rows that only some of the
    replicas touched. It works with `fit` under `MirroredStrategy`, and under
    `MultiWorkerMirroredStrategy` in `strategy.run(model.train_step, ...)`.
    `docs/local_sgd.md` shows the accuracy for several intervals.

    Row gradients (`tf.IndexedSlices`) update only their rows, as in `LazySGD`,
    and z_0 pulls only these rows. An average exchanges the rows that some
    replica touched since the last one, and one float for each row of the
    matrix. Momentum is averaged with the model (Yu et al., 2019), which doubles
    the traffic. Clipping, weight decay, samples and indexes are local.

    Between averages the replicas differ. `fit` averages at its end. For
    evaluations and files during `fit`, put `AverageReplicas()` first in the
    list of callbacks. In a training loop of your own, call `average()`. Saving
    a model whose replicas differ raises a `ValueError`.

    Args:
        learning_rate: float or Keras schedule, for one stage without end.
            Defaults to 0.01.
        interval: int >= 1, steps between averages, for one stage without end.
            Defaults to 1.
        stages: list of `tfxclass.optimizers.Stage` or of `(learning_rate,
            steps, interval)`, instead of the arguments above. See
            `tfxclass.optimizers.growing_stages`. The last stage is repeated,
            with a new z_0.
        gamma: float > 0, of the proximal term. None (default) or infinity leave
            the term out. It needs `stages`, and a copy of the model on each
            replica.
        **kwargs: as for `LazySGD`, without `slot_dtype` and
            `gradient_accumulation_steps`.

    Example:

    ```python
    stages = tfxclass.optimizers.growing_stages(0.1, 1000, 4, num_stages=5)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        head = tfxclass.layers.FullSoftmax(100)
        model = keras.Sequential([keras.Input([20]), head])
        optimizer = tfxclass.optimizers.LocalSGD(stages=stages, gamma=100.0)
        model.compile(optimizer, loss=head.loss)
    ```

    References:

    - Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
      2020 ("RP")
    - [Stich, 2019](https://arxiv.org/abs/1805.09767)
    - [Yu et al., 2019](https://arxiv.org/abs/1905.03817) (momentum)
    """

    def __init__(
        self,
        learning_rate: LearningRate | None = None,
        interval: int | None = None,
        stages: Sequence[Stage | tuple[float, int, int]] | None = None,
        gamma: float | None = None,
        **kwargs: Any,
    ) -> None:
        _check_arguments(learning_rate, interval, stages, gamma, kwargs)
        if stages is not None:
            stages = check_stages(stages)
            learning_rate = schedule = StageSchedule(stages)
        else:
            schedule = StageSchedule([Stage(0.0, _FOR_EVER, interval or 1)])
            learning_rate = 0.01 if learning_rate is None else learning_rate
        super().__init__(learning_rate, **kwargs)
        self.interval, self.stages, self.gamma = interval, stages, gamma
        self._pulls = gamma is not None and gamma < math.inf
        self._schedule = schedule
        self._averages: ReplicaAverages | None = None

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        self._check_variables(variables)
        super().build(variables)
        with eager_variables():
            if self._is_replicated:
                self._averages = ReplicaAverages(self, self._schedule)
            if self._pulls:
                starts = self.add_optimizer_variables(variables, "stage_start")
                self._stage_starts = starts

    @property
    def differs_between_replicas(self) -> bool:
        """Whether replicas are no one model between averages."""
        return self._averages is not None and max(self._schedule.intervals) > 1

    def _check_variables(self, variables):
        if not self._is_replicated:
            return
        if tf.inside_function():
            raise ValueError(
                "`LocalSGD` must be built before a step is traced, as `fit` "
                "does. Fix: in `strategy.scope()`, model.optimizer.build("
                "model.trainable_variables). Received: a `tf.function`"
            )
        for variable in variables:
            if shards_of(variable) is not None:
                raise ValueError(
                    "`LocalSGD` averages the rows of all replicas, but "
                    f"{variable.path!r} is in shards: row i is another class "
                    "on each. Fix: tfxclass.optimizers.LazySGD, or a head that "
                    "is the same on all replicas, e.g. a SampledSoftmax"
                )

    def _rule_of(self, variable, matrix):
        return rules.SGD(self.momentum, self.nesterov)

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        strategy = tf.distribute.get_strategy()
        if strategy is not self._strategy:
            raise ValueError(
                "`LocalSGD` must be made in the `strategy.scope()` that the "
                "model is trained in. Received: one made under "
                f"{type(self._strategy).__name__}, in a step under "
                f"{type(strategy).__name__}"
            )
        return super().apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        if self._pulls:
            merge_call(self._start_stage, self._strategy)
        # Keras divides the loss by their number, for a sum of gradients.
        num_replicas = self._strategy.num_replicas_in_sync
        values = [row_gradients.values_of(g) * num_replicas for g in grads]
        grads = list(map(row_gradients.with_values, grads, values))
        super()._on_apply(grads, variables)
        if self._averages is not None:
            merge_call(self._averages.average_if_due, self._strategy)

    def _on_all_reduce(self, pairs):
        """Each replica keeps its own gradient."""
        return pairs

    def _start_stage(self, strategy):
        def copy():
            for start, variable in zip(self._stage_starts, self._built_for):
                strategy.extended.update(
                    tf_variable(start),
                    lambda x, now: x.assign(tf.cast(now, x.dtype)),
                    args=(tf_variable(variable),),
                )

        tf.cond(self._schedule.is_start(self.iterations), copy, lambda: None)

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: Any
    ) -> None:
        if self._pulls:
            gradient = self._pulled(gradient, variable)
        if self._averages is not None:
            self._averages.mark(self._index_of(variable), gradient)
        super().update_step(gradient, variable, learning_rate)

    def _pulled(self, gradient, variable):
        """The gradient and the proximal term's, of the rows of the step."""
        index = self._index_of(variable)
        # Not gathers from variables: they would make each read a copy.
        here = tf.convert_to_tensor(variable)
        start = tf.convert_to_tensor(tf_variable(self._stage_starts[index]))
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient + (tf.cast(here, start.dtype) - start) / self.gamma
        gradient = row_gradients.summed_rows(gradient)
        ids = gradient.indices
        rows = tf.cast(tf.gather(here, ids), start.dtype)
        pull = (rows - tf.gather(start, ids)) / self.gamma
        return tf.IndexedSlices(gradient.values + pull, ids)

    def average(self) -> None:
        """Replaces each replica's model and momentum by their means.

        Call it outside of `strategy.run`, on every worker. Where replicas are
        equal, it does nothing.
        """
        if self._averages is not None:
            self._averages.average()

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        # Keras' hook at the end of `fit`.
        super().finalize_variable_values(var_list)
        self.average()

    def save_own_variables(self, store: Store) -> None:
        if self._averages is not None and self._averages.replicas_differ():
            raise ValueError(
                "The model cannot be saved: its replicas differ. Fix: put "
                "`AverageReplicas()` of tfxclass.optimizers first in the "
                "callbacks of `fit`, and save at the end of an epoch; in a "
                "loop of your own, call `optimizer.average()` before. "
                f"Received: iterations={int(self.iterations.numpy())}"
            )
        super().save_own_variables(store)

    def load_own_variables(self, store: Store) -> None:
        super().load_own_variables(store)
        if self._averages is not None:
            self._averages.note_equal()

    def get_config(self) -> Config:
        own: Config = {"interval": self.interval, "gamma": self.gamma}
        own["stages"] = self.stages
        if self.stages is not None:
            own["stages"] = [list(stage) for stage in self.stages]
            own["learning_rate"] = None
        return {**super().get_config(), **own}


def _check_arguments(learning_rate, interval, stages, gamma, options):
    for name in ("slot_dtype", "use_ema", "gradient_accumulation_steps"):
        if options.get(name):
            raise ValueError(
                f"`LocalSGD` has no `{name}`. Received: {name}={options[name]}"
            )
    check_optional_int("interval", interval)
    given = {"learning_rate": learning_rate, "interval": interval}
    for name, value in given.items():
        if stages is not None and value is not None:
            raise ValueError(
                f"`{name}` must be left out with `stages`, which have their "
                f"own. Received: {name}={value} and stages={stages}"
            )
    if gamma is not None:
        check_number("gamma", gamma, lambda x: x > 0, "> 0 or None")
    if stages is None and gamma not in (None, math.inf):
        raise ValueError(
            "`gamma` needs `stages`, to whose first models it pulls. Fix: "
            "stages=[(learning_rate, steps, interval)]. Received: "
            f"gamma={gamma}"
        )


class AverageReplicas(keras.callbacks.Callback):
    """Averages the replicas of `LocalSGD` before evaluations, after epochs.

    Put it first in the list of callbacks, so that later callbacks save and
    compare the mean.

    Example:

    ```python
    callbacks = [
        tfxclass.optimizers.AverageReplicas(),
        keras.callbacks.ModelCheckpoint("model.keras"),
    ]
    ```
    """

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        if not hasattr(model.optimizer, "average"):
            raise ValueError(
                "`AverageReplicas` needs a model compiled with `LocalSGD`. "
                f"Received: {model.optimizer}"
            )

    def on_test_begin(self, logs: Config | None = None) -> None:
        self.model.optimizer.average()

    def on_epoch_end(self, epoch: int, logs: Config | None = None) -> None:
        self.model.optimizer.average()
