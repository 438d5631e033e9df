"""Second moments of features, from one pass: S = X^T X."""

import numpy as np
import tensorflow as tf

# From this width on, S is kept in diagonal blocks of at most this many.
WIDE, BLOCK = 2048, 1024


class FeatureMoments:
    """The sum of `w x x^T` over rows: whole, or in diagonal blocks.

    Features of 2,048 dimensions and more have blocks of at most 1,024, as
    block-diagonal preconditioners of second-order optimizers: memory and the
    time of an inverse stay `dim x 1,024` and `dim x 1,024^2`.

    Args:
        dim: int, width of the features.

    Attributes:
        blocks: list of float64 `[width, width]`, in the order of the features.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        ends = block_ends(dim)
        self._ranges = list(zip([0, *ends[:-1]], ends))
        self.blocks = [np.zeros((b - a, b - a)) for a, b in self._ranges]

    def add(self, features: tf.Tensor, weighted: tf.Tensor) -> None:
        """Adds `features^T weighted`; both float32 `[n, dim]`."""
        for block, (a, b) in zip(self.blocks, self._ranges):
            block += tf.matmul(
                features[:, a:b], weighted[:, a:b], transpose_a=True
            ).numpy()

    def mean_eigenvalue(self) -> float:
        """trace(S) / dim."""
        return float(sum(map(np.trace, self.blocks))) / self.dim

    def greatest_eigenvalue(self) -> float:
        """The greatest eigenvalue of S; for blocks an upper bound."""
        return float(sum(np.linalg.eigvalsh(x)[-1] for x in self.blocks))

    def inverse(self, ridge: float, count: float) -> list[np.ndarray]:
        """`(sum / count + ridge I)^-1`, float32, of each block."""
        return [
            np.linalg.inv(block / count + ridge * np.eye(len(block))).astype(
                np.float32
            )
            for block in self.blocks
        ]

    def times(self, rows: np.ndarray, inverse: list[np.ndarray]) -> np.ndarray:
        """`rows . inverse`, float32 `[n, dim]`."""
        parts = [
            tf.matmul(rows[:, a:b], part)
            for part, (a, b) in zip(inverse, self._ranges, strict=True)
        ]
        return tf.concat(parts, axis=1).numpy()


def block_ends(dim: int) -> list[int]:
    """The ends of the diagonal blocks of S, for `dim` features."""
    count = 1 if dim < WIDE else -(-dim // BLOCK)
    return [dim * (n + 1) // count for n in range(count)]
