"""The options of LSH tables: which are allowed, how many functions, bytes."""

import math

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.ops import library
from tfxclass.samplers.drift import check_rebuild_interval

_MOST_TABLES = 65_535
_HASHES = ("simhash", "sparse_simhash", "dwta")
# What an index takes at most by itself, its refresh included.
_MOST_BYTES = 10**9
# Codes that are held at a time while tables are made of all rows.
_MOST_CODES = 1 << 25
_LEAST_TABLES = 8


class LSHOptions:
    """Mixin of `LSHSampler`, whose arguments these are: attributes by name."""

    def functions(self, num_classes: int) -> tuple[int, int]:
        """`(num_hashes, num_tables)`, chosen where they are not given.

        A query visits L N / 2^bits ids beside K L products. Fewer bits tell
        near classes better from far ones, whatever the batch is (votes rank
        what its queries find), so there are as few as the visits allow: about
        twice the classes that a step computes for a row. L is the paper's 50
        where hashing then costs no more than those products.
        """
        if self.num_tables is not None:
            return self._hashes(num_classes, self.num_tables), self.num_tables
        num_sampled = min(self.num_sampled, num_classes)
        num_tables = min(max(num_sampled // 4, 16), 50)
        num_hashes = self._hashes(num_classes, num_tables)
        while num_tables > _LEAST_TABLES and _MOST_BYTES < self._bytes_of(
            num_classes, num_hashes, num_tables
        ):
            num_tables -= 1
            num_hashes = self._hashes(num_classes, num_tables)
        return num_hashes, num_tables

    def _hashes(self, num_classes, num_tables):
        if self.num_hashes is not None:
            return self.num_hashes
        num_sampled = min(self.num_sampled, num_classes)
        buckets = num_tables * num_classes / (2 * num_sampled)
        bits = min(max(round(math.log2(max(buckets, 1))), 1), 18)
        return max(round(bits / self._function_bits()), 1)

    def _check(self):
        check_choice("hash", self.hash, _HASHES)
        if self.hash == "dwta":
            library.require_compiled('hash="dwta"')
        check_choice("scheme", self.scheme, ("embedding", "label"))
        check_choice("measure", self.measure, ("cosine", "inner_product"))
        check_choice("negatives", self.negatives, ("batch", "sample"))
        check_choice(
            "correction", self.correction, ("fill", "sampling", "none")
        )
        self.rebuild_interval = check_rebuild_interval(self.rebuild_interval)
        for name in (
            "bin_size",
            "num_hashes",
            "num_tables",
            "bucket_size",
            "redraw_interval",
            "rescored",
        ):
            value = getattr(self, name)
            if value is not None or name == "bin_size":
                setattr(self, name, check_positive_int(name, value))
        if (self.num_tables or 0) > _MOST_TABLES:
            raise ValueError(
                f"`num_tables` must be at most {_MOST_TABLES}: votes are "
                f"counted in 16 bits. Received: {self.num_tables}"
            )
        if self.bin_size < 2:
            raise ValueError(
                f"`bin_size` must be at least 2. Received: {self.bin_size}"
            )
        if not 0 <= self.decay < math.inf:
            raise ValueError(
                f"`decay` must be >= 0 and finite. Received: {self.decay}"
            )
        if not 0 < self.neighbor_fraction <= 1:
            raise ValueError(
                "`neighbor_fraction` must be in (0, 1]. Received: "
                f"{self.neighbor_fraction}"
            )
        bits = (self.num_hashes or 1) * self._function_bits()
        if bits > 30:
            raise ValueError(
                "A code takes at most 30 bits. Received: num_hashes="
                f"{self.num_hashes} with hash={self.hash!r}, {bits} bits."
            )
        if self.correction == "sampling" and (
            self.hash == "dwta" or self.bucket_size is not None
        ):
            raise ValueError(
                '`correction="sampling"` knows the probability of "simhash" '
                'and "sparse_simhash" with bucket_size=None. Received: hash='
                f"{self.hash!r}, bucket_size={self.bucket_size}."
            )
        if self.correction == "sampling" and (self.rescored or 1) > 1:
            raise ValueError(
                '`correction="sampling"` knows the probability of votes alone: '
                f"rescored=1. Received: rescored={self.rescored}"
            )

    def _function_bits(self):
        return math.ceil(math.log2(self.bin_size)) if self.hash == "dwta" else 1

    def _bytes_of(self, num_classes, num_hashes, num_tables):
        bits = num_hashes * self._function_bits()
        bits = min(bits, 18, math.ceil(math.log2(num_classes)) + 4)
        ids = num_classes
        if self.bucket_size is not None:
            ids = min(ids, self.bucket_size << bits)
        tables = 2 * num_tables * 4 * (ids + (1 << bits))
        # Tables of all rows are sorted and cut as many at a time as there are
        # codes of, or codes of touched rows are kept to be merged.
        together = min(max(_MOST_CODES // num_classes, 1), num_tables)
        built = 4 * together * (num_classes + ids)
        kept = num_classes // 8 * (4 * num_tables + 8)
        # Votes, while they are queried.
        return tables + max(built, kept) + 2 * num_classes
