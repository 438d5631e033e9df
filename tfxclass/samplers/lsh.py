"""Negatives from locality-sensitive hash tables of the class rows."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_fraction
from tfxclass.checks import check_value
from tfxclass.core.targets import places_of
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.indexed import candidate_count
from tfxclass.samplers.indexed import free_slots
from tfxclass.samplers.lsh_tables import LSHTables
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import count_labels
from tfxclass.types import Config
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class LSHSampler(IndexedSampler):
    """Labels, classes that hash tables find, and uniform samples.

    It is the sampler of `LSHSoftmax`. Class vectors are kept in hash tables,
    which `LSHTables` describes. The negatives of an example are the classes in
    the buckets of its features (`scheme="embedding"`) or of its labels' class
    vectors (`"label"`). With `bucket_size=None`, a class whose functions
    collide with probability p is found with probability 1 - (1 - p^K)^L, for K
    functions and L tables. It is found less often with `"dwta"` (see
    `LSHTables`), and in cut buckets, which are the default.

    Each table that returns a class is a vote for it. Votes are Binomial(L,
    p^K), so similar classes have more of them. If too many classes are found,
    the votes of a single query decide, and ties are sampled uniformly. With
    `correction="fill"`, votes select up to eight times as many classes as fit,
    at most 4,096, and those with the highest probability for the batch stay.
    The rest of the sample is uniform. The first step builds the tables, which
    are rebuilt in the background.

    Args:
        num_sampled: as in `Sampler`.
        tables: `LSHTables`, or None for its defaults.
        scheme: `"embedding"` or `"label"`. Defaults to `"embedding"`.
        negatives: `"batch"`: the softmax of an example is over the classes of
            the whole batch. `"sample"`: it is over its own labels and buckets
            only, as in the paper, or the classes of the batch if these are
            empty. Defaults to `"batch"`.
        neighbor_fraction: as in `HashingForestSampler`.
        correction: `"fill"`: uniform samples stand for all classes that were
            not found, so the sum of exponentials is an unbiased estimate, given
            the tables. `"none"`: the softmax is restricted to the sample, as in
            the paper. Defaults to `"fill"`.
        query_fraction: as in `HashingForestSampler`. Defaults to 1/16 with
            `correction="fill"` and `negatives="batch"`, and else 1.
        seed: int, seed of the hash functions and of the sampling.

    Example:

    ```python
    tables = tfxclass.samplers.LSHTables(num_tables=20, rebuild_interval=500)
    sampler = tfxclass.samplers.LSHSampler(4096, tables, scheme="label")
    head = tfxclass.layers.SampledSoftmax(1_000_000, sampler=sampler)
    ```

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021. See also `LSHTables`.
    """

    default_query_fraction = 0.0625

    def __init__(
        self,
        num_sampled: int | None = None,
        tables: LSHTables | None = None,
        scheme: str = "embedding",
        negatives: str = "batch",
        neighbor_fraction: float = 0.5,
        correction: str = "fill",
        query_fraction: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, neighbor_fraction, seed=seed, **kwargs)
        check_choice("scheme", scheme, ("embedding", "label"))
        check_choice("negatives", negatives, ("batch", "sample"))
        check_choice("correction", correction, ("fill", "none"))
        if isinstance(tables, dict):
            tables = keras.saving.deserialize_keras_object(tables)
        tables = LSHTables() if tables is None else tables
        wanted = "a tfxclass.samplers.LSHTables or None"
        check_value("tables", tables, isinstance(tables, LSHTables), wanted)
        self.tables, self.scheme = tables, scheme
        self.negatives, self.correction = negatives, correction
        # Classes of the fill are no classes of a row's own. Other options
        # depend on the buckets and votes of this very step.
        is_filled = correction == "fill" and negatives == "batch"
        self.estimates_sums = self.may_cache = is_filled
        if correction == "none":
            self.max_oversampling = 1
        if query_fraction is not None:
            check_fraction("query_fraction", query_fraction)
        self.query_fraction = query_fraction
        if (query_fraction or 1) < 1 and not is_filled:
            raise ValueError(
                '`query_fraction` below 1 needs `correction="fill"` and '
                '`negatives="batch"`: other options need what the tables give '
                f"all rows. Received: {query_fraction}"
            )

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        num_classes, dim = kernel_shape
        tables, num_sampled = self.tables, self.num_sampled
        self.index = tables.make_index(num_classes, num_sampled, self.seed)
        super().build(kernel_shape)
        self.gauge("table_hit_rate")
        self.schedule = self.make_schedule(
            tables.rebuild_interval,
            tables.build_nanoseconds(num_classes, dim, num_sampled),
            tables.decay,
        )

    def index_bytes(self, num_classes: int, dim: int) -> int:
        tables = self.tables.index_bytes(num_classes, self.num_sampled)
        if self.searched_fraction() == 1:
            return tables
        return tables + neighbor_cache.bytes_of(num_classes, dim)

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        asked, valid = self.hashed_queries(queries, target_ids, kernel)
        self.advance(
            queries, kernel, lambda probes, ids: self._finds(asked, valid, ids)
        )
        is_cached = self.neighbor_cache is not None
        find = self._find_in_cache if is_cached else self._find_in_tables
        found, ids, scores = find(asked, valid, queries, target_ids, kernel)
        chosen = self.choose(
            target_ids,
            candidates=ids,
            scores=scores,
            candidate_share=self.neighbor_fraction,
            sample_overflow=False,
        )
        # The cache may have given more than the tables.
        kept = tf.cast(chosen.num_candidates, tf.float32)
        pool = tf.maximum(tf.cast(found.pool, tf.float32), kept)
        hit_rate = tf.math.divide_no_nan(kept, pool)
        self.measured["table_hit_rate"].assign(hit_rate)
        count = chosen.log_expected_count
        if self.correction == "none":
            count = tf.zeros_like(count)
        mask = None
        if self.negatives == "sample":
            members = self.index.members(
                asked, valid, found.probed, chosen.ids, found.least_votes
            )
            mask = _own_classes(chosen, members)
        return Sample(chosen.ids, count, chosen.positions, mask=mask)

    def _find_in_tables(self, asked, valid, queries, target_ids, kernel):
        """`(found, ids, scores)`: tables are read for all rows."""
        size, room, budget = self._sizes(target_ids)
        times, pool = self.oversampling(), budget
        if times > 1:  # the logits decide, of no fewer for many labels
            most = candidate_count(size, self.neighbor_fraction)
            pool = times * tf.minimum(room, most)
        found = self._query(asked, valid, target_ids, pool)
        ids = found.candidates
        if times == 1:
            return found, ids, tf.zeros_like(ids, tf.float32)
        rows = ClassRows(kernel, normalize=self.normalize)
        return found, ids, _log_masses(queries, target_ids, ids, rows)

    def _find_in_cache(self, asked, valid, queries, target_ids, kernel):
        """As `_find_in_tables`: tables for some rows, the cache for others."""
        _, _, budget = self._sizes(target_ids)
        times, batch = self.oversampling(), tf.shape(queries, tf.int64)[0]
        wanted = times * (budget // tf.maximum(batch, 1) + 1)
        pool = self.searched_fraction() * tf.cast(times * budget, tf.float32)
        pool = tf.maximum(tf.cast(pool, tf.int64), wanted)
        found = []

        def search(rows, count):
            of_rows = tf.gather(asked, rows), tf.gather(valid, rows)
            found.append(self._query(*of_rows, target_ids, pool))
            ids = found[0].candidates
            return tf.broadcast_to(ids, [tf.size(rows), tf.size(ids)])

        step = tf.convert_to_tensor(self.step)
        ids, shares = self.neighbor_cache.find(
            queries, target_ids, kernel, wanted, step, search
        )
        return found[0], ids, shares

    def _sizes(self, target_ids):
        """Classes of the step, those that are no labels, and similar ones."""
        size = self.size_for(count_labels(target_ids))
        room = free_slots(target_ids, size)
        return size, room, candidate_count(room, self.neighbor_fraction)

    def _query(self, asked, valid, target_ids, pool):
        most = self.oversampling() * self.size_for(count_labels(target_ids))
        return self.index.query(
            asked, valid, target_ids, most, pool, self.next_seed()
        )

    def _finds(self, asked, valid, ids):
        """Which of the first rows' `ids` `[n, k]` are in their buckets."""
        rows = tf.shape(ids)[0]
        unique, places = tf.unique(tf.reshape(tf.maximum(ids, 0), [-1]))
        tables = tf.range(self.index.options["num_tables"], dtype=tf.int64)
        mask = self.index.members(asked[:rows], valid[:rows], tables, unique)
        places = tf.reshape(places, tf.shape(ids))
        return tf.gather(mask, places, axis=1, batch_dims=1)

    def hashed_queries(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Vectors to look up, `[batch, p, dim]`, and which of them count."""
        if self.scheme == "embedding":
            valid = tf.ones([tf.shape(queries)[0], 1], tf.bool)
            return queries[:, tf.newaxis], valid
        target_ids = target_ids[:, self.num_negatives :]
        rows, _ = ClassRows(kernel).gather(tf.maximum(target_ids, 0))
        return rows, target_ids >= 0

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        self.rows_moved(touched_ids)
        super().update(kernel, touched_ids)

    def rows_moved(self, ids: tf.Tensor) -> None:
        if self.tables.incremental:
            self.index.mark(ids)

    def get_config(self) -> Config:
        tables = keras.saving.serialize_keras_object(self.tables)
        return {**super().get_config(), "tables": tables}


def _own_classes(chosen, members):
    """Which chosen classes a row sees, bool `[batch, num_sampled]`.

    They are its labels and the `members` of its own buckets that are no fill,
    or all classes if its buckets gave nothing.
    """
    columns = tf.range(tf.size(chosen.ids, tf.int64))
    is_fill = columns >= chosen.num_targets + chosen.num_candidates
    _, at = places_of(chosen.positions)
    is_target = tf.tensor_scatter_nd_update(
        tf.zeros_like(members), at, tf.ones_like(at[:, 0], tf.bool)
    )
    own = members & ~is_fill & ~is_target
    is_empty = ~tf.reduce_any(own, axis=1, keepdims=True)
    return own | is_target | is_empty


def _log_masses(queries, target_ids, candidates, rows):
    """Log of the probability that a batch gives each candidate, float32 `[n]`.

    It is the sum of the rows' softmax over their labels and the candidates,
    which are no labels. The gradient of a class is as large as this sum.
    """
    candidates, _ = rows.gather(candidates)
    targets, _ = rows.gather(tf.maximum(target_ids, 0))
    logits = tf.matmul(queries, candidates, transpose_b=True)
    labels = tf.einsum("bd,bpd->bp", queries, targets)
    labels = tf.where(target_ids >= 0, labels, logits.dtype.min)
    # Two sums of exponentials about one shift, without [batch, p + n].
    shift = tf.maximum(
        tf.reduce_max(logits, axis=1), tf.reduce_max(labels, axis=1)
    )[:, tf.newaxis]
    masses = tf.exp(logits - shift)
    whole = tf.reduce_sum(masses, axis=1, keepdims=True)
    whole += tf.reduce_sum(tf.exp(labels - shift), axis=1, keepdims=True)
    # A row without labels has no loss.
    counts = tf.reduce_any(target_ids >= 0, axis=1, keepdims=True)
    shares = tf.where(counts, masses / whole, 0.0)
    return tf.math.log(tf.reduce_sum(shares, axis=0))
