"""Metrics of finished answers, for `Tagger.evaluate` and benchmarks."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_array
from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.metrics.propensity import check_propensities
from tfxclass.retrieval import measures
from tfxclass.retrieval.measures import as_answers

_BLOCK_ROWS = 4096
_MEASURES = (
    measures.precision,
    measures.recall,
    measures.r_precision,
    measures.ndcg,
)


def ranking_scores(
    ids: ArrayLike,
    labels: ArrayLike,
    ks: Iterable[int] = (1, 3, 5),
    propensities: ArrayLike | None = None,
) -> dict[str, float]:
    """The values of `Tagger.evaluate`, but for F1; or ValueError.

    Args:
        ids: integers `[rows, k]`, best first, distinct or -1. At least as many
            columns as the greatest of `ks`, or all classes.
        labels: integers `[rows, p]`, padded with -1. A row without labels does
            not count.
        ks: ints.
        propensities: floats in (0, 1], one a class, for `psp_at_k`.
    """
    sizes = as_positive_ints("ks", ks)
    if not sizes:
        raise ValueError(f"`ks` must have a number. Received: {ks!r}")
    ids, labels = as_answers(ids, labels)
    if propensities is not None:
        gain = 1 / check_propensities(propensities)
        _check_classes("labels", labels, len(gain))
        _check_classes("ids", ids, len(gain))
    columns, most = ids.shape[1], max(sizes)
    greatest = max(ids.max(initial=-1), labels.max(initial=-1))
    if columns < most and greatest >= columns:
        raise ValueError(
            f"`ids` must have at least {most} columns, the greatest of `ks`, "
            f"or one for each class. Received: shape {ids.shape} with class "
            f"{greatest}"
        )
    is_label = labels >= 0
    kept = is_label.any(axis=1)
    if not kept.any():
        raise ValueError(
            "Measures need rows with labels. Received: "
            f"{len(labels)} rows without one"
        )
    ids, labels, is_label = ids[kept, :most], labels[kept], is_label[kept]
    # In blocks: each compares all answers of a row with all of its labels.
    starts = range(_BLOCK_ROWS, len(ids), _BLOCK_ROWS)
    blocks = zip(np.split(ids, starts), np.split(labels, starts))
    ranks = np.concatenate([measures.ranks_of(*at, most) for at in blocks])
    count = tf.constant(is_label.sum(axis=1), tf.float64)
    reciprocal = measures.reciprocal_rank(ranks, count, most)
    results = {"mean_reciprocal_rank": float(np.mean(reciprocal))}
    for k in sizes:
        for measure in _MEASURES:
            values = measure(ranks, count, k)
            results[f"{measure.__name__}_at_{k}"] = float(np.mean(values))
        found = labels[(ranks < k) & is_label]
        coverage = len(np.unique(found)) / len(np.unique(labels[is_label]))
        results[f"coverage_at_{k}"] = coverage
        if propensities is not None:
            gains = np.where(is_label, gain[np.maximum(labels, 0)], 0.0)
            gained, best = measures.gained(ranks, tf.constant(gains), k)
            results[f"psp_at_{k}"] = float(np.sum(gained) / np.sum(best))
    return results


def f1_scores(
    ids: ArrayLike,
    probabilities: ArrayLike,
    labels: ArrayLike,
    num_classes: int,
    threshold: float = 0.5,
) -> tuple[float, float]:
    """`(micro, macro)`, what `F1Score` computes of a head; or ValueError.

    Args:
        ids, probabilities: `[rows, k]`, all classes that reach the threshold;
            ids are -1 for none.
        labels: integers `[rows, p]`, padded with -1.
        num_classes: int.
        threshold: float.
    """
    num_classes = check_positive_int("num_classes", num_classes)
    if np.isnan(threshold):
        raise ValueError("`threshold` must be a number. Received: NaN")
    ids, labels = as_answers(ids, labels)
    probabilities = as_array("probabilities", probabilities)
    if ids.shape != probabilities.shape:
        raise ValueError(
            "`ids` and `probabilities` must have shape [rows, k]. "
            f"Received: shapes {ids.shape} and {probabilities.shape}"
        )
    if not len(ids):
        raise ValueError("F1 needs rows. Received: none")
    if np.isnan(probabilities[ids >= 0]).any():
        raise ValueError("`probabilities` must be numbers. Received: NaN")
    _check_classes("ids", ids, num_classes)
    _check_classes("labels", labels, num_classes)
    # A number for each pair of row and class.
    first = num_classes * np.arange(len(ids))[:, np.newaxis]
    answers = (first + ids)[(probabilities >= threshold) & (ids >= 0)]
    wanted = (first + labels)[labels >= 0]
    hits, answers, total = (
        np.bincount(pairs % num_classes, minlength=num_classes)
        for pairs in (np.intersect1d(answers, wanted), answers, wanted)
    )
    total = total + answers
    micro = 2 * hits.sum() / max(total.sum(), 1)
    macro = (2 * hits / np.maximum(total, 1)).sum()
    return float(micro), float(macro / max((total > 0).sum(), 1))


def _check_classes(name, ids, num_classes):
    most = int(ids.max(initial=-1))
    wanted = f"below the number of classes, {num_classes}"
    check_value(name, most, most < num_classes, wanted)
