"""Locality-sensitive hashing: tables of the rows of a kernel."""

from typing import Any

import tensorflow as tf

from tfxclass.ops.index import RefreshingIndex
from tfxclass.types import Scalar

for _name in ("LshHash", "LshQuery", "LshMembers"):
    tf.no_gradient("Tfxclass>" + _name)


class LSHIndex(RefreshingIndex):
    """Hash tables of the rows of a class matrix.

    A table has as many buckets as a code has values, but at most 2^18 and about
    16 for each class. Codes of more bits are hashed to these buckets, so that
    different codes may share a bucket: codes of 18 bits (`"dwta"` with K = 6)
    do so with 2^13 classes or fewer.

    `build` and `advance` take `seed`, an int, of the hash functions.

    Args:
        num_hashes: int K. The values of a table's functions stand one after
            the other in its code, 30 bits at most.
        num_tables: int L, at most 65,535; with `num_hashes` and the width of
            the vectors (of `"dwta"`: `bin_size`) at most 2^31 numbers.
        hash: `"simhash"` (one bit: the sign of a product with a Gaussian
            vector), `"sparse_simhash"` (with +-1 at a third of the
            coordinates), or `"dwta"` (the place of the greatest of `bin_size`
            coordinates, zeros counting as absent). Functions of `"dwta"` are
            not independent: dim // bin_size of them are disjoint parts of one
            permutation, so tables find a vector less often than
            1 - (1 - p^K)^L, in 128 dimensions by up to 0.1
            (`python benchmarks/lsh.py --probability`).
        bin_size: int, for `"dwta"`.
        inner_product: whether classes collide by inner product, with one more
            coordinate that makes all norms equal, rather than by angle.
        bucket_size: int, most ids of a bucket, a random sample of them; 0
            keeps all.
        redraw_interval: int, in refreshes: how often hash functions are drawn
            anew; 0 is never.
        incremental: whether a refresh hashes only the rows that were marked.

    References:
        Chen et al., SLIDE, MLSys 2020; Neyshabur and Srebro, On Symmetric and
        Asymmetric LSHs for Inner Product Search, ICML 2015.
    """

    prefix = "lsh"

    def __init__(
        self,
        num_hashes: int,
        num_tables: int,
        hash: str = "simhash",
        bin_size: int = 8,
        inner_product: bool = False,
        bucket_size: int = 0,
        redraw_interval: int = 0,
        incremental: bool = True,
    ) -> None:
        super().__init__()
        self.options = {
            "num_hashes": num_hashes,
            "num_tables": num_tables,
            "hash": hash,
            "bin_size": bin_size,
            "inner_product": inner_product,
            "bucket_size": bucket_size,
            "redraw_interval": redraw_interval,
            "incremental": incremental,
        }

    def query(
        self,
        queries: tf.Tensor,
        valid: tf.Tensor,
        targets: tf.Tensor,
        num_sampled: Scalar,
        max_candidates: Scalar | None,
        seed: tf.Tensor,
    ) -> Any:
        """Classes in the buckets of the queries.

        All tables are read; each that gives a class is a vote for it. Where
        not all fit, those with the most votes are kept, and of those with the
        least votes that are in a uniform sample.

        Args:
            queries: float32 `[samples, p, dim]`.
            valid: bool `[samples, p]`, which of them count.
            targets: int64, classes that are left out; -1 is padding.
            num_sampled: int64 scalar, room of targets and candidates.
            max_candidates: int64 scalar, room of candidates.
            seed: int64 `[2]`. Same seed, same result.

        Returns:
            `(candidates, probed, least_votes, last_fraction, pool, norm)`:
            distinct ids and the tables that were read, int64; the least votes
            of a candidate, and which fraction of the classes with so many was
            kept; how many classes were found; for inner products the norm of
            all rows with the extra coordinate, else 0. Nothing before the
            first tables are ready.
        """
        return self.op("query")(
            self.handle,
            queries,
            valid,
            targets,
            tf.cast(num_sampled, tf.int64),
            tf.cast(max_candidates, tf.int64),
            seed,
        )

    def members(
        self,
        queries: tf.Tensor,
        valid: tf.Tensor,
        probed: tf.Tensor,
        ids: tf.Tensor,
        least_votes: Scalar = 1,
    ) -> tf.Tensor:
        """Which classes are in a sample's own buckets, bool `[samples, n]`.

        A class of `ids`, int64 `[n]`, distinct, is in `least_votes` or more of
        the tables `probed`. `queries` and `valid` are as in `query`.
        """
        least_votes = tf.cast(least_votes, tf.int64)
        return self.op("members")(
            self.handle, queries, valid, probed, least_votes, ids
        )
