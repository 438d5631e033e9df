"""Hash functions of LSH in NumPy: custom_ops/core/hash_functions.h.

Of the same law as those of the ops, from other random numbers.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import check_finite
from tfxclass.ops.stock.twin import generator
from tfxclass.ops.stock.twin import on_host
from tfxclass.ops.stock.twin import twin

_MOST_CODE_BITS, _MOST_TABLES, _MOST_DRAWN = 30, 65_535, 1 << 31
_BORROWS = 128
# Numbers of the coordinates of bins that are held at a time.
_BLOCK_NUMBERS = 1 << 23


class HashOptions(NamedTuple):
    """As of `tfxclass.ops.lsh.hash_codes`."""

    num_hashes: int
    num_tables: int
    hash: str = "dwta"
    bin_size: int = 8
    seed: int = 0

    @property
    def function_bits(self) -> int:
        """Bits of one value."""
        is_dwta = self.hash == "dwta"
        return (self.bin_size - 1).bit_length() if is_dwta else 1

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.function_bits * self.num_hashes

    def check(self, dim: int | None = None) -> None:
        """`InvalidInput` for codes or functions that are too large."""
        if self.num_tables > _MOST_TABLES or self.bits > _MOST_CODE_BITS:
            raise InvalidInput(
                f"`num_hashes` must be at most {_MOST_CODE_BITS}, "
                f"`num_tables` at most {_MOST_TABLES}; a code of `num_hashes` "
                f"functions takes at most {_MOST_CODE_BITS} bits. Received: "
                f"num_hashes={self.num_hashes} of {self.function_bits} bits "
                f"and num_tables={self.num_tables}"
            )
        width = dim or 1
        width = min(self.bin_size, width) if self.hash == "dwta" else width
        if self.num_hashes * self.num_tables * width > _MOST_DRAWN:
            raise InvalidInput(
                "Hash functions must take at most 2^31 numbers: `num_tables` "
                "times `num_hashes` times the width of the vectors (of "
                "`dwta`: times `bin_size`). Received: num_tables="
                f"{self.num_tables}, num_hashes={self.num_hashes} and a "
                f"width of {dim}"
            )


def codes_of(vectors: np.ndarray, options: HashOptions) -> np.ndarray:
    """int32 `[num_tables, n]` of float32 `[n, dim]`."""
    options.check(vectors.shape[1])
    if options.hash == "dwta":
        values = _slots(vectors, options)
    else:
        values = (vectors @ _planes(vectors.shape[1], options).T) > 0
    # No -1: there may be no vectors.
    values = values.reshape(
        len(vectors), options.num_tables, options.num_hashes
    )
    code = np.zeros(values.shape[:2], np.int64)
    for i in range(options.num_hashes):
        code = (code << options.function_bits) | values[:, :, i]
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


def _bins(dim, options):
    """int64 [functions, bin size]: disjoint parts of permutations."""
    count, size = options.num_hashes * options.num_tables, options.bin_size
    size = min(size, dim)
    bins_each = dim // size
    random = generator(options.seed, 2)
    permutations = [
        random.permutation(dim)[: bins_each * size].reshape(bins_each, size)
        for _ in range(-(-count // bins_each))
    ]
    return np.concatenate(permutations)[:count]


def _slots(vectors, options):
    """The slot of the greatest coordinate of each bin, int64 [n, functions]."""
    bins = _bins(vectors.shape[1], options)
    draws = generator(options.seed, 3).integers(
        len(bins), size=(len(bins), _BORROWS)
    )
    size = max(_BLOCK_NUMBERS // bins.size, 1)
    found = [np.zeros((0, len(bins)), np.int64)]
    for start in range(0, len(vectors), size):
        values = vectors[start : start + size][:, bins]
        # A zero is absent, as in a sparse vector.
        values = np.where(values == 0, -np.inf, values)
        slots = np.argmax(values, axis=2)
        slots[np.max(values, axis=2) == -np.inf] = -1
        found.append(_borrowed(slots, draws))
    return np.concatenate(found)


def _borrowed(slots, draws):
    """Empty bins take the slot of others, drawn until one is not empty."""
    filled = np.any(slots >= 0, axis=1)
    after = slots.copy()
    rows, bins = np.nonzero((slots < 0) & filled[:, np.newaxis])
    for draw in range(_BORROWS):
        if not len(rows):
            break
        after[rows, bins] = slots[rows, draws[bins, draw]]
        left = after[rows, bins] < 0
        rows, bins = rows[left], bins[left]
    return np.maximum(after, 0)


@twin
def lsh_hash(
    vectors: Floats,
    seed: Ids,
    num_hashes: int,
    num_tables: int,
    hash: str = "simhash",
    bin_size: int = 8,
) -> tf.Tensor:
    """See `tfxclass.ops.lsh.hash_codes`."""
    HashOptions(num_hashes, num_tables, hash, bin_size).check()

    def run(vectors: Any, seed: Any) -> tuple[np.ndarray]:
        check_finite("vectors", vectors)
        options = HashOptions(num_hashes, num_tables, hash, bin_size, seed)
        return (codes_of(vectors, options),)

    shape = [num_tables, vectors.shape[0]]
    return on_host(run, [tf.int32], [vectors, seed], [shape])[0]


@twin
def lsh_sparse_hash(
    row_splits: Ids,
    ids: Ids,
    values: Floats,
    dim: Ids,
    seed: Ids,
    num_hashes: int,
    num_tables: int,
    bin_size: int = 8,
) -> tf.Tensor:
    """See `tfxclass.ops.lsh.sparse_hash_codes`; the vectors are made dense."""

    def run(splits: Any, ids: Any, values: Any, dim: Any, seed: Any) -> Any:
        check_finite("values", values)
        if np.any((ids < 0) | (ids >= dim)):
            raise InvalidInput(f"`ids` must be in [0, {dim}). Received: {ids}")
        dense = np.zeros((len(splits) - 1, int(dim)), np.float32)
        rows = np.repeat(np.arange(len(dense)), np.diff(splits))
        dense[rows, ids] = values
        options = HashOptions(num_hashes, num_tables, "dwta", bin_size, seed)
        return (codes_of(dense, options),)

    inputs = [row_splits, ids, values, dim, seed]
    return on_host(run, [tf.int32], inputs, [[num_tables, None]])[0]
