"""Negatives from locality-sensitive hash tables of the class rows."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.ops.lsh import LSHTables
from tfxclass.rows import placement
from tfxclass.rows import read
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.lsh_probability import batch_sample
from tfxclass.samplers.lsh_probability import cosines
from tfxclass.samplers.lsh_probability import log_not_found
from tfxclass.samplers.lsh_probability import per_sample
from tfxclass.samplers.sampler import Sample
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

_NUM_HASHES = {"simhash": 9, "sparse_simhash": 9, "dwta": 6}


@keras.saving.register_keras_serializable("tfxclass")
class LSHSampler(IndexedSampler):
    """The labels of the batch, the classes in its hash buckets, a fill.

    Class rows are kept in `num_tables` hash tables of `num_hashes` functions
    each. The negatives of a sample are the union of its buckets: those of its
    features (`scheme="embedding"`) or of its labels' rows (`"label"`). A class
    whose functions collide with probability p is found with probability
    1 - (1 - p^K)^L, which follows the weights as they are trained.

    Room: the batch's union gets the places that labels leave, at most
    `neighbor_fraction` of all. A larger union is cut: tables are probed in a
    random order, one for the whole batch at a time, until the room is used
    up, and of what the last one adds a uniform sample is kept. Places that
    are left are filled uniformly.

    Every `rebuild_interval` steps, growing by `decay`, new tables are begun in
    the background from the rows that were sampled since (from all rows when
    the functions are drawn anew, or when over half of the rows were sampled);
    they take the old ones' place `rebuild_interval` steps later. Before the
    first ones are ready, classes are drawn uniformly.

    Args:
        num_sampled: int, number of classes a step, labels included.
        scheme: `"embedding"` or `"label"`.
        hash: `"simhash"`, `"sparse_simhash"` (its functions look at a third
            of the coordinates) or `"dwta"` (winner take all; zeros count as
            absent, so it suits sparse features).
        num_hashes: int K, functions a table; 9 by default, 6 for `"dwta"`.
        num_tables: int L.
        bin_size: int, coordinates that a function of `"dwta"` compares.
        bucket_size: int, most classes of a bucket, a random sample of those
            that hash there; None keeps all, and the cost of a step then grows
            with them.
        measure: what functions collide by: `"cosine"`, or `"inner_product"`
            (the rows get a coordinate with which their norms are equal).
        rebuild_interval: int, in steps, the first interval.
        decay: float >= 0: refresh r comes exp(decay r) times the first
            interval after the one before it. 0 keeps the interval.
        redraw_interval: int, in refreshes: how often hash functions are drawn
            anew; None is never.
        incremental: whether a refresh hashes only the rows that were sampled
            since. Right for optimizers that move no other row (those of
            `tfxclass.optimizers`, plain SGD); False hashes all of them.
        negatives: `"batch"`: a sample's softmax covers the classes of the
            whole batch. `"sample"`: its own labels and buckets only, or, if
            these give nothing, the classes of the batch.
        neighbor_fraction: float in (0, 1], most places for the union.
        correction: `"fill"`: classes of the fill stand for all that were not
            found, which makes the sum of exponentials an unbiased estimate,
            given the tables. `"sampling"`: classes are weighted by the
            probability with which they are found, 1 - (1 - p^K)^L (or filled),
            at least 1 / num_classes; for `"simhash"` without `bucket_size`;
            nearly unbiased over hash functions where the union fits.
            `"none"`: the softmax is restricted to the set, as in the paper.
        seed: int.

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021 (A Constant-Time Adaptive Negative
        Sampling). Chen et al., SLIDE, MLSys 2020. Neyshabur and Srebro, On
        Symmetric and Asymmetric LSHs for Inner Product Search, ICML 2015.
    """

    #: Arguments beside `num_sampled` and `seed`.
    option_names = (
        "scheme",
        "hash",
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
    )

    def __init__(
        self,
        num_sampled: int,
        scheme: str = "embedding",
        hash: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int = 50,
        bin_size: int = 8,
        bucket_size: int | None = 128,
        measure: str = "cosine",
        rebuild_interval: int = 50,
        decay: float = 0.05,
        redraw_interval: int | None = 20,
        incremental: bool = True,
        negatives: str = "batch",
        neighbor_fraction: float = 0.5,
        correction: str = "fill",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, seed=seed, **kwargs)
        check_choice("hash", hash, tuple(_NUM_HASHES))
        self.scheme = scheme
        self.hash = hash
        self.num_hashes = (
            _NUM_HASHES[hash] if num_hashes is None else num_hashes
        )
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
        self._check()
        self.index = LSHTables(
            self.num_hashes,
            num_tables,
            hash=hash,
            bin_size=bin_size,
            inner_product=measure == "inner_product",
            bucket_size=bucket_size or 0,
            redraw_interval=redraw_interval or 0,
            incremental=incremental,
        )

    def _check(self):
        check_choice("scheme", self.scheme, ("embedding", "label"))
        check_choice("measure", self.measure, ("cosine", "inner_product"))
        check_choice("negatives", self.negatives, ("batch", "sample"))
        check_choice(
            "correction", self.correction, ("fill", "sampling", "none")
        )
        for name in (
            "num_hashes",
            "num_tables",
            "bin_size",
            "rebuild_interval",
        ):
            check_positive_int(name, getattr(self, name))
        for name in ("bucket_size", "redraw_interval"):
            if getattr(self, name) is not None:
                check_positive_int(name, getattr(self, name))
        if self.bin_size < 2:
            raise ValueError(
                f"`bin_size` must be at least 2. Received: {self.bin_size}"
            )
        if not self.decay >= 0:
            raise ValueError(f"`decay` must be >= 0. Received: {self.decay}")
        if not 0 < self.neighbor_fraction <= 1:
            raise ValueError(
                "`neighbor_fraction` must be in (0, 1]. Received: "
                f"{self.neighbor_fraction}"
            )
        bits = self._code_bits()
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

    def _code_bits(self):
        if self.hash == "dwta":
            return self.num_hashes * math.ceil(math.log2(self.bin_size))
        return self.num_hashes

    def index_bytes(self, num_classes: int, dim: int) -> int:
        bits = min(self._code_bits(), 18, math.ceil(math.log2(num_classes)) + 4)
        ids = num_classes
        if self.bucket_size is not None:
            ids = min(ids, self.bucket_size << bits)
        tables = 2 * self.num_tables * 4 * (ids + (1 << bits))
        return tables + 4 * num_classes * (dim + 1)

    def rebuild(self, kernel: Variable) -> None:
        """Builds tables of the rows as they are, now."""
        self.index.build(kernel, seed=self.seed or 0)

    def interval(self, step: Scalar) -> tf.Tensor:
        """Steps from a refresh at `step` to the next, int64 scalar.

        With refresh r at rebuild_interval (e^(decay r) - 1) / (e^decay - 1),
        the r-th interval, rebuild_interval e^(decay r), is linear in the step.
        """
        grown = tf.cast(step, tf.float64) * math.expm1(self.decay)
        return self.rebuild_interval + tf.cast(grown, tf.int64)

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        step = tf.convert_to_tensor(self.step)
        self.index.advance(
            kernel,
            step,
            self.interval(step),
            tf.constant(self.rebuild_interval, tf.int64),
            seed=self.seed or 0,
        )
        asked, valid = self.hashed_queries(queries, target_ids, kernel)
        found = self.index.query(
            asked,
            valid,
            target_ids,
            self.num_sampled,
            math.ceil(self.neighbor_fraction * self.num_sampled),
            self.next_seed(),
        )
        chosen = self.choose(
            target_ids,
            candidates=found.candidates,
            scores=tf.zeros_like(found.candidates, tf.float32),
        )
        log_none = None
        if self.correction == "sampling":
            log_none = self._log_not_found(
                asked, valid, chosen.ids, kernel, found
            )
        rest = (self.correction, log_none, self.num_classes)
        if self.negatives == "batch":
            return batch_sample(chosen, *rest)
        members = self.index.members(asked, valid, found.probed, chosen.ids)
        return per_sample(chosen, members, *rest)

    def _log_not_found(self, asked, valid, ids, kernel, found):
        """log(1 - P) of each class for each row, `[batch, num_sampled]`."""
        rows = placement.gather(kernel, ids)
        log_none = log_not_found(
            cosines(asked, rows, found.norm),
            self.num_hashes,
            tf.size(found.probed),
            found.last_fraction,
        )
        log_none = tf.where(valid[:, :, tf.newaxis], log_none, 0.0)
        # Weights are constants of a step, as in any importance sampling.
        return tf.stop_gradient(tf.reduce_sum(log_none, axis=1))

    def hashed_queries(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What buckets are looked up for.

        Returns:
            `(queries, valid)`: float32 `[batch, p, dim]`, bool `[batch, p]`.
        """
        if self.scheme == "embedding":
            valid = tf.ones([tf.shape(queries)[0], 1], tf.bool)
            return queries[:, tf.newaxis], valid
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
