"""Negatives from locality-sensitive hash tables of the class rows."""

import math
import sys
from typing import Any

import keras
import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.ops.lsh import LSHTables
from tfxclass.rows import read
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers import lsh_options
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.drift import Drift
from tfxclass.samplers.drift import Refresh
from tfxclass.samplers.drift import batch_of
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.lsh_choice import choose_classes
from tfxclass.samplers.lsh_probability import batch_sample
from tfxclass.samplers.lsh_probability import cosines
from tfxclass.samplers.lsh_probability import log_not_found
from tfxclass.samplers.lsh_probability import per_sample
from tfxclass.samplers.sampler import Sample
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class LSHSampler(IndexedSampler):
    """Labels, classes that hash tables find, and uniform samples.

    It is the sampler of `LSHSoftmax`. Class vectors are kept in `num_tables`
    hash tables with `num_hashes` functions each. The negatives of an example
    are the classes in the buckets of its features (`scheme="embedding"`) or of
    its labels' class vectors (`"label"`). A class whose functions collide with
    probability p is found with probability 1 - (1 - p^K)^L, for K functions and
    L tables. With `"dwta"` it is found less often: see
    `tfxclass.ops.lsh.hash_codes`.

    Labels come first. The classes found for the batch get at most
    `neighbor_fraction` of the other places. Each table that returns a class is
    a vote for it. If too many classes are found, those with the most votes
    (from a single query) stay, and ties are sampled uniformly. Votes are
    Binomial(L, p^K), so more similar classes are kept with higher probability.
    Votes are a rough measure. Therefore votes select `rerank_factor` times as
    many classes as fit, the logits of these are computed, and the classes with
    the highest probability for the batch stay. The rest of the sample is
    uniform.

    The first step builds the tables. New tables are begun from the class
    vectors that were sampled since, and are merged in the background. When hash
    functions are replaced, or over an eighth of the class vectors was sampled,
    tables are made of all class vectors. New tables replace the old ones some
    steps later. This happens when the tables have drifted
    (`rebuild_interval="auto"`, see `HashingForestSampler`), or every
    `rebuild_interval` steps, an interval that grows by `decay`.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        scheme: `"embedding"` or `"label"`. Defaults to `"embedding"`.
        hash_family: `"simhash"`, `"sparse_simhash"` (each function reads a
            third of the coordinates) or `"dwta"` (winner take all, where zeros
            count as absent, for sparse features). Defaults to `"simhash"`.
        num_hashes: int, K, functions in a table. By default a query visits
            about twice as many ids as a step computes classes.
        num_tables: int, L, at most 65,535 (12,287 on a GPU). Defaults to 16 to
            50, so that hashing costs about as much as the products of a step.
            It is lower if the tables would take more than 1 GB, refresh
            included, but at least 8.
        bin_size: int, number of coordinates that a function of `"dwta"`
            compares. Defaults to 8.
        bucket_size: int, largest number of classes in a bucket, a random sample
            of all in it. None keeps all, so the cost of a step is not limited.
            Defaults to 128.
        measure: `"cosine"`, or `"inner_product"`, where class vectors get an
            additional coordinate that makes their norms equal. Defaults to
            `"cosine"`.
        rebuild_interval: int, the first interval in steps, or `"auto"`.
            Defaults to `"auto"`.
        decay: float >= 0. Interval r is exp(decay * r) times the first one. 0
            keeps the interval. Defaults to 0.05.
        redraw_interval: int, number of refreshes after which hash functions are
            replaced. None is never. Defaults to 20.
        incremental: bool, whether a refresh hashes only the class vectors that
            were sampled since the last one. Use True for optimizers that do not
            update others: `tfxclass.optimizers` and plain SGD.
            Defaults to True.
        negatives: `"batch"`: the softmax of an example is over the classes of
            the whole batch. `"sample"`: it is over its own labels and buckets
            only, as in the paper, or the classes of the batch if these are
            empty. If not all buckets fit, the classes with the most votes stay.
            Defaults to `"batch"`.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correction: `"fill"`: uniform samples stand for all classes that were
            not found, so the sum of exponentials is an unbiased estimate, given
            the tables. `"sampling"`: classes are weighted by the probability of
            being found, 1 - (1 - p^K)^L, or of being a uniform sample, at least
            1 / num_classes. It is for `"simhash"` without `bucket_size`, and
            nearly unbiased if all found classes fit. `"none"`: the softmax is
            restricted to the sample, as in the paper. Defaults to `"fill"`.
        rerank_factor: int, how many times more classes votes select than fit,
            before logits decide. 1 uses votes only. Defaults to 8 with
            `correction="fill"`, or less, so that at most 4,096 classes are
            reranked. With other corrections it is 1.
        query_fraction: float in (0, 1], fraction of the examples that read the
            tables: those whose labels were searched for longest ago. The others
            take their neighbors from a `NeighborCache`. Defaults to 1/16 with
            `correction="fill"`, `negatives="batch"` and `rerank_factor=None`,
            and else 1. It is always 1 in shards, on parameter servers and on
            GPUs.
        seed: int, seed of the hash functions and of the sampling.

    Example:

    ```python
    sampler = tfxclass.samplers.LSHSampler(4096, scheme="label")
    head = tfxclass.layers.SampledSoftmax(1_000_000, sampler=sampler)
    ```

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021.
        Chen et al., SLIDE, MLSys 2020.
        Neyshabur and Srebro, On Symmetric and Asymmetric LSHs for Inner Product
        Search, ICML 2015.
    """

    has_gpu_ops = LSHTables.has_gpu_ops
    default_query_fraction = 0.0625
    #: Arguments besides `num_sampled` and `seed`.
    option_names = (
        "scheme",
        "hash_family",
        "num_hashes",
        "num_tables",
        "bin_size",
        "bucket_size",
        "measure",
        "rebuild_interval",
        "decay",
        "redraw_interval",
        "incremental",
        "negatives",
        "neighbor_fraction",
        "correction",
        "rerank_factor",
        "query_fraction",
    )

    def __init__(
        self,
        num_sampled: int | None = None,
        scheme: str = "embedding",
        hash_family: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int | None = None,
        bin_size: int = 8,
        bucket_size: int | None = 128,
        measure: str = "cosine",
        rebuild_interval: int | str = "auto",
        decay: float = 0.05,
        redraw_interval: int | None = 20,
        incremental: bool = True,
        negatives: str = "batch",
        neighbor_fraction: float = 0.5,
        correction: str = "fill",
        rerank_factor: int | None = None,
        query_fraction: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, seed=seed, **kwargs)
        self.scheme = scheme
        self.hash_family = hash_family
        self.num_hashes = num_hashes
        self.num_tables = num_tables
        self.bin_size = bin_size
        self.bucket_size = bucket_size
        self.measure = measure
        self.rebuild_interval = rebuild_interval
        self.decay = decay
        self.redraw_interval = redraw_interval
        self.incremental = incremental
        self.negatives = negatives
        self.neighbor_fraction = neighbor_fraction
        self.correction = correction
        self.rerank_factor = rerank_factor
        self.query_fraction = query_fraction
        lsh_options.check_options(self)
        self.check_query_fraction()
        if (self.query_fraction or 1) < 1 and not self.may_cache():
            raise ValueError(
                '`query_fraction` below 1 needs `correction="fill"`, '
                '`negatives="batch"` and `rerank_factor=None`: other '
                "corrections need what the tables give all rows. Received: "
                f"{self.query_fraction}"
            )
        self.drift = None
        self.index = None  # its sizes follow the number of classes

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.build_cache(kernel_shape)
        self.gauge("tables_probed")
        self.gauge("table_hit_rate")
        if self.rebuild_interval == "auto":
            nanoseconds = self._refresh_nanoseconds(*kernel_shape)
            self.drift = Drift(self, *kernel_shape, nanoseconds)

    def _refresh_nanoseconds(self, num_classes, dim):
        """Half of the rows hashed and all tables written, on one core."""
        num_hashes, num_tables = self.functions(num_classes)
        return num_classes * num_tables * (5 + num_hashes * dim / 60)

    def functions(self, num_classes: int) -> tuple[int, int]:
        """`(num_hashes, num_tables)`, with their defaults resolved."""
        return lsh_options.functions_of(self, num_classes)

    def prepare(self, num_classes: int) -> None:
        num_hashes, num_tables = self.functions(num_classes)
        self.index = LSHTables(
            num_hashes,
            num_tables,
            hash=self.hash_family,
            bin_size=self.bin_size,
            inner_product=self.measure == "inner_product",
            bucket_size=self.bucket_size or 0,
            redraw_interval=self.redraw_interval or 0,
            incremental=self.incremental,
        )

    def may_cache(self) -> bool:
        # Other options depend on the buckets and votes of this very step.
        return (
            self.correction == "fill"
            and self.negatives == "batch"
            and self.rerank_factor is None
        )

    @property
    def estimates_sums(self) -> bool:
        # Classes of the fill are no classes of a row's own.
        is_filled = self.correction == "fill" and self.negatives == "batch"
        return is_filled or self.correction == "sampling"

    def index_bytes(self, num_classes: int, dim: int) -> int:
        tables = lsh_options.bytes_of(
            self, num_classes, *self.functions(num_classes)
        )
        # Two bytes for each class and thread, above the votes of the batch.
        tables += 2 * self.vote_arrays() * num_classes
        if self.searched_fraction() == 1:
            return tables
        return tables + neighbor_cache.bytes_of(num_classes, dim)

    def build_index(self, kernel: Variable) -> None:
        self.index.build(kernel, seed=self.seed or 0)

    def interval(self, step: Scalar) -> tf.Tensor:
        """Steps from a refresh at `step` to the next, int64 scalar.

        Refresh r is at step rebuild_interval * (e^(decay r) - 1) / (e^decay -
        1). So interval r, rebuild_interval * e^(decay r), is linear in the
        step.
        """
        grown = tf.cast(step, tf.float64) * math.expm1(self.decay)
        return self.rebuild_interval + tf.cast(grown, tf.int64)

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        step = tf.convert_to_tensor(self.step)
        refresh = self._refresh(step, batch_of(queries))
        self.announce_first_build(kernel)
        self.index.advance(
            kernel,
            step,
            refresh.interval,
            refresh.lag,
            seed=self.seed or 0,
            drifted=refresh.drifted,
        )
        asked, valid = self.hashed_queries(queries, target_ids, kernel)
        if self.drift is not None:
            self.drift.watch(
                step,
                queries,
                kernel,
                lambda probes, ids: self._finds(asked, valid, ids),
            )
        found, chosen = choose_classes(
            self, asked, valid, queries, target_ids, kernel
        )
        self._measure(found, chosen)
        log_none = None
        if self.correction == "sampling":
            log_none = self._log_not_found(
                asked, valid, chosen.ids, kernel, found
            )
        rest = (self.correction, log_none, self.num_classes)
        if self.negatives == "batch":
            return batch_sample(chosen, *rest)
        members = self.index.members(
            asked, valid, found.probed, chosen.ids, found.least_votes
        )
        return per_sample(chosen, members, *rest)

    def _refresh(self, step, batch):
        if self.drift is not None:
            return self.drift.steps(step, batch)
        lag = tf.constant(self.rebuild_interval, tf.int64)
        return Refresh(self.interval(step), lag)

    def _finds(self, asked, valid, ids):
        """Which of the first rows' `ids` `[n, k]` are in their buckets."""
        rows = tf.shape(ids)[0]
        unique, places = tf.unique(tf.reshape(tf.maximum(ids, 0), [-1]))
        tables = tf.range(self.index.options["num_tables"], dtype=tf.int64)
        mask = self.index.members(asked[:rows], valid[:rows], tables, unique)
        places = tf.reshape(places, tf.shape(ids))
        return tf.gather(mask, places, axis=1, batch_dims=1)

    def _measure(self, found, chosen):
        probed = tf.size(found.probed)
        wanted = self.index.options["num_tables"]
        before = tf.cast(self.measured["tables_probed"], tf.int32)
        tf.cond(
            (probed > 0) & (probed < wanted) & (probed != before),
            lambda: _warn_of_few(probed, wanted),
            tf.no_op,
        )
        self.measured["tables_probed"].assign(tf.cast(probed, tf.float32))
        # The cache may have given more than the tables.
        kept = tf.cast(chosen.num_candidates, tf.float32)
        pool = tf.maximum(tf.cast(found.pool, tf.float32), kept)
        self.measured["table_hit_rate"].assign(
            tf.math.divide_no_nan(kept, pool)
        )

    def _log_not_found(self, asked, valid, ids, kernel, found):
        """log(1 - P) of each class for each row, `[batch, num_sampled]`."""
        rows = placement.gather(kernel, ids)
        log_none = log_not_found(
            cosines(asked, rows, found.norm),
            self.index.options["num_hashes"],
            tf.size(found.probed),
            found.least_votes,
            found.last_fraction,
        )
        log_none = tf.where(valid[:, :, tf.newaxis], log_none, 0.0)
        # Weights are constants of a step, as in any importance sampling.
        return tf.stop_gradient(tf.reduce_sum(log_none, axis=1))

    def hashed_queries(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The vectors whose buckets are looked up.

        Returns:
            `(queries, valid)`: float32 `[batch, p, dim]`, bool `[batch, p]`.
        """
        if self.scheme == "embedding":
            valid = tf.ones([tf.shape(queries)[0], 1], tf.bool)
            return queries[:, tf.newaxis], valid
        target_ids = target_ids[:, self.num_negatives :]
        rows, _ = read.gather(ClassRows(kernel), tf.maximum(target_ids, 0))
        return rows, target_ids >= 0

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        self.rows_moved(touched_ids)
        super().update(kernel, touched_ids)

    def rows_moved(self, ids: tf.Tensor) -> None:
        if self.incremental:
            self.index.mark(ids)

    def get_config(self) -> Config:
        options = {name: getattr(self, name) for name in self.option_names}
        return {**super().get_config(), **options}


def _warn_of_few(probed, wanted):
    return tf.print(
        "WARNING: an LSHSampler reads",
        probed,
        "tables of",
        wanted,
        "(they were restored from another model's state, until the next "
        "refresh).",
        output_stream=sys.stderr,
    )
