"""Changes of a head's classes."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class ClassUpdate(NamedTuple):
    """A change of a head's classes: which are kept, new or removed.

    Attributes:
        num_classes: int, after it.
        added: int64 `[n]`, the new classes, rising: removed ids first.
        removed: int64 `[m]`, those that are removed now, rising.
        names: list of str, of the new classes, or None.
        counts: int64 `[n]`, rows of each new class, or None.
        places: int64 `[n]`, an old class near each new one, or None.
    """

    num_classes: int
    added: np.ndarray
    removed: np.ndarray
    names: Sequence[str] | None = None
    counts: np.ndarray | None = None
    places: np.ndarray | None = None

    def resize(self, values: ArrayLike, of_new: Any) -> np.ndarray:
        """Numbers `[num_classes]`: `values` of the old, `of_new` of the new."""
        values = np.asarray(values)
        grown = np.zeros(self.num_classes, values.dtype)
        grown[: len(values)] = values
        grown[self.added] = of_new
        return grown

    def resize_counts(self, counts: np.ndarray) -> np.ndarray:
        """How often each class occurs; without data, as the rarest."""
        least = counts[counts > 0].min() if np.any(counts > 0) else 1
        return self.resize(
            counts, least if self.counts is None else self.counts
        )
