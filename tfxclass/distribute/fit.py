"""`fit` for every strategy of `tf.distribute`."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.distribute.agreement import check_strategy
from tfxclass.distribute.agreement import check_workers_agree
from tfxclass.distribute.asynchronous import AsynchronousSteps
from tfxclass.distribute.checkpoint import Checkpoint
from tfxclass.distribute.synchronous import SynchronousSteps


def fit(
    model,
    dataset,
    epochs=1,
    steps_per_epoch=None,
    validation_data=None,
    validation_steps=None,
    callbacks=None,
    verbose="auto",
    checkpoint=None,
    checkpoint_interval=None,
    log_interval=10,
    max_staleness=64,
):
    """Trains a compiled Keras model under the strategy it was made in.

    Keras' own `fit` fails under `MultiWorkerMirroredStrategy` (keras #20585)
    and `ParameterServerStrategy` (keras #18624).

    With `MultiWorkerMirroredStrategy` every worker calls this with the same
    arguments; workers read their part of the data (`tf.data`'s
    auto-sharding), and a batch is a global one. A job that is started again
    with the same `checkpoint` goes on where the last state was written, bit
    for bit, if the data come in the same order: shuffle with a seed, and give
    `dataset` and `validation_data` shuffles of their own.

    With `ParameterServerStrategy` the coordinator calls this. The class
    matrix stays in the memory of the servers, whose processes have to import
    tfxclass (its ops run there). With a head that has a sampler, and with a
    sampled `ShardedSoftmax`, a step fetches the active rows and sends their
    gradients back; the paths of a `HierarchicalSoftmax` are computed on the
    server of its rows. Each step of another head sends whole matrices.
    Evaluation and `top_k` leave the matrix on its server, but for heads with
    several of different width.

    Workers take their steps asynchronously, each on every n-th batch of
    `dataset`, n workers; one that is lost is replaced by the others. `logs`
    have the staleness: how many updates of others came between a step's
    reading of the weights and its own update.

    Args:
        model: compiled `keras.Model`, made within `strategy.scope()`.
        dataset: `tf.data.Dataset` of `(x, y)` in global batches, or a function
            that takes the number of an epoch and returns one.
        epochs: int, the number of the last epoch.
        steps_per_epoch: int, or None for all of the data.
        validation_data: `tf.data.Dataset`, evaluated after each epoch.
        validation_steps: int, or None for all of it.
        callbacks: list of `keras.callbacks.Callback`. They run in every
            worker; those that write files belong in the first one's alone.
        verbose: 0, 1 (progress bar) or 2 (a line an epoch). `"auto"` is 1 in
            the first worker and 0 in the others.
        checkpoint: str, folder that all workers see, or None.
        checkpoint_interval: int, steps between two states; one is written at
            the end of each epoch too.
        log_interval: int, steps between two readings of the metrics, for
            which the workers have to meet.
        max_staleness: int, steps of a round with parameter servers: the
            coordinator waits for all of them before it schedules more, so that
            the staleness of a step is less.

    Returns:
        `keras.callbacks.History`, of the epochs since the first start.

    Raises:
        ValueError: an argument out of range, a model made outside of the
            strategy, or workers whose models differ.
        RuntimeError: a worker, or a parameter server, was lost.
    """
    check_positive_int("epochs", epochs)
    check_positive_int("log_interval", log_interval)
    check_positive_int("max_staleness", max_staleness)
    _check(model, steps_per_epoch, validation_steps)
    if checkpoint_interval is not None:
        check_positive_int("checkpoint_interval", checkpoint_interval)
        if checkpoint is None:
            raise ValueError(
                "`checkpoint_interval` needs `checkpoint`, a folder. "
                f"Received: checkpoint_interval={checkpoint_interval}"
            )
    if isinstance(
        model.distribute_strategy, tf.distribute.ParameterServerStrategy
    ):
        steps = AsynchronousSteps(model, max_staleness)
        steps_per_epoch = steps_per_epoch or _known_length(dataset)
    else:
        steps = SynchronousSteps(model)
    _build(model, dataset)
    job = _Job(model, steps, steps_per_epoch, log_interval)
    if checkpoint is not None:
        job.checkpoint = Checkpoint(checkpoint, model, steps.is_chief)
        job.checkpoint_interval = checkpoint_interval
    if validation_data is not None:
        batches = steps.evaluation_batches(validation_data)
        job.validation = batches, validation_steps
    with steps.failures_told():
        check_workers_agree(model)
        return job.run(dataset, epochs, callbacks, verbose)


class _Job:
    """The epochs of a `fit`."""

    checkpoint = None
    checkpoint_interval = None
    validation = None

    def __init__(self, model, steps, steps_per_epoch, log_interval):
        self.model = model
        self.steps = steps
        self.steps_per_epoch = steps_per_epoch
        self.log_interval = log_interval
        self.number = 0  # of steps since the beginning

    def run(self, dataset, epochs, callbacks, verbose):
        batches = self.steps.batches(dataset)
        self.steps.build(batches)
        first, skip = self._restore()
        self.callbacks = self._callbacks(callbacks, verbose, epochs, dataset)
        self.model.stop_training = False
        self.callbacks.on_train_begin()
        self._restore_history()
        logs = {}
        for epoch in range(first, epochs):
            logs = self._epoch(epoch, batches, skip)
            skip = 0
            if self.model.stop_training:
                break
        self.callbacks.on_train_end(logs)
        return self.model.history

    def _callbacks(self, callbacks, verbose, epochs, dataset):
        if verbose == "auto":
            verbose = int(self.steps.is_chief)
        return keras.callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            model=self.model,
            verbose=verbose,
            epochs=epochs,
            steps=self.steps_per_epoch or _length(dataset),
        )

    def _epoch(self, epoch, batches, skip):
        if not skip:
            self.steps.reset()
        self.callbacks.on_epoch_begin(epoch)
        iterator = batches.epoch(epoch, skip)
        step, logs = skip, {}
        while step != self.steps_per_epoch and not self.model.stop_training:
            self.callbacks.on_train_batch_begin(step)
            if not self.steps.train(iterator):
                break
            step += 1
            self.number += 1
            if step % self.log_interval == 0:
                logs = self.steps.logs()
            self.callbacks.on_train_batch_end(step - 1, logs)
            self._save_in_epoch(epoch, step)
        self.steps.finish()
        logs = {**self.steps.logs(), **self._validate(epoch)}
        self.callbacks.on_epoch_end(epoch, logs)
        if self.checkpoint:
            self._save(epoch + 1, 0)
        return logs

    def _validate(self, epoch):
        if self.validation is None:
            return {}
        batches, most = self.validation
        self.steps.reset()
        self.callbacks.on_test_begin()
        iterator, step = batches.epoch(epoch), 0
        while step != most:
            self.callbacks.on_test_batch_begin(step)
            if not self.steps.test(iterator):
                break
            self.callbacks.on_test_batch_end(step)
            step += 1
        logs = self.steps.logs()
        self.callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}

    def _save_in_epoch(self, epoch, step):
        interval = self.checkpoint_interval
        if interval is not None and self.number % interval == 0:
            self._save(epoch, step)

    def _save(self, epoch, step):
        self.steps.finish()
        position = {
            "epoch": epoch,
            "step": step,
            "number": self.number,
            "history": self.model.history.history,
            "epochs": self.model.history.epoch,
        }
        self.checkpoint.save(self.number, position)

    def _restore(self):
        """`(epoch, step)` to go on from."""
        self._restored = self.checkpoint and self.checkpoint.restore()
        if not self._restored:
            return 0, 0
        self.number = self._restored["number"]
        return self._restored["epoch"], self._restored["step"]

    def _restore_history(self):
        if self._restored:
            self.model.history.history = self._restored["history"]
            self.model.history.epoch = self._restored["epochs"]


def _length(dataset):
    """Batches of an epoch, or None where that is not known."""
    if callable(dataset):
        return None
    length = int(dataset.cardinality())
    return length if length >= 0 else None


def _known_length(dataset):
    length = _length(dataset)
    if length is None:
        raise ValueError(
            "`steps_per_epoch` is needed with a ParameterServerStrategy where "
            f"the number of batches is not known. Received: {dataset!r}"
        )
    return length


def _check(model, steps_per_epoch, validation_steps):
    if steps_per_epoch is not None:
        check_positive_int("steps_per_epoch", steps_per_epoch)
    if validation_steps is not None:
        check_positive_int("validation_steps", validation_steps)
    if not getattr(model, "compiled", False):
        raise ValueError(
            "`model` must be compiled, e.g. with loss=head.loss. "
            f"Received: {model!r}"
        )
    check_strategy(model)


def _build(model, dataset):
    """Builds a model that has not seen its inputs, and its optimizer."""
    with model.distribute_strategy.scope():
        if not model.built:
            dataset = dataset(0) if callable(dataset) else dataset
            inputs = dataset.element_spec[0]
            model.build(tf.nest.map_structure(lambda s: s.shape, inputs))
        model.optimizer.build(model.trainable_variables)
