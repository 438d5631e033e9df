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
        self._dataset = dataset
        if not callable(dataset):
            self._dataset = self._distribute(dataset)
        self._passes = 0

    def epoch(self, number: int, skip: int = 0) -> Iterator[Any]:
        """Iterator over an epoch, behind its first `skip` batches."""
        if callable(self._dataset):
            self._iterator = iter(self._distribute(self._dataset(number)))
        # A seeded shuffle gives each iterator its own order.
        while not callable(self._dataset) and self._passes <= number:
            self._iterator = iter(self._dataset)
            self._passes += 1
        for _ in range(skip):
            next(self._iterator)
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
        #: Whether this process reports and writes files.
        self.is_chief = self.strategy.extended.should_checkpoint
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


def _ran(function, iterator):
    try:
        function(iterator)
    except tf.errors.OutOfRangeError:
        return False
    return True
