"""The exact highest responses of the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_fraction
from tfxclass.checks import check_optional_int
from tfxclass.rows import search
from tfxclass.samplers.indexed import candidate_count
from tfxclass.samplers.indexed import neighbors_a_row
from tfxclass.samplers.indexed import sample_with_candidates
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.sampler import count_labels
from tfxclass.types import Scalar
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class TopKSampler(Sampler):
    """Labels, the classes with the greatest logits, and uniform samples.

    Use it to compare other samplers with: it finds exactly what an index
    approximates ("optimal" in the paper). A training step costs a product of
    [batch, dim] by [dim, num_classes], in blocks. If the batch finds too many
    classes, the greatest logits stay. Biases do not count. The paper's forest
    ranks by cosine: docs/papers/selective_softmax.md compares both.

    Args:
        num_sampled, seed: as in `Sampler`.
        num_neighbors: int, number of classes that each example contributes. By
            default as many as fill the places reserved for similar classes.
        neighbor_fraction, correct_fill: as in `HashingForestSampler`.

    References:
        See `HashingForestSampler`.
    """

    is_stateless = True
    sample_overflow = False

    def __init__(
        self,
        num_sampled: int | None = None,
        num_neighbors: int | None = None,
        neighbor_fraction: float = 0.5,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.num_neighbors = check_optional_int("num_neighbors", num_neighbors)
        self.neighbor_fraction = check_fraction(
            "neighbor_fraction", neighbor_fraction
        )
        self.correct_fill = self.estimates_sums = correct_fill

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, num_neighbors]`, scores are logits."""
        return search.top_k(
            queries,
            tf.convert_to_tensor(kernel),
            tf.cast(num_neighbors, tf.int32),
            normalize=self.normalize,
        )

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        num_sampled = self.size_for(count_labels(target_ids))
        wanted = neighbors_a_row(
            queries,
            target_ids,
            candidate_count(num_sampled, self.neighbor_fraction),
            self.num_neighbors,
            self.num_classes,
        )
        found = self.neighbors(queries, kernel, wanted)
        return sample_with_candidates(
            self, target_ids, num_sampled, found, self.neighbor_fraction
        )
