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

    `seed` is an int, for the hash functions. Other options are as in
    `tfxclass.samplers.LSHTables`, whose `hash_family` is `hash` here, and whose
    `measure` is `inner_product`. With 0 in place of None a bucket is never cut,
    and functions are never replaced.
    """

    prefix = "lsh"

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

        All tables are read; each that gives a class is a vote for it. At most
        `max_candidates` fit, and `num_sampled` with the targets. Those with the
        most votes are kept, and a uniform sample of those with the least votes.

        Queries are float32 `[samples, p, dim]`, and `valid`, bool `[samples,
        p]`, says which of them count. `targets`, int64, are left out; -1 is
        padding. The same `seed`, int64 `[2]`, gives the same result.

        Returns `(candidates, probed, least_votes, last_fraction, pool, norm)`:
        distinct ids and the tables that were read, int64; the least votes of a
        candidate, and which fraction of the classes with so many was kept; how
        many classes were found; for inner products the norm of all rows with
        the extra coordinate, else 0. Nothing before the first tables are ready.
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
