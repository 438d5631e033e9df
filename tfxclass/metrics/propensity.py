"""Precision that counts rare labels more, as they are missed more often."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers_of_classes
from tfxclass.checks import check_number
from tfxclass.checks import check_one_per_class
from tfxclass.checks import check_positive
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.ranking import RankingMetric
from tfxclass.retrieval import measures
from tfxclass.types import Config


def propensities(
    label_counts: ArrayLike, num_rows: int, a: float = 0.55, b: float = 1.5
) -> np.ndarray:
    """Probability that an applicable label is really among the labels.

    Use it for data sets in which rare labels are often missing. The formula is
    `p = 1 / (1 + C (N_l + b)^-a)` with `C = (log N - 1) (b + 1)^a`. N is the
    number of training examples, and N_l of them have label l.

    Args:
        label_counts: integers `[num_classes]`, number of training examples with
            each label.
        num_rows: int, number of training examples, at least 3.
        a: float > 0. Published values are 0.55, Wikipedia 0.5, Amazon 0.6.
        b: float > 0. Published values are 1.5, Wikipedia 0.4, Amazon 2.6.

    Returns:
        float64 array `[num_classes]`, in (0, 1).

    Example:

    ```python
    p = tfxclass.metrics.propensities([900, 50, 1], num_rows=1_000)
    ```

    References:
        Jain, Prabhu and Varma, Extreme Multi-label Loss Functions, KDD 2016,
        section 3.
    """
    counts = as_numbers_of_classes("label_counts", label_counts)
    # Its logarithm less 1 is a factor.
    check_number("num_rows", num_rows, lambda x: x >= 3, "at least 3")
    check_positive("a", a)
    check_positive("b", b)
    scale = (np.log(num_rows) - 1) * (b + 1) ** a
    return 1 / (1 + scale * (counts + b) ** -a)


def check_propensities(propensities: ArrayLike) -> np.ndarray:
    """Numbers in (0, 1] as a float64 array; ValueError for others."""
    return as_numbers_of_classes(
        "propensities",
        propensities,
        lambda x: (x > 0) & (x <= 1),
        "numbers in (0, 1]",
    )


@keras.saving.register_keras_serializable("tfxclass")
class PropensityScoredPrecisionAtK(RankingMetric):
    """PSP@k: precision where a label counts 1 / its propensity.

    A model that only knows frequent labels has a high P@k and a low PSP@k. The
    sum over all examples is divided by the sum for the best possible ranking,
    as in published results.

    Args:
        head: the head, or its name.
        propensities: floats in (0, 1], `[num_classes]`, from
            `tfxclass.metrics.propensities`. They are saved with the model.
        k, name, dtype: as in `TopKAccuracy`; the name is `psp_at_<k>`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(3)
    p = tfxclass.metrics.propensities([900, 50, 1], num_rows=1_000)
    metric = tfxclass.metrics.PropensityScoredPrecisionAtK(head, p, k=1)
    ```

    References:
        Jain, Prabhu and Varma, Extreme Multi-label Loss Functions, KDD 2016.
    """

    _prefix = "psp_at"

    def __init__(
        self,
        head: OutputHead | str,
        propensities: ArrayLike,
        k: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, k, **kwargs)
        self.propensities = check_propensities(propensities).astype("float32")

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        num_classes = forward.head.num_classes
        check_one_per_class("propensities", self.propensities, num_classes)
        ranks = self.ranks(forward, targets)
        # The mean weighs rows by the best sum: a ratio of sums comes out.
        return tf.math.divide_no_nan(
            *measures.gained(ranks, self._gains(targets), self.k)
        )

    def weights_of(self, targets: Targets) -> tf.Tensor:
        """The gain of each example's best ranking, float32 `[batch]`."""
        none = tf.zeros_like(targets.ids)
        return measures.gained(none, self._gains(targets), self.k)[1]

    def _gains(self, targets):
        p = tf.gather(self.propensities, tf.maximum(targets.ids, 0))
        return tf.where(targets.ids >= 0, 1 / p, 0.0)

    def get_config(self) -> Config:
        numbers = self.propensities.tolist()
        return {**super().get_config(), "propensities": numbers}
