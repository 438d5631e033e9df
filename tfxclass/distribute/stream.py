"""Where a job stands in its data."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any


class Stream:
    """One batch after the other, from the place where a job stands.

    Args:
        batches: object with `epoch(number, skip)`, an iterator over a pass.
        is_continued: whether an epoch goes on where the last one ended, and
            the data begin anew where they end, as in Keras' `fit` with
            `steps_per_epoch`; else an epoch is a pass.
    """

    def __init__(self, batches: Any, is_continued: bool) -> None:
        self._batches = batches
        self._is_continued = is_continued
        self.go_to(0, 0)

    def go_to(self, number: int, batch: int) -> None:
        """The next batch is `batch` of pass `number`."""
        self.number, self.batch = number, batch
        self._iterator = None

    def take(self, step: Callable[[Iterator[Any]], bool]) -> bool:
        """Calls `step(iterator)`; False where the data, or a pass, ended."""
        while not self._step(step):
            if not self._is_continued or not self.batch:
                return False
            self.go_to(self.number + 1, 0)
        self.batch += 1
        return True

    def _step(self, step):
        if self._iterator is None:
            self._iterator = self._batches.epoch(self.number, self.batch)
        return step(self._iterator)

    def end_epoch(self) -> None:
        if not self._is_continued:
            self.go_to(self.number + 1, 0)
