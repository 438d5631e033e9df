"""The exact highest responses of the batch."""

import keras
import tensorflow as tf

from tfxclass.rows import search
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.types import Scalar
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class TopKSampler(NeighborSampler):
    """Labels, the classes with the greatest logits, and uniform samples.

    Use it to compare other samplers with: it finds exactly what an index
    approximates ("optimal" in the paper). A training step costs a product of
    [batch, dim] by [dim, num_classes], in blocks. If the batch finds too many
    classes, the greatest logits stay. Biases do not count. Classes are ranked
    by logits, because the loss and its gradient are made of them. The paper
    ranks by cosine: docs/papers/selective_softmax.md compares both.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        num_neighbors: int, number of classes that each example contributes. By
            default as many as fill the places reserved for similar classes.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found.
        seed: int, seed of the sampling.

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
