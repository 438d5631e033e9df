"""Metrics of answers that are there already.

`Tagger.evaluate` and benchmarks use them: they take the best k classes of each
row. While a head is trained or evaluated by Keras, its metrics come from the
other files of this folder.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_array
from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_positive_int
from tfxclass.metrics.propensity import check_propensities
from tfxclass.retrieval import measures
from tfxclass.retrieval.measures import as_answers

_MEASURES = (
    measures.precision,
    measures.recall,
    measures.r_precision,
    measures.ndcg,
)
_NO_ROWS = "Received: none. Fix: call `update` first, on rows of your data"


class RankingScores:
    """Precision, recall, R-precision, nDCG, PSP, coverage at k, and MRR.

    Rows without labels count for nothing. The names are `precision_at_k`,
    `recall_at_k`, `r_precision_at_k`, `ndcg_at_k`, `psp_at_k` with
    propensities, `coverage_at_k`, and `mean_reciprocal_rank` up to the greatest
    k. `tfxclass.metrics` defines them.

    Args:
        ks: ints.
        propensities: floats in (0, 1], one a class, see
            `tfxclass.metrics.propensities`; or None.

    Example:

    >>> scores = RankingScores(ks=(1, 5))
    >>> for x, labels in batches:
    ...     ids, _ = best.predict(x)
    ...     scores.update(ids, labels)
    >>> scores.result()["recall_at_5"]
    """

    def __init__(
        self,
        ks: Iterable[int] = (1, 3, 5),
        propensities: ArrayLike | None = None,
    ) -> None:
        self.ks = tuple(as_positive_ints("ks", ks))
        if not self.ks:
            raise ValueError(f"`ks` must have a number. Received: {ks!r}")
        self._gain = None
        if propensities is not None:
            self._gain = 1 / check_propensities(propensities)
        self._rows = 0
        self._sums: dict[str, float] = defaultdict(float)
        self._best_gains: dict[str, float] = defaultdict(float)
        self._seen: set[int] = set()
        self._found = {k: set[int]() for k in self.ks}

    def update(self, ids: ArrayLike, labels: ArrayLike) -> None:
        """Takes in a batch.

        Args:
            ids: integers `[batch, k]`, best first; -1 where there are fewer.
                None may be in a row twice. At least as many columns as the
                greatest of `ks`, or all classes.
            labels: integers `[batch, p]`, padded with -1. A repeated label
                counts once.

        Raises:
            ValueError: shapes that do not agree, or ids that are no integers,
                repeated or out of range.
        """
        ids, labels = as_answers(ids, labels)
        self._check_columns(ids, labels)
        if self._gain is not None:
            _check_classes("labels", labels, len(self._gain))
            _check_classes("ids", ids, len(self._gain))
        kept = (labels >= 0).any(axis=1)
        ids, labels = ids[kept], labels[kept]
        most, count = max(self.ks), (labels >= 0).sum(axis=1) * 1.0
        ranks = measures.ranks_of(ids, labels, max(most, ids.shape[1]))
        count = tf.constant(count, tf.float64)
        self._rows += len(ids)
        self._seen.update(np.unique(labels[labels >= 0]).tolist())
        reciprocal = measures.reciprocal_rank(ranks, count, most)
        self._sums["mean_reciprocal_rank"] += reciprocal.numpy().sum()
        for k in self.ks:
            for measure in _MEASURES:
                values = measure(ranks, count, k).numpy()
                self._sums[f"{measure.__name__}_at_{k}"] += values.sum()
            is_found = (ranks.numpy() < k) & (labels >= 0)
            self._found[k].update(np.unique(labels[is_found]).tolist())
            if self._gain is not None:
                own = self._gain[np.maximum(labels, 0)]
                gains = tf.constant(np.where(labels >= 0, own, 0.0))
                reached, best = measures.gained(ranks, gains, k)
                self._sums[f"psp_at_{k}"] += reached.numpy().sum()
                self._best_gains[f"psp_at_{k}"] += best.numpy().sum()

    def _check_columns(self, ids, labels):
        columns = ids.shape[1]
        most = max(ids.max(initial=-1), labels.max(initial=-1))
        if columns < max(self.ks) and most >= columns:
            raise ValueError(
                f"`ids` must have at least {max(self.ks)} columns, the "
                f"greatest of `ks`, or one for each class. Received: shape "
                f"{ids.shape} with class {most}"
            )

    def result(self) -> dict[str, float]:
        """dict of floats by name.

        Raises:
            ValueError: no row with a label.
        """
        if not self._rows:
            raise ValueError(f"Measures need rows with labels. {_NO_ROWS}")
        results = {
            # Gains are divided by those of the best possible ranking.
            name: float(total / self._best_gains.get(name, self._rows))
            for name, total in self._sums.items()
        }
        for k in self.ks:
            share = len(self._found[k]) / len(self._seen)
            results[f"coverage_at_{k}"] = share
        return results


def _check_classes(name, ids, num_classes):
    most = ids.max(initial=-1)
    if most >= num_classes:
        raise ValueError(
            f"`{name}` must be below the number of classes. Received: {most} "
            f"with {num_classes} classes"
        )


class F1Scores:
    """Micro- and macro-F1 of the classes whose probability reaches a threshold.

    `micro_f1` counts all pairs of row and class together; `macro_f1` is the
    mean over the classes that were a label or were predicted, of each class'
    2 tp / (2 tp + fp + fn).

    Args:
        num_classes: int.
        threshold: float.
    """

    def __init__(self, num_classes: int, threshold: float = 0.5) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        if np.isnan(threshold):
            raise ValueError("`threshold` must be a number. Received: NaN")
        self.threshold = threshold
        self._hits = np.zeros(num_classes, np.int64)
        self._predicted = np.zeros(num_classes, np.int64)
        self._labels = np.zeros(num_classes, np.int64)
        self._rows = 0

    def update(
        self, ids: ArrayLike, probabilities: ArrayLike, labels: ArrayLike
    ) -> None:
        """Takes in a batch.

        Args:
            ids: integers `[batch, k]`, classes of each row, -1 for none; all
                that reach the threshold must be among them.
            probabilities: floats `[batch, k]`.
            labels: integers `[batch, p]`, padded with -1.

        Raises:
            ValueError: shapes that do not agree, or ids that are no integers,
                repeated or out of range.
        """
        ids, labels = as_answers(ids, labels)
        probabilities = as_array("probabilities", probabilities)
        if ids.shape != probabilities.shape:
            raise ValueError(
                "`ids` and `probabilities` must have shape [batch, k]. "
                f"Received: shapes {ids.shape} and {probabilities.shape}"
            )
        if np.isnan(probabilities[ids >= 0]).any():
            raise ValueError("`probabilities` must be numbers. Received: NaN")
        _check_classes("ids", ids, len(self._labels))
        _check_classes("labels", labels, len(self._labels))
        self._rows += len(ids)
        same = ids[:, :, np.newaxis] == labels[:, np.newaxis, :]
        hits = same.any(axis=2) & (ids >= 0)
        above = (probabilities >= self.threshold) & (ids >= 0)
        np.add.at(self._labels, labels[labels >= 0], 1)
        np.add.at(self._predicted, ids[above], 1)
        np.add.at(self._hits, ids[above & hits], 1)

    def result(self) -> tuple[float, float]:
        """`(micro, macro)`, two floats.

        Raises:
            ValueError: no rows.
        """
        if not self._rows:
            raise ValueError(f"F1 needs rows. {_NO_ROWS}")
        total = self._predicted + self._labels
        micro = 2 * self._hits.sum() / max(total.sum(), 1)
        macro = (2 * self._hits / np.maximum(total, 1)).sum()
        return float(micro), float(macro / max((total > 0).sum(), 1))
