"""Adaptive softmax: rare classes behind the door of their cluster."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_number
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core.targets import Targets
from tfxclass.core.targets import merge_repeats
from tfxclass.layers.block_heads import BlockHead
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.losses.options import LOSS_OPTIONS
from tfxclass.rows import search
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss import cross_entropy
from tfxclass.types import Answers
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class AdaptiveSoftmax(BlockHead):
    """Exact softmax in two steps: frequent classes first, then clusters.

    Use it for classes numbered by falling frequency, such as words. The first
    step chooses among the `cutoffs[0]` most frequent classes and one entry for
    each cluster of rarer classes. The probability of a rare class is the
    probability of its cluster times its probability within the cluster. Each
    cluster reads a projection of the features, whose width falls by `div_value`
    from cluster to cluster.

    Each training step computes the frequent classes for the whole batch, and
    all classes of a cluster for the examples with a label in it. A cluster
    without a label in the batch costs almost nothing. Logits
    (`activation=None`) are log-probabilities.

    Args:
        cutoffs: rising ints in (0, num_classes), the first class of each
            cluster. An empty list gives a full softmax.
            `tfxclass.layers.split_by_frequency` finds good values.
        div_value: float >= 1. The class vectors of cluster i = 1, 2, ... have
            `dim // div_value**i` numbers, at least 1. Defaults to 4.
        **kwargs: other arguments of `OutputHead`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.AdaptiveSoftmax(
        1_000_000, cutoffs=[5_000, 50_000, 250_000]
    )
    ```

    References:
        Grave et al., Efficient softmax approximation for GPUs, ICML 2017.
    """

    supported_options = LOSS_OPTIONS
    needs_logsumexp = True

    def __init__(
        self,
        num_classes: int,
        cutoffs: Iterable[int],
        div_value: float = 4.0,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        cutoffs = _check_cutoffs(cutoffs, num_classes)
        check_number(
            "div_value", div_value, lambda x: 1 <= x < math.inf, ">= 1"
        )
        super().__init__(num_classes, **kwargs)
        self.cutoffs = cutoffs
        self.starts = [0, *cutoffs]
        self.sizes = np.diff([*self.starts, num_classes]).tolist()
        self.div_value = div_value
        # A cluster without a class would still have its probability.
        gone, _ = np.histogram(self.removed, [*self.starts, num_classes])
        for start, size, count in list(zip(self.starts, self.sizes, gone))[1:]:
            if count == size:
                raise ValueError(
                    "`removed` must leave a class in each cluster. Received: "
                    f"all of the {size} classes from {start} on"
                )

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        widths = self._widths(dim)
        others = {"clusters": (len(widths), dim)} if widths else {}
        for i, width in enumerate(widths, 1):
            others[f"projection_{i}"] = dim, width
        return self.kernel_specs(self.sizes, [dim, *widths]) + [
            WeightSpec(name, shape, self.kernel_initializer, is_rows=False)
            for name, shape in others.items()
        ]

    def _widths(self, dim):
        return [
            max(int(dim // self.div_value**i), 1)
            for i in range(1, len(self.sizes))
        ]

    @property
    def projections(self) -> list[keras.Variable]:
        """The projection of each cluster."""
        tails = range(1, len(self.sizes))
        return [self.weights_by_name[f"projection_{i}"] for i in tails]

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        projections = map(tf.convert_to_tensor, self.projections)
        return [features, *(tf.matmul(features, x) for x in projections)]

    def query_weights(self) -> list[tf.Variable]:
        clusters = [self.clusters] if self.cutoffs else []
        return [x.value for x in (*clusters, *self.projections)]

    def logits_of(
        self, features: tf.Tensor, ids: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        # The log-sum-exp of each part needs all of its class vectors.
        parts = self.parts(features, weights)
        found = [
            best._replace(logits=search.logits_of([part], ids))
            for part, best in zip(parts, search.best(parts, 1))
        ]
        found = self._log_probabilities(features, found)
        logits = tf.zeros(tf.shape(ids))
        for (_, rows), best in zip(parts, found):
            is_here = rows.local_ids(ids) >= 0
            logits = tf.where(is_here, tf.cast(best.logits, tf.float32), logits)
        return logits

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        logits = search.logits(self.parts(features, weights))
        sums = [tf.reduce_logsumexp(x, 1, keepdims=True) for x in logits]
        offsets = self._offsets(features, sums)
        return tf.concat([x + y for x, y in zip(logits, offsets)], axis=1)

    def best(self, features: tf.Tensor, k: int, weights: Any = None) -> Answers:
        found = search.best(self.parts(features, weights), k)
        return self.as_answers(self._log_probabilities(features, found), k)

    def _log_probabilities(self, features, found):
        """The `Best` of each part, with log-probabilities as logits."""
        offsets = self._offsets(features, [x.logsumexp for x in found])
        return [
            x._replace(
                logits=tf.cast(x.logits, y.dtype) + y, logsumexp=x.logsumexp + y
            )
            for x, y in zip(found, offsets)
        ]

    def _offsets(self, features, sums):
        """From products to log-probabilities, `[rows, 1]` for each block."""
        if not self.cutoffs:
            return [-sums[0]]
        clusters = tf.convert_to_tensor(self.clusters)
        of_clusters = tf.matmul(features, clusters, transpose_b=True)
        of_clusters = tf.cast(of_clusters, sums[0].dtype)
        in_head = tf.concat([sums[0], of_clusters], axis=1)
        total = tf.reduce_logsumexp(in_head, axis=1, keepdims=True)
        of_clusters = tf.split(of_clusters - total, len(self.cutoffs), axis=1)
        tails = zip(of_clusters, sums[1:])
        return [-total, *(cluster - own for cluster, own in tails)]

    def exact_loss(self, features: tf.Tensor, targets: Targets) -> tf.Tensor:
        losses = self._head_loss(features, targets)
        for tail in range(1, len(self.sizes)):
            losses += self._tail_loss(tail, features, targets)
        return losses

    def _head_loss(self, features, targets):
        """Cross-entropy of the frequent classes and the clusters."""
        rows = self.class_rows()[0]
        parts, entry = [(features, rows)], targets.ids
        if self.cutoffs:
            first, count = self.sizes[0], len(self.cutoffs)
            bias = None if rows.bias is None else tf.zeros(count)
            of_clusters = rows._replace(
                kernel=self.clusters, bias=bias, first=first, size=count
            )
            parts.append((features, of_clusters))
            tail = sum(tf.cast(entry >= x, tf.int64) for x in self.cutoffs)
            entry = tf.where(tail > 0, first - 1 + tail, entry)
        entries = merge_repeats(Targets(entry, targets.weights))
        return cross_entropy(parts, entries)

    def _tail_loss(self, tail, features, targets):
        """Cross-entropy within a cluster, of the rows with a label there."""
        start, size = self.starts[tail], self.sizes[tail]
        is_here = (targets.ids >= start) & (targets.ids < start + size)
        here = tf.where(tf.reduce_any(is_here, axis=1))[:, 0]
        is_here, ids, weights = (
            tf.gather(x, here) for x in (is_here, targets.ids, targets.weights)
        )
        ids = tf.where(is_here, ids - start, -1)
        weights = tf.where(is_here, weights, 0.0)
        share = tf.reduce_sum(weights, axis=1)
        projection = tf.convert_to_tensor(self.projections[tail - 1])
        queries = tf.matmul(tf.gather(features, here), projection)
        rows = self._rows_if(tail, tf.size(here) > 0)
        # Labels may weigh nothing (`LossOptions.class_weight`).
        weights = tf.math.divide_no_nan(weights, share[:, tf.newaxis])
        losses = cross_entropy([(queries, rows)], Targets(ids, weights))
        batch = tf.shape(features, tf.int64)[:1]
        return tf.scatter_nd(here[:, tf.newaxis], share * losses, batch)

    def _rows_if(self, tail, is_touched):
        """All rows of a cluster, or none; with row-sparse gradients."""
        # Not a tf.cond: its gradient would be dense, zeros for none.
        count = tf.where(is_touched, self.sizes[tail], 0)
        ids = tf.range(tf.cast(count, tf.int64))
        matrix = self.class_matrices[f"kernel_{tail}"]
        return ClassRows(
            *matrix.rows.gather(ids), bfloat16_products=matrix.bfloat16_products
        )

    def activation_bytes(self, batch: int, dim: int) -> int:
        # Tails are gathered whole, to have row-sparse gradients.
        tails = sum(map(math.prod, zip(self.sizes[1:], self._widths(dim))))
        return super().activation_bytes(batch, dim) + 4 * tails

    def get_config(self) -> Config:
        own = {"cutoffs": self.cutoffs, "div_value": self.div_value}
        return super().get_config() | own


def _check_cutoffs(cutoffs, num_classes):
    cutoffs = as_positive_ints("cutoffs", cutoffs)
    pairs = itertools.pairwise([*cutoffs, num_classes])
    is_valid = all(a < b for a, b in pairs)
    most = f"num_classes={num_classes}"
    wanted = f"rising numbers of classes below `num_classes`, {most}"
    check_value("cutoffs", cutoffs, is_valid, wanted)
    return cutoffs
