"""The options of LSH tables: which are allowed, how many functions, bytes."""

import math

import keras

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.samplers.drift import check_rebuild_interval

_MOST_TABLES = 65_535
_HASHES = ("simhash", "sparse_simhash", "dwta")
# What an index takes at most by itself, its refresh included.
_MOST_BYTES = 10**9
# Codes that are held at a time while tables are made of all rows.
_MOST_CODES = 1 << 25
_LEAST_TABLES = 8


def functions_of(
    sampler: keras.layers.Layer, num_classes: int
) -> tuple[int, int]:
    """`(num_hashes, num_tables)`, chosen where they are not given.

    A query visits L N / 2^bits ids and takes K L products. Fewer bits tell near
    classes better from far ones, whatever the batch is (votes rank what its
    queries find), so there are as few as the visits allow: about twice the
    classes that a step computes for a row. L is the paper's 50 where hashing
    then costs no more than those products.
    """
    if sampler.num_tables is not None:
        num_tables = sampler.num_tables
        return _hashes(sampler, num_classes, num_tables), num_tables
    num_sampled = min(sampler.num_sampled, num_classes)
    num_tables = min(max(num_sampled // 4, 16), 50)
    num_hashes = _hashes(sampler, num_classes, num_tables)
    while (
        num_tables > _LEAST_TABLES
        and bytes_of(sampler, num_classes, num_hashes, num_tables) > _MOST_BYTES
    ):
        num_tables -= 1
        num_hashes = _hashes(sampler, num_classes, num_tables)
    return num_hashes, num_tables


def _hashes(sampler, num_classes, num_tables):
    if sampler.num_hashes is not None:
        return sampler.num_hashes
    num_sampled = min(sampler.num_sampled, num_classes)
    buckets = num_tables * num_classes / (2 * num_sampled)
    bits = min(max(round(math.log2(max(buckets, 1))), 1), 18)
    return max(round(bits / _function_bits(sampler)), 1)


def check_options(sampler: keras.layers.Layer) -> None:
    """Raises ValueError where an argument of an `LSHSampler` is not allowed.

    Integers of other types become ints.
    """
    check_choice("hash_family", sampler.hash_family, _HASHES)
    check_choice("scheme", sampler.scheme, ("embedding", "label"))
    check_choice("measure", sampler.measure, ("cosine", "inner_product"))
    check_choice("negatives", sampler.negatives, ("batch", "sample"))
    check_choice("correction", sampler.correction, ("fill", "sampling", "none"))
    sampler.rebuild_interval = check_rebuild_interval(sampler.rebuild_interval)
    for name in (
        "bin_size",
        "num_hashes",
        "num_tables",
        "bucket_size",
        "redraw_interval",
        "rerank_factor",
    ):
        value = getattr(sampler, name)
        if value is not None or name == "bin_size":
            setattr(sampler, name, check_positive_int(name, value))
    if (sampler.num_tables or 0) > _MOST_TABLES:
        raise ValueError(
            f"`num_tables` must be at most {_MOST_TABLES}: votes are "
            f"counted in 16 bits. Received: {sampler.num_tables}"
        )
    if sampler.bin_size < 2:
        raise ValueError(
            f"`bin_size` must be at least 2. Received: {sampler.bin_size}"
        )
    if not 0 <= sampler.decay < math.inf:
        raise ValueError(
            f"`decay` must be >= 0 and finite. Received: {sampler.decay}"
        )
    if not 0 < sampler.neighbor_fraction <= 1:
        raise ValueError(
            "`neighbor_fraction` must be in (0, 1]. Received: "
            f"{sampler.neighbor_fraction}"
        )
    bits = (sampler.num_hashes or 1) * _function_bits(sampler)
    if bits > 30:
        raise ValueError(
            "A code takes at most 30 bits. Received: num_hashes="
            f"{sampler.num_hashes} with hash_family={sampler.hash_family!r}, "
            f"{bits} bits."
        )
    if sampler.correction == "sampling" and (
        sampler.hash_family == "dwta" or sampler.bucket_size is not None
    ):
        raise ValueError(
            '`correction="sampling"` knows the probability of "simhash" '
            'and "sparse_simhash" with bucket_size=None. Received: hash='
            f"{sampler.hash_family!r}, bucket_size={sampler.bucket_size}."
        )
    if sampler.correction == "sampling" and (sampler.rerank_factor or 1) > 1:
        raise ValueError(
            '`correction="sampling"` knows the probability of votes alone: '
            f"rerank_factor=1. Received: rerank_factor={sampler.rerank_factor}"
        )


def _function_bits(sampler):
    return (
        math.ceil(math.log2(sampler.bin_size))
        if sampler.hash_family == "dwta"
        else 1
    )


def bytes_of(
    sampler: keras.layers.Layer,
    num_classes: int,
    num_hashes: int,
    num_tables: int,
) -> int:
    """Bytes of the tables, their refresh included."""
    bits = num_hashes * _function_bits(sampler)
    bits = min(bits, 18, math.ceil(math.log2(num_classes)) + 4)
    ids = num_classes
    if sampler.bucket_size is not None:
        ids = min(ids, sampler.bucket_size << bits)
    tables = 2 * num_tables * 4 * (ids + (1 << bits))
    # Tables of all rows are sorted and cut as many at a time as there are
    # codes of, or codes of touched rows are kept to be merged.
    together = min(max(_MOST_CODES // num_classes, 1), num_tables)
    built = 4 * together * (num_classes + ids)
    kept = num_classes // 8 * (4 * num_tables + 8)
    # Votes, while they are queried.
    return tables + max(built, kept) + 2 * num_classes
