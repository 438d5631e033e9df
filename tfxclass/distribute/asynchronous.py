"""Steps of workers on their own, with the variables on parameter servers."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfxclass.types import Data


def of_epoch(dataset: Data, number: int) -> tf.data.Dataset:
    """The data of an epoch, where `dataset` may be a function of it."""
    return dataset(number) if callable(dataset) else dataset


class WorkerBatches:
    """Every n-th batch of the data for each of n workers, again and again."""

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        dataset: Data,
    ) -> None:
        self._coordinator = coordinator
        self.dataset = dataset
        self._iterator: Any = None

    def epoch(self, number: int, skip: int = 0) -> Iterator[Any]:
        """Iterator for `schedule`. It has no place: nothing is skipped."""
        if callable(self.dataset):
            return self._iterator_of(lambda: self.dataset(number))
        if self._iterator is None:
            self._iterator = self._iterator_of(_recipe(self.dataset))
        return self._iterator

    def _iterator_of(self, make):
        devices = tf.config.list_logical_devices("CPU")
        workers = sum("/job:worker/" in device.name for device in devices)
        coordinator = tf.distribute.coordinator

        def of_worker():
            index = coordinator.experimental_get_current_worker_index()
            return make().repeat().shard(workers, index)

        return iter(self._coordinator.create_per_worker_dataset(of_worker))


def _recipe(dataset):
    """A function that makes `dataset` anew, in another process as well."""
    # A tensor: as a constant it would be folded to what cannot travel.
    graph = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        external_state_policy=1,
        strip_device_assignment=True,
    )

    def make():
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
        spec = dataset.element_spec
        return tf.data.experimental.from_variant(variant, spec)

    return make


class AsynchronousSteps:
    """Schedules `model.train_step` on the workers.

    Steps are scheduled in rounds of `max_staleness`, each waited for. Another
    worker takes the step that a lost one left.
    """

    is_chief = True
    #: What TensorFlow raises for a lost process, and what to say of it.
    lost_errors = (tf.errors.UnavailableError,)
    lost_message = "A parameter server was lost, and the variables on it."

    def __init__(self, model: keras.Model, max_staleness: int) -> None:
        self.model, self.max_staleness = model, max_staleness
        strategy = model.distribute_strategy
        coordinator = tf.distribute.coordinator
        self.coordinator = coordinator.ClusterCoordinator(strategy)
        self._num_scheduled = 0

        # Steps return nothing: TensorFlow copies what a step returns in the
        # thread of its worker, and two copies at once may be a SIGSEGV.
        @tf.function
        def train(iterator):
            strategy.run(model.train_step, args=(next(iterator),))

        @tf.function(reduce_retracing=True)
        def test(batch):
            strategy.run(model.test_step, args=(batch,))

        self._train, self._test = train, test

    def batches(self, dataset: Data) -> WorkerBatches:
        return WorkerBatches(self.coordinator, dataset)

    def evaluation(self, dataset: Data) -> Callable[[int], Iterator[Any]]:
        """The coordinator's batches of an epoch, each one once."""
        return lambda number: iter(of_epoch(dataset, number))

    def build(self, batches: Any) -> None:
        """Makes all variables, metrics included, without a step."""
        with self.model.distribute_strategy.scope():
            spec = of_epoch(batches.dataset, 0).element_spec
            self._test.get_concrete_function(spec)
        # Keras reads a counter, adds, and writes: what other workers count in
        # between would be lost.
        steps = self.model.optimizer.iterations
        for counter in [steps, *self.model.metrics_variables]:
            counter.assign_add = counter.value.assign_add

    def train(self, iterator: Iterator[Any]) -> bool:
        self.coordinator.schedule(self._train, args=(iterator,))
        self._num_scheduled += 1
        if self._num_scheduled >= self.max_staleness:
            self.wait()
        return True

    def test(self, iterator: Iterator[Any]) -> bool:
        batch = next(iterator, None)
        if batch is None:
            self.wait()
            return False
        self.coordinator.schedule(self._test, args=(batch,))
        return True

    def wait(self) -> None:
        """Waits for the steps under way."""
        self.coordinator.join()
        self._num_scheduled = 0

    finish = wait
