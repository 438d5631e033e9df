"""Steps of all replicas together: one device, mirrored, several workers."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfxclass.types import Data


class Batches:
    """Global batches of each epoch, distributed over the replicas."""

    def __init__(self, strategy: tf.distribute.Strategy, dataset: Data) -> None:
        self._distribute = strategy.experimental_distribute_dataset
        self._make = dataset if callable(dataset) else None
        self._distributed = None if self._make else self._distribute(dataset)
        self._iterator = None
        self._passes = 0

    def epoch(self, number: int, skip: int = 0) -> Iterator[Any]:
        """Iterator over an epoch, behind its first `skip` batches."""
        if self._make is not None:
            iterator = iter(self._distribute(self._make(number)))
        else:
            iterator = self._pass(number)
        for _ in range(skip):
            next(iterator)
        return iterator

    def _pass(self, number):
        """Iterator `number`: a seeded shuffle gives each its own order."""
        while self._passes <= number:
            self._iterator = iter(self._distributed)
            self._passes += 1
        return self._iterator


class SynchronousSteps:
    """Runs `model.train_step` and `test_step` under `model`'s strategy."""

    # What TensorFlow raises in the others when a worker is gone.
    lost_errors = (
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.UnavailableError,
    )
    lost_message = "A worker was lost, or did not come to a step in time."

    def __init__(self, model: keras.Model) -> None:
        self.model, self.strategy = model, model.distribute_strategy
        self._train = self._function(model.train_step)
        self._test = self._function(model.test_step)

    def _function(self, step):
        def of_replica(batch):
            # A seed, which needs no batch, is not drawn where the data end.
            parts = tf.nest.flatten(batch, expand_composites=True)
            with tf.control_dependencies([x for x in parts if x is not None]):
                step(batch)

        @tf.function(reduce_retracing=True)
        def run(iterator):
            self.strategy.run(of_replica, args=(next(iterator),))

        return run

    def batches(self, dataset: Data) -> Batches:
        return Batches(self.strategy, dataset)

    def evaluation(self, dataset: Data) -> Callable[[int], Iterator[Any]]:
        """A function of the epoch that gives its batches."""
        return self.batches(dataset).epoch

    def build(self, batches: Any) -> None:
        """Makes all variables, metrics included, without a step."""
        self._train.get_concrete_function(batches.epoch(0))

    def train(self, iterator: Iterator[Any]) -> bool:
        """A training step; False where the data have ended."""
        return _ran(self._train, iterator)

    def test(self, iterator: Iterator[Any]) -> bool:
        """A step of evaluation; False where the data have ended."""
        return _ran(self._test, iterator)

    def wait(self) -> None:
        """Steps have ended when they return."""

    def finish(self) -> None:
        """Brings replicas together that went on by themselves (`LocalSGD`)."""
        if hasattr(self.model.optimizer, "average"):
            self.model.optimizer.average()

    @property
    def is_chief(self) -> bool:
        """Whether this process reports and writes files."""
        resolver = self.strategy.cluster_resolver
        if resolver is None or not resolver.task_type:
            return True
        if resolver.cluster_spec().as_dict().get("chief"):
            return resolver.task_type == "chief"
        return resolver.task_type == "worker" and resolver.task_id == 0


def _ran(function, iterator):
    try:
        function(iterator)
    except tf.errors.OutOfRangeError:
        return False
    return True
