"""Rows of a pass that are kept for a line search, and not summed."""

import numpy as np
import tensorflow as tf

from tfxclass.core.targets import uniform_targets
from tfxclass.recovery.rows import Rows
from tfxclass.recovery.rows import joined

#: Most of all rows that are kept.
SHARE = 0.1


class HeldOutRows:
    """A uniform sample of at most a tenth of the rows seen so far.

    Each row has a random key in [0, 1), from the seed and its place; the rows
    with the least keys are kept: at most `most`, and none from 0.1 on. So the
    sample does not depend on how the data are sorted, nor on a restart. Between
    two calls of `surplus` there are up to twice as many.

    Args:
        most: int, rows.
        seed: int.
    """

    def __init__(self, most: int, seed: int = 0) -> None:
        self.most = most
        self.seed = seed
        self._kept = []
        self._keys = np.zeros(0)
        self._bound = SHARE

    def __len__(self):
        return len(self._keys)

    def keys(self, count: int, number: int) -> np.ndarray:
        """Random keys of `count` examples of batch `number`, float64."""
        return np.random.default_rng([self.seed, number]).random(count)

    def is_kept(self, keys: np.ndarray) -> np.ndarray:
        """Whether rows of these keys are to be kept, bool."""
        return keys < self._bound

    def keep(self, rows: Rows, keys: np.ndarray) -> None:
        """Takes rows with their keys."""
        if len(keys):
            self._kept.append(rows)
            self._keys = np.concatenate([self._keys, keys])

    def merge(self, other: "HeldOutRows") -> None:
        """Takes the rows of `other`."""
        self._kept += other._kept
        self._keys = np.concatenate([self._keys, other._keys])
        self._bound = min(self._bound, other._bound)

    def rows(self) -> Rows | None:
        """All that are kept, or None."""
        if len(self._kept) > 1:
            self._kept = [joined(self._kept)]
        return self._kept[0] if self._kept else None

    def surplus(self) -> Rows | None:
        """Returns the examples that are too many, for the sums, or None."""
        if len(self) <= self.most:
            return None
        rows, order = self.rows(), np.argsort(self._keys, kind="stable")
        first, rest = order[: self.most], order[self.most :]
        self._bound = self._keys[rest[0]]
        self._kept, self._keys = [rows.at(first)], self._keys[first]
        return rows.at(rest)

    def state(self) -> dict[str, np.ndarray]:
        """All of the state, a dict of arrays."""
        state = {"held_keys": self._keys, "held_bound": np.array(self._bound)}
        rows = self.rows()
        if rows is not None:
            state["held_features"] = rows.features.numpy()
            state["held_ids"] = rows.targets.ids.numpy()
            state["held_weights"] = rows.weights.numpy()
        return state

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restores what `state` returned."""
        self._keys = state["held_keys"]
        self._bound = float(state["held_bound"])
        self._kept = []
        if len(self._keys):
            rows = Rows(
                tf.constant(state["held_features"]),
                uniform_targets(tf.constant(state["held_ids"])),
                tf.constant(state["held_weights"]),
            )
            self._kept = [rows]
