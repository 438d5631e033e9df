"""Projected softmax whose rows are narrower for rarer classes."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.layers.block_head import BlockHead
from tfxclass.layers.frequency import split_by_frequency
from tfxclass.layers.projected_softmax import check_penalty
from tfxclass.losses import softmax
from tfxclass.losses.block_softmax import block_cross_entropy


@keras.saving.register_keras_serializable("tfxclass")
class AdaptiveProjectedSoftmax(BlockHead):
    """Exact softmax over random projections, wide for frequent classes: RP-A.

    Classes are numbered by falling frequency and lie in groups; the rows of a
    group have its `projection_dims` m. All groups read the same projected
    features, `features . projection`, each its first m columns over sqrt(m):
    the projection is computed once. A step costs four products of [batch, m]
    by [m, size] for each group and moves every row.
    `tfxclass.recovery.recover` gives the class matrix in full width.

    Args:
        num_classes: int, number of classes.
        counts: numbers >= 0, `[num_classes]`, falling: how often each class
            occurs. The groups get about equal shares of all occurrences.
        group_sizes: list of ints >= 1, classes of each group, instead.
        projection_dims: ints, width of a row in each group.
        l2: float >= 0: `l2 / 2` times the squares of all rows is added to the
            training loss.
        **kwargs: `BlockHead`'s arguments.

    Raises:
        ValueError: neither or both of `counts` and `group_sizes`, or sizes
            that do not fit.

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020 ("RP-A").
    """

    def __init__(
        self,
        num_classes,
        counts=None,
        group_sizes=None,
        projection_dims=(100, 70, 40, 10),
        l2=0.0,
        **kwargs,
    ):
        check_positive_int("num_classes", num_classes)
        for width in projection_dims:
            check_positive_int("projection_dims", width)
        check_penalty(l2)
        sizes = _group_sizes(
            num_classes, counts, group_sizes, len(projection_dims)
        )
        super().__init__(num_classes, sizes, **kwargs)
        self.group_sizes = sizes
        self.projection_dims = [int(width) for width in projection_dims]
        self.l2 = l2

    def build(self, input_shape):
        self.check_features(input_shape)
        self.projection = self.add_weight(
            name="projection",
            shape=(input_shape[-1], max(self.projection_dims)),
            initializer=keras.initializers.RandomNormal(
                stddev=1.0, seed=self.seed
            ),
            trainable=False,
            dtype="float32",
            autocast=False,
        )
        self.add_kernels(self.projection_dims)

    def weights_by_name(self):
        return {**super().weights_by_name(), "projection": [self.projection]}

    def block_queries(self, queries, weights):
        projected = tf.matmul(queries, weights["projection"][0])
        return [projected[:, :m] / m**0.5 for m in self.projection_dims]

    def projected_rows(self):
        """List of `(projection, rows)`: logits are `x . projection . rows`."""
        weights = self.tensors()
        projection = weights["projection"][0]
        return [
            (projection[:, :m] / m**0.5, rows)
            for m, rows in zip(self.projection_dims, weights["kernels"])
        ]

    def compute_training_loss(self, queries, targets):
        losses = self.exact_loss(queries, targets)
        if not self.l2:
            return losses
        kernels = self.tensors()["kernels"]
        return losses + self.l2 * tf.add_n([tf.nn.l2_loss(x) for x in kernels])

    def exact_loss(self, queries, targets):
        weights = self.tensors()
        return block_cross_entropy(
            self.block_queries(queries, weights), weights["kernels"], targets
        )

    def parts(self, features):
        """List of `(queries, softmax.Blocks)` whose logits are all classes'."""
        queries = self.queries(features)
        batch = tf.shape(queries)[0]
        parts = zip(self._blocks(queries, self.tensors()), self.starts)
        return [
            (x, softmax.Blocks(rows, None, False, batch, start))
            for (x, rows), start in parts
        ]

    def get_config(self):
        return {
            **super().get_config(),
            "group_sizes": self.group_sizes,
            "projection_dims": self.projection_dims,
            "l2": self.l2,
        }


def _group_sizes(num_classes, counts, group_sizes, num_groups):
    if (counts is None) == (group_sizes is None):
        raise ValueError(
            "Give either `counts`, how often each class occurs, or "
            "`group_sizes`. Received: "
            + ("neither." if counts is None else "both.")
        )
    if counts is not None:
        if len(counts) != num_classes:
            raise ValueError(
                "`counts` must have a number for each class. Received: "
                f"{len(counts)} counts with num_classes={num_classes}."
            )
        return split_by_frequency(counts, num_groups)
    for size in group_sizes:
        check_positive_int("group_sizes", size)
    if len(group_sizes) != num_groups or sum(group_sizes) != num_classes:
        raise ValueError(
            "`group_sizes` must have a size for each of `projection_dims` and "
            f"sum up to `num_classes`. Received: {list(group_sizes)}, "
            f"{sum(group_sizes)} classes in {len(group_sizes)} groups, with "
            f"{num_groups} projection_dims and num_classes={num_classes}."
        )
    return [int(size) for size in group_sizes]
