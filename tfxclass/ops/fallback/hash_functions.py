"""Hash functions of LSH in NumPy: custom_ops/core/hash_functions.h.

They have the op's distribution, from other random numbers. The hash family
"dwta" is refused.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.refused import refusal
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_finite
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import generator
from tfxclass.ops.fallback.registry import on_host

_MOST_CODE_BITS, _MOST_TABLES, _MOST_DRAWN = 30, 65_535, 1 << 31


class HashOptions(NamedTuple):
    """See `tfxclass.ops.lsh.hash_codes`; each function gives one bit."""

    num_hashes: int
    num_tables: int
    hash: str
    seed: int = 0

    def check(self, dim: int | None = None) -> None:
        """`InvalidInput` for codes or functions that are too large.

        Raises:
            NeedsCompiledOps: for the family "dwta".
        """
        if self.hash == "dwta":
            raise refusal('hash="dwta"')
        if self.num_tables > _MOST_TABLES or self.num_hashes > _MOST_CODE_BITS:
            raise InvalidInput(
                f"`num_hashes` must be at most {_MOST_CODE_BITS}, "
                f"`num_tables` at most {_MOST_TABLES}. Received: num_hashes="
                f"{self.num_hashes} and num_tables={self.num_tables}"
            )
        if self.num_hashes * self.num_tables * (dim or 1) > _MOST_DRAWN:
            raise InvalidInput(
                "Hash functions must take at most 2^31 numbers: `num_tables` "
                "times `num_hashes` times the width of the vectors. Received: "
                f"num_tables={self.num_tables}, num_hashes={self.num_hashes} "
                f"and a width of {dim}"
            )


def codes_of(vectors: np.ndarray, options: HashOptions) -> np.ndarray:
    """int32 `[num_tables, n]` of float32 `[n, dim]`."""
    options.check(vectors.shape[1])
    bits = (vectors @ _planes(vectors.shape[1], options).T) > 0
    # No -1: there may be no vectors.
    bits = bits.reshape(len(vectors), options.num_tables, options.num_hashes)
    code = np.zeros(bits.shape[:2], np.int64)
    for i in range(options.num_hashes):
        code = (code << 1) | bits[:, :, i]
    return np.ascontiguousarray(code.T.astype(np.int32))


def _planes(dim, options):
    """float32 [functions, dim]."""
    count = options.num_hashes * options.num_tables
    random = generator(options.seed, 1)
    if options.hash == "simhash":
        return random.standard_normal((count, dim), np.float32)
    planes = np.zeros((count, dim), np.float32)
    for plane in planes:
        chosen = random.choice(dim, (dim + 2) // 3, replace=False)
        plane[chosen] = random.choice([-1.0, 1.0], len(chosen))
    return planes


@fallback
def lsh_hash(
    vectors: Floats,
    seed: Ids,
    num_hashes: int,
    num_tables: int,
    hash: str = "simhash",
    bin_size: int = 8,
) -> tf.Tensor:
    """See `tfxclass.ops.lsh.hash_codes`."""
    del bin_size
    HashOptions(num_hashes, num_tables, hash).check()

    def run(vectors: Any, seed: Any) -> tuple[np.ndarray]:
        check_finite("vectors", vectors)
        options = HashOptions(num_hashes, num_tables, hash, seed)
        return (codes_of(vectors, options),)

    shape = [num_tables, vectors.shape[0]]
    return on_host(run, [tf.int32], [vectors, seed], [shape])[0]
