"""Hash tables of a sampler: their options and their size."""

import dataclasses
import math

import keras

from tfxclass.checks import check_choice
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.ops.lsh import LSHIndex
from tfxclass.samplers.schedule import Options
from tfxclass.samplers.schedule import check_rebuild_interval

_MOST_TABLES = 65_535
_HASHES = ("simhash", "sparse_simhash", "dwta")
# What an index takes at most by itself, its refresh included.
_MOST_BYTES = 10**9
# Codes that are held at a time while tables are made of all rows.
_MOST_CODES = 1 << 25
_LEAST_TABLES = 8


@keras.saving.register_keras_serializable("tfxclass")
@dataclasses.dataclass
class LSHTables(Options):
    """Options of the hash tables of an `LSHSampler`.

    Use it to choose the hash functions, the size of the tables, and how often
    they are rebuilt. It holds no tables: each sampler builds its own.

    Args:
        num_hashes: int, K, functions in a table. By default a query visits
            about twice as many ids as a step computes classes.
        num_tables: int, L, at most 65,535 (12,287 on a GPU). Defaults to 16 to
            50, so that hashing costs as much as the products of a step, or to
            as many as fit into 1 GB with their refresh, at least 8.
        hash_family: `"simhash"`, `"sparse_simhash"` (each function reads a
            third of the coordinates) or `"dwta"` (winner take all, where zeros
            count as absent, for sparse features). With `"dwta"`, dim //
            bin_size functions are parts of one permutation, and not
            independent: classes are found less often, by up to 0.1 in 128
            dimensions (`python benchmarks/lsh.py --probability`). Defaults to
            `"simhash"`.
        bin_size: int, coordinates of a function of `"dwta"`. Defaults to 8.
        bucket_size: int, largest number of classes in a bucket, a random sample
            of all in it. None keeps all, at any cost. Defaults to 128.
        measure: `"cosine"`, or `"inner_product"`, where class vectors get an
            additional coordinate that makes their norms equal. Defaults to
            `"cosine"`.
        rebuild_interval: int, the first interval in steps, or `"auto"` as in
            `HashingForestSampler`. Defaults to `"auto"`.
        decay: float >= 0. Interval r is exp(decay * r) times the first one. 0
            keeps the interval. Defaults to 0.05.
        redraw_interval: int, number of rebuilds after which hash functions are
            replaced. None is never. Defaults to 20.
        incremental: bool, whether a rebuild hashes only the class vectors that
            were sampled since the last one, unless over an eighth was, or hash
            functions are replaced. Optimizers must not update others:
            `tfxclass.optimizers` and plain SGD. Defaults to True.

    Example:

    ```python
    tables = tfxclass.samplers.LSHTables(num_hashes=9, num_tables=50)
    sampler = tfxclass.samplers.LSHSampler(4096, tables)
    ```

    References:
        Chen et al., SLIDE, MLSys 2020.
        Neyshabur and Srebro, On Symmetric and Asymmetric LSHs for Inner Product
        Search, ICML 2015 (`measure="inner_product"`).
    """

    num_hashes: int | None = None
    num_tables: int | None = None
    hash_family: str = "simhash"
    bin_size: int = 8
    bucket_size: int | None = 128
    measure: str = "cosine"
    rebuild_interval: int | str = "auto"
    decay: float = 0.05
    redraw_interval: int | None = 20
    incremental: bool = True

    def __post_init__(self) -> None:
        check_choice("hash_family", self.hash_family, _HASHES)
        check_choice("measure", self.measure, ("cosine", "inner_product"))
        self.rebuild_interval = check_rebuild_interval(self.rebuild_interval)
        self.bin_size = check_positive_int("bin_size", self.bin_size)
        optional = "num_hashes", "num_tables", "bucket_size", "redraw_interval"
        for name in optional:
            setattr(self, name, check_optional_int(name, getattr(self, name)))
        is_counted = (self.num_tables or 0) <= _MOST_TABLES
        wanted = f"at most {_MOST_TABLES}: votes are counted in 16 bits"
        check_value("num_tables", self.num_tables, is_counted, wanted)
        is_bin = self.bin_size >= 2
        check_value("bin_size", self.bin_size, is_bin, "at least 2")
        check_nonnegative("decay", self.decay)
        bits = (self.num_hashes or 1) * self._function_bits
        if bits > 30:
            raise ValueError(
                "A code takes at most 30 bits. Received: num_hashes="
                f"{self.num_hashes} with hash_family={self.hash_family!r}, "
                f"{bits} bits."
            )

    @property
    def _function_bits(self):
        is_dwta = self.hash_family == "dwta"
        return math.ceil(math.log2(self.bin_size)) if is_dwta else 1

    def functions(self, num_classes: int, num_sampled: int) -> tuple[int, int]:
        """`(num_hashes, num_tables)`, chosen where they are not given.

        A query visits L N / 2^bits ids and takes K L products. Fewer bits tell
        near classes better from far ones, so there are as few as twice the
        classes of a step allow. L is 50 in the paper, for Text8.
        """
        sizes = num_classes, min(num_sampled, num_classes)
        if self.num_tables is not None:
            return self._hashes(*sizes, self.num_tables), self.num_tables
        most = min(max(sizes[1] // 4, 16), 50)
        for num_tables in range(most, _LEAST_TABLES - 1, -1):
            functions = self._hashes(*sizes, num_tables), num_tables
            if self._bytes_of(num_classes, *functions) <= _MOST_BYTES:
                break
        return functions

    def _hashes(self, num_classes, num_sampled, num_tables):
        if self.num_hashes is not None:
            return self.num_hashes
        buckets = num_tables * num_classes / (2 * num_sampled)
        bits = min(max(round(math.log2(max(buckets, 1))), 1), 18)
        return max(round(bits / self._function_bits), 1)

    def make_index(
        self, num_classes: int, num_sampled: int, seed: int | None
    ) -> LSHIndex:
        """Makes an index without tables; its `advance` builds them."""
        num_hashes, num_tables = self.functions(num_classes, num_sampled)
        return LSHIndex(
            num_hashes=num_hashes,
            num_tables=num_tables,
            hash=self.hash_family,
            bin_size=self.bin_size,
            inner_product=self.measure == "inner_product",
            bucket_size=self.bucket_size or 0,
            redraw_interval=self.redraw_interval or 0,
            incremental=self.incremental,
            seed=seed or 0,
        )

    def build_nanoseconds(
        self, num_classes: int, dim: int, num_sampled: int
    ) -> float:
        """Half of the rows hashed and all tables written, on one core."""
        num_hashes, num_tables = self.functions(num_classes, num_sampled)
        return num_classes * num_tables * (5 + num_hashes * dim / 60)

    def index_bytes(self, num_classes: int, num_sampled: int) -> int:
        """Bytes of the tables, their refresh included."""
        functions = self.functions(num_classes, num_sampled)
        return self._bytes_of(num_classes, *functions)

    def _bytes_of(self, num_classes, num_hashes, num_tables):
        bits = num_hashes * self._function_bits
        bits = min(bits, 18, math.ceil(math.log2(num_classes)) + 4)
        ids = num_classes
        if self.bucket_size is not None:
            ids = min(ids, self.bucket_size << bits)
        tables = 2 * num_tables * 4 * (ids + (1 << bits))
        # Some tables of all rows are sorted and cut at a time, or codes of
        # touched rows are kept to be merged.
        together = min(max(_MOST_CODES // num_classes, 1), num_tables)
        built = 4 * together * (num_classes + ids)
        kept = num_classes // 8 * (4 * num_tables + 8)
        # Votes, while they are queried.
        return tables + max(built, kept) + 4 * num_classes
