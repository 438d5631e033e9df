"""Softmax over features in a random projection: a slim class matrix."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Step
from tfxclass.core.forward import flatten
from tfxclass.core.targets import Targets
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import random_projection
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class ProjectedSoftmax(SampledSoftmax):
    """Softmax with short class vectors, over a random projection of features.

    Use it to train with a smaller class matrix. Features `[batch, dim]` are
    multiplied by a fixed Gaussian matrix `projection`, `[dim, projection_dim]`,
    with entries N(0, 1 / projection_dim). The class matrix, its optimizer state
    and the products with it shrink by `dim / projection_dim`. After training,
    `tfxclass.recovery.recover` gives the class matrix in full width.

    Args:
        projection_dim: int, width of a class vector.
        sampler: as in `SampledSoftmax`. Defaults to None: all classes.
        l2: float >= 0. `l2 / 2 * |kernel|^2` is added to the training loss.
            With a sampler, which has to correct its counts, the class vectors
            of the step, each divided by its expected count, estimate it.
        **kwargs: other arguments of `SampledSoftmax`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.ProjectedSoftmax(500, 16, l2=1e-6)
    model = keras.Sequential([keras.Input([64]), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    x = np.random.default_rng(0).normal(size=[1000, 64])
    y = np.arange(1000) % 500
    model.fit(x, y, verbose=0)
    full = tfxclass.recovery.recover(model, (x, y))
    ```

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020 ("RP").
    """

    default_sampler = None

    # The recovery is of a softmax.
    loss_kinds = SOFTMAX_ALONE

    def __init__(
        self,
        num_classes: int,
        projection_dim: int = 100,
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        name = "projection_dim"
        self.projection_dim = check_positive_int(name, projection_dim)
        check_nonnegative("l2", l2)
        if l2 and self.similarity == "cosine":
            raise ValueError(
                '`l2` needs similarity="dot": cosine logits do not depend on '
                f"the length of a class vector. Received: l2={l2}"
            )
        self.check_estimates("l2", l2)
        self.l2 = l2

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        m = self.projection_dim
        projection = random_projection(dim, m, m**-0.5, self.seed)
        return [*super().weight_specs(m), projection]

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        return super().shared_rows(self.projection_dim)

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """Projected features, float32 `[rows, projection_dim]`."""
        return super().queries(tf.matmul(flatten(features), self.projection))

    def query_weights(self) -> list[tf.Variable]:
        return [self.projection.value]

    def projected_rows(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Lists `(projection, rows)`: logits are `x . projection . rows`."""
        return [
            (tf.convert_to_tensor(self.projection), self.class_matrix.values())
        ]

    @property
    def steps_by_class(self) -> bool:
        is_plain = self.sampler is None and not self.l2
        return is_plain and self.is_exact_softmax

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        step = super().training_step(features, targets)
        if not self.l2 or self.is_sampled:
            return step
        penalty = self.l2 * tf.nn.l2_loss(self.class_matrix.values())
        return step._replace(losses=step.losses + penalty)

    def may_skip_rows(self) -> bool:
        # The penalty is part of every row's loss.
        return not self.l2 and super().may_skip_rows()

    def sampled_penalty(
        self, kernel: tf.Tensor, sample: Sample
    ) -> tf.Tensor | float:
        if not self.l2:
            return 0.0
        squares = tf.reduce_sum(tf.square(kernel), axis=1)
        # Where rows have counts of their own, each has its own estimate.
        weighted = sample.inverse_counts * squares
        return 0.5 * self.l2 * tf.reduce_sum(weighted, axis=-1)

    def get_config(self) -> Config:
        own = {"projection_dim": self.projection_dim, "l2": self.l2}
        return super().get_config() | own
