"""The epochs of a `fit`: callbacks, validation and states."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfxclass.distribute.asynchronous import AsynchronousSteps
from tfxclass.distribute.checkpoint import Checkpoint
from tfxclass.distribute.synchronous import SynchronousSteps
from tfxclass.types import Data


@dataclasses.dataclass
class Job:
    """The epochs of a `fit`, with its arguments.

    Attributes:
        is_continued: whether an epoch goes on where the last one ended, as in
            Keras' `fit` with `steps_per_epoch`, or is a pass over the data.
        validation: `(batches_of, steps)`, a function of the epoch and an int
            or None; or None.
        number: int, of steps since the beginning.
    """

    model: keras.Model
    steps: SynchronousSteps | AsynchronousSteps
    steps_per_epoch: int | None
    log_interval: int
    is_continued: bool
    validation: tuple[Any, int | None] | None
    checkpoint: Checkpoint | None
    checkpoint_interval: int | None
    number: int = 0

    def run(
        self,
        dataset: Data,
        epochs: int,
        callbacks: Sequence[keras.callbacks.Callback] | None,
        verbose: str | int,
    ) -> keras.callbacks.History:
        self.batches = self.steps.batches(dataset)
        self.steps.build(self.batches)
        self._go_to(0, 0)
        first = step = 0
        restored = self.checkpoint and self.checkpoint.restore()
        if restored:
            self.number = restored["number"]
            self._go_to(restored["pass"], restored["batch"])
            first, step = restored["epoch"], restored["step"]
        if verbose == "auto":
            verbose = int(self.steps.is_chief)
        self.callbacks = keras.callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            model=self.model,
            verbose=verbose,
            epochs=epochs,
            steps=self.steps_per_epoch or known_length(dataset),
        )
        self.model.stop_training = False
        self.callbacks.on_train_begin()
        if restored:
            self.model.history.history = restored["history"]
            self.model.history.epoch = restored["epochs"]
        logs = {}
        for epoch in range(first, epochs):
            logs = self._epoch(epoch, step)
            step = 0
            if self.model.stop_training:
                break
        # Not in the states: a job that goes on needs the raw weights.
        self.model.optimizer.finalize_variable_values(
            self.model.trainable_weights
        )
        self.callbacks.on_train_end(logs)
        return self.model.history

    def _go_to(self, number, batch):
        """The next batch is `batch` of pass `number` over the data."""
        self.pass_number, self.batch = number, batch
        self._iterator = None

    def _train(self):
        """A training step; False where the data, or a pass, ended."""
        while True:
            if self._iterator is None:
                place = self.pass_number, self.batch
                self._iterator = self.batches.epoch(*place)
            if self.steps.train(self._iterator):
                self.batch += 1
                return True
            if not self.is_continued or not self.batch:
                return False
            self._go_to(self.pass_number + 1, 0)

    def _epoch(self, epoch, step):
        if not step:
            self.model.reset_metrics()
        self.callbacks.on_epoch_begin(epoch)
        logs = {}
        while self._is_within(step) and not self.model.stop_training:
            self.callbacks.on_train_batch_begin(step)
            if not self._train():
                break
            step += 1
            self.number += 1
            if step % self.log_interval == 0:
                logs = self._logs()
            self.callbacks.on_train_batch_end(step - 1, logs)
            interval = self.checkpoint_interval
            if interval is not None and self.number % interval == 0:
                self._save(epoch, step)
        self.steps.finish()
        is_cut = self.model.stop_training and self._is_within(step)
        if self.checkpoint and is_cut:
            self._save(epoch, step)
        logs = {**self._logs(), **self._validate(epoch)}
        self.callbacks.on_epoch_end(epoch, logs)
        if not is_cut:
            if not self.is_continued:
                self._go_to(self.pass_number + 1, 0)
            if self.checkpoint:
                self._save(epoch + 1, 0)
        return logs

    def _is_within(self, step):
        # A job that goes on may have been given fewer than it has taken.
        return self.steps_per_epoch is None or step < self.steps_per_epoch

    def _validate(self, epoch):
        if self.validation is None:
            return {}
        batches_of, most = self.validation
        self.model.reset_metrics()
        self.callbacks.on_test_begin()
        iterator, step = batches_of(epoch), 0
        while step != most:
            self.callbacks.on_test_batch_begin(step)
            if not self.steps.test(iterator):
                break
            self.callbacks.on_test_batch_end(step)
            step += 1
        logs = self._logs()
        self.callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}

    def _logs(self):
        """The metrics of finished steps: floats, or lists of them."""
        self.steps.wait()
        result = self.model.get_metrics_result()
        return {name: np.asarray(v).tolist() for name, v in result.items()}

    def _save(self, epoch, step):
        self.steps.finish()
        position = {
            "epoch": epoch,
            "step": step,
            "pass": self.pass_number,
            "batch": self.batch,
            "number": self.number,
            "history": self.model.history.history,
            "epochs": self.model.history.epoch,
        }
        self.checkpoint.save(self.number, position)


def known_length(dataset: Data) -> int | None:
    """Batches of an epoch, or None where that is not known."""
    if callable(dataset):
        return None
    length = int(dataset.cardinality())
    return length if length >= 0 else None
