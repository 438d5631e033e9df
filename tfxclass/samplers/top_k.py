"""The exact highest responses of the batch."""

import keras
import tensorflow as tf

from tfxclass.rows import search
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.types import Scalar
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class TopKSampler(NeighborSampler):
    """The labels of the batch, the classes with the greatest logits, a fill.

    The selection that an index approximates: "optimal" in the paper. A step
    costs a product of [batch, dim] by [dim, num_classes], in blocks, as
    prediction does: for comparisons, not for speed. Where a row finds too many,
    the greatest logits of the batch stay; biases do not count.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_neighbors: int Q, classes taken for a row of the batch;
            by default as many as fill the candidates' part of the sample.
        neighbor_fraction: float in (0, 1], their part of what labels leave.
        correct_fill: whether the fill is weighted.
        seed: int.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    is_exact = True
    is_stateless = True
    sample_overflow = False

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.built = True

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return search.top_k(
            queries,
            tf.convert_to_tensor(kernel),
            tf.cast(num_neighbors, tf.int32),
            normalize=self.similarity == "cosine",
        )
