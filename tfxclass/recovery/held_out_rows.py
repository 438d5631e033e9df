"""Rows of a pass that are kept for a line search, and not summed."""

from typing import Any

import numpy as np

from tfxclass.recovery.rows import Rows
from tfxclass.recovery.rows import joined

#: Most of all rows that are kept.
SHARE = 0.1


class HeldOutRows:
    """A uniform sample of at most a tenth of the rows seen so far.

    Each row has a random key in [0, 1), from the seed and its batch. The rows
    with the least keys are kept: at most `most`, and none from 0.1 on. So the
    sample does not depend on how the data are sorted.

    Args:
        most: int, rows.
        seed: int.
    """

    def __init__(self, most: int, seed: int = 0) -> None:
        self.most = most
        self._random = np.random.default_rng(seed)
        self._kept: list[Rows] = []
        self._keys = np.zeros(0)
        self._bound = SHARE

    def __len__(self):
        return len(self._keys)

    def keys(self, count: int) -> np.ndarray:
        """Random keys of the next `count` rows, float64."""
        return self._random.random(count)

    def is_kept(self, keys: np.ndarray) -> np.ndarray:
        """Whether rows of these keys are to be kept, bool."""
        return keys < self._bound

    def keep(self, rows: Rows, keys: np.ndarray) -> None:
        """Takes rows with their keys."""
        if len(keys):
            self._kept.append(rows)
            self._keys = np.concatenate([self._keys, keys])

    def rows(self) -> Any:
        """All that are kept, or None."""
        if len(self._kept) > 1:
            self._kept = [joined(self._kept)]
        return self._kept[0] if self._kept else None

    def surplus(self) -> Rows | None:
        """Returns the rows that are too many, for the sums, or None."""
        if len(self) <= self.most:
            return None
        rows, order = self.rows(), np.argsort(self._keys, kind="stable")
        first, rest = order[: self.most], order[self.most :]
        self._bound = self._keys[rest[0]]
        self._kept, self._keys = [rows.at(first)], self._keys[first]
        return rows.at(rest)
