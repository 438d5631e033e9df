"""Requests that come at the same time run as one batch, padded."""

import collections
import threading
import time
import typing

import numpy as np

from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.errors import FAILED_PRECONDITION
from tfxclass_serve.errors import UNAVAILABLE
from tfxclass_serve.errors import invalid


class Batching(typing.NamedTuple):
    """Settings, named as in TensorFlow Serving.

    Attributes:
        allowed_batch_sizes: rising ints; the last is the greatest batch.
        timeout: seconds that a request waits for others.
        max_waiting: int, requests in the queue; more are refused.
    """

    allowed_batch_sizes: tuple
    timeout: float = 0.001
    max_waiting: int = 1_000


class _Task:
    def __init__(self, key, inputs, outputs):
        self.inputs = inputs
        self.size = len(next(iter(inputs.values())))
        shapes = tuple((k, x.shape[1:]) for k, x in sorted(inputs.items()))
        # Only tasks of one kind can be one batch.
        self.kind = key, shapes, outputs
        self.done = threading.Event()
        self.answers = None
        self.error = None


class Batcher:
    """Runs tasks in batches, in a thread of its own.

    Args:
        run: function of `(signature key, inputs, output names)`.
        settings: `Batching`.
    """

    def __init__(self, run, settings):
        self._run = run
        self._settings = settings
        self._tasks = collections.deque()
        self._changed = threading.Condition()
        self._is_open = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def run(self, key, inputs, outputs):
        """`run`'s answers for these inputs, whatever else is in the batch."""
        sizes = {len(x) if x.ndim else None for x in inputs.values()}
        if len(sizes) != 1 or None in sizes:
            raise invalid("Batching input tensors must have one size of batch.")
        task = _Task(key, inputs, outputs)
        most = self._settings.allowed_batch_sizes[-1]
        if task.size > most:
            raise invalid(
                f"Task size {task.size} is larger than maximum input batch "
                f"size {most}"
            )
        with self._changed:
            if len(self._tasks) >= self._settings.max_waiting:
                raise TensorFlowError(
                    UNAVAILABLE,
                    "The batch scheduling queue to which this task was "
                    "submitted is full",
                )
            self._tasks.append(task)
            self._changed.notify()
        task.done.wait()
        if task.error is not None:
            raise task.error
        return task.answers

    def close(self):
        """Ends the thread, when the tasks that wait are done."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join()

    def _work(self):
        while True:
            tasks = self._next_batch()
            if not tasks:
                return
            try:
                self._run_tasks(tasks)
            except Exception as e:  # The caller raises it.
                for task in tasks:
                    task.error = e
            for task in tasks:
                task.done.set()

    def _next_batch(self):
        """Tasks of one kind, in order; none at the end."""
        with self._changed:
            while not self._tasks:
                if not self._is_open:
                    return []
                self._changed.wait()
            end = time.monotonic() + self._settings.timeout
            while self._is_open:
                left = end - time.monotonic()
                if left <= 0 or self._is_full():
                    break
                self._changed.wait(left)
            return self._take()

    def _is_full(self):
        waiting = sum(task.size for task in self._tasks)
        return waiting >= self._settings.allowed_batch_sizes[-1]

    def _take(self):
        room = self._settings.allowed_batch_sizes[-1]
        kind, taken, left = self._tasks[0].kind, [], []
        for task in self._tasks:
            if task.kind == kind and task.size <= room:
                taken.append(task)
                room -= task.size
            else:
                left.append(task)
        self._tasks = collections.deque(left)
        return taken

    def _run_tasks(self, tasks):
        if len(tasks) == 1:
            self._run_one(tasks[0])
            return
        try:
            self._run_together(tasks)
        except TensorFlowError:
            # A bad request fails alone.
            for task in tasks:
                try:
                    self._run_one(task)
                except TensorFlowError as e:
                    task.error = e

    def _run_one(self, task):
        self._run_together([task])

    def _run_together(self, tasks):
        key, _, outputs = tasks[0].kind
        size = sum(task.size for task in tasks)
        allowed = self._settings.allowed_batch_sizes
        padding = min(x for x in allowed if x >= size) - size if size else 0
        inputs = {}
        for name, first in tasks[0].inputs.items():
            parts = [task.inputs[name] for task in tasks]
            # Rows that are valid, whatever the model.
            row = next((x[:1] for x in parts if len(x)), first[:0])
            inputs[name] = np.concatenate(parts + [row] * padding)
        answers = self._run(key, inputs, outputs)
        for name, answer in answers.items():
            if answer.ndim == 0 or len(answer) != size + padding:
                raise TensorFlowError(
                    FAILED_PRECONDITION,
                    f"Batched output tensor {name!r} must have a row for each "
                    f"of the {size + padding} rows of the inputs. Received: "
                    f"shape {answer.shape}.",
                )
        begin = 0
        for task in tasks:
            end = begin + task.size
            task.answers = {k: x[begin:end] for k, x in answers.items()}
            begin = end
