"""What a head says of a weight before it is made."""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np


class WeightSpec(NamedTuple):
    """A weight of a head.

    Attributes:
        name: str.
        shape: tuple of ints.
        initializer: Keras initializer, or its name.
        dtype: str.
        trainable: bool.
        is_rows: bool, whether steps gather its rows: they may then lie on the
            host or on a server.
    """

    name: str
    shape: tuple
    initializer: Any
    dtype: str = "float32"
    trainable: bool = True
    is_rows: bool = True

    @property
    def size(self) -> int:
        """How many numbers, int."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        """int."""
        return self.size * np.dtype(self.dtype).itemsize


def random_projection(
    dim: int, width: int, stddev: float, seed: int | None
) -> WeightSpec:
    """`WeightSpec` of a fixed Gaussian matrix `[dim, width]`."""
    initializer = keras.initializers.RandomNormal(stddev=stddev, seed=seed)
    return WeightSpec(
        "projection",
        (dim, width),
        initializer,
        trainable=False,
        is_rows=False,
    )
