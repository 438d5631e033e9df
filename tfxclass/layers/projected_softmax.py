"""Softmax over features in a random projection: a slim class matrix."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses import softmax


def check_penalty(l2):
    """Raises ValueError unless `l2` is a number >= 0."""
    if not 0 <= l2 < float("inf"):
        raise ValueError(f"`l2` must be >= 0. Received: {l2}")


@keras.saving.register_keras_serializable("tfxclass")
class ProjectedSoftmax(SampledSoftmax):
    """Softmax whose class rows live in a random projection of the features.

    Features `[batch, dim]` go through a fixed Gaussian matrix `projection`
    `[dim, projection_dim]` with entries N(0, 1 / projection_dim), which keeps
    inner products on average. The class matrix, its slots and each product
    with it shrink by `dim / projection_dim`. After training,
    `tfxclass.recovery.recover` gives the class matrix in full width.

    Without a sampler the loss is exact, in blocks, as `FullSoftmax`'s; with
    one, a step computes `num_sampled` classes, as `SampledSoftmax`'s.

    Args:
        num_classes: int, number of classes.
        projection_dim: int m, width of a class row.
        num_sampled: int, classes a step; only with a sampler's name.
        sampler: None for all classes, or as in `SampledSoftmax`.
        l2: float >= 0: `l2 / 2 * |kernel|^2` is added to the training loss.
            With a sampler, over the rows of a step, weighted by the inverse of
            their chance to be in it: the same on average, and as sparse.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.ProjectedSoftmax(1_000_000, 100, l2=1e-6)
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    >>> model.fit(data)
    >>> full = tfxclass.recovery.recover(model, data)

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020 ("RP").
    """

    sampler_is_optional = True

    def __init__(
        self,
        num_classes,
        projection_dim=100,
        num_sampled=None,
        sampler=None,
        l2=0.0,
        **kwargs,
    ):
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        check_positive_int("projection_dim", projection_dim)
        check_penalty(l2)
        if l2 and self.similarity == "cosine":
            raise ValueError(
                '`l2` needs similarity="dot": cosine logits do not depend on '
                f"the length of a row. Received: l2={l2}"
            )
        self.projection_dim = int(projection_dim)
        self.l2 = l2

    def build(self, input_shape):
        self.check_features(input_shape)
        self.projection = self.add_weight(
            name="projection",
            shape=(input_shape[-1], self.projection_dim),
            initializer=keras.initializers.RandomNormal(
                stddev=self.projection_dim**-0.5, seed=self.seed
            ),
            trainable=False,
            dtype="float32",
            autocast=False,
        )
        super().build((input_shape[0], self.projection_dim))

    def queries(self, features):
        """float32 `[batch, projection_dim]`: logits are `queries . rows`."""
        features = tf.cast(features, tf.float32)
        return super().queries(tf.matmul(features, self.projection))

    def query_weights(self):
        return [self.projection.value]

    def parts(self, features):
        """List of `(queries, softmax.Blocks)` whose logits are all classes'."""
        queries = self.queries(features)
        bias = None if self.bias is None else tf.convert_to_tensor(self.bias)
        normalize = self.similarity == "cosine"
        batch = tf.shape(queries)[0]
        kernel = self.class_matrix()
        return [(queries, softmax.Blocks(kernel, bias, normalize, batch))]

    def projected_rows(self):
        """List of `(projection, rows)`: logits are `x . projection . rows`."""
        return [(tf.convert_to_tensor(self.projection), self.class_matrix())]

    def compute_training_loss(self, queries, targets):
        if self.sampler is not None:
            return super().compute_training_loss(queries, targets)
        losses = self.exact_loss(queries, targets, self.target_margin())
        if not self.l2:
            return losses
        return losses + self.l2 * tf.nn.l2_loss(self.class_matrix())

    def sampled_loss(self, logits, sample, targets):
        losses = super().sampled_loss(logits, sample, targets)
        if not self.l2:
            return losses
        squares = tf.reduce_sum(tf.square(self.rows(sample.ids)), axis=1)
        squares *= tf.exp(-sample.log_expected_count)
        return losses + 0.5 * self.l2 * tf.reduce_sum(squares)

    def get_config(self):
        return {
            **super().get_config(),
            "projection_dim": self.projection_dim,
            "l2": self.l2,
        }
