"""Each label's threshold that makes F1 greatest, from the best of each row."""

from typing import NamedTuple

import numpy as np

_MAX_ROUNDS = 100
# Chosen on held-out halves of Bibtex and Delicious, by micro- and macro-F1.
SHRINKAGE = 20.0
_TINY = 1e-4


class Pairs(NamedTuple):
    """Pairs of row and class that may be answers, arrays `[n]`.

    `scores` are no NaN. `positives`, `[num_classes]`, count all rows with each
    label.
    """

    ids: np.ndarray
    scores: np.ndarray
    hits: np.ndarray
    positives: np.ndarray


def best_thresholds(
    pairs: Pairs, average: str = "micro", shrinkage: float = SHRINKAGE
) -> tuple[np.ndarray, float]:
    """Thresholds, float32 `[num_classes]`, and the F1 that they reach.

    A label of few rows tells too little: its log odds are averaged with the log
    odds of the best threshold of all pairs, which count as `shrinkage` rows.
    """
    positives = pairs.positives
    num_classes = len(positives)
    found = _best(pairs, average, np.arange(num_classes))
    if shrinkage:
        of_all = _best(pairs, average, np.zeros(num_classes, np.int64))
        share = positives / (positives + shrinkage)
        odds = share * _log_odds(found) + (1 - share) * _log_odds(of_all)
        found = (1 / (1 + np.exp(-odds))).astype(np.float32)
    is_answer = pairs.scores >= found[pairs.ids]
    answers, hits = (
        np.bincount(pairs.ids[kept], minlength=num_classes)
        for kept in (is_answer, is_answer & pairs.hits)
    )
    total = answers + positives
    if average == "micro":
        return found, float(2 * hits.sum() / max(total.sum(), 1))
    f1 = 2 * hits / np.maximum(total, 1)
    return found, float(f1.sum() / max((total > 0).sum(), 1))


def _log_odds(p):
    p = np.clip(p.astype(np.float64), _TINY, 1 - _TINY)
    return np.log(p / (1 - p))


def _best(pairs, average, group_of):
    """Thresholds of the classes, one for each group of them.

    A cut is how many of a group's pairs, best first, are answers. Macro-F1 is a
    sum over groups. For micro-F1, 2 hits / (answers + positives), each group's
    cut has the greatest 2 hits - F1 * answers, for the F1 that the cuts reach
    (Dinkelbach, On Nonlinear Fractional Programming, 1967; Fan and Lin, A Study
    on Threshold Selection for Multi-label Classification, 2007).
    """
    count = int(group_of.max()) + 1
    group = group_of[pairs.ids]
    order = np.lexsort((-pairs.scores, group))
    group, scores = group[order], pairs.scores[order]
    if not len(group):
        return np.full(len(group_of), 0.5, np.float32)
    sizes = np.bincount(group, minlength=count)
    starts = np.cumsum(sizes) - sizes
    positives = np.bincount(group_of, pairs.positives, count)
    # Of each pair: its place in the group from 1, and the hits up to there.
    rank = np.arange(len(group)) - starts[group] + 1
    hits = np.concatenate([[0], np.cumsum(pairs.hits[order])])
    hits = hits[1:] - hits[starts[group]]
    # Equal scores are cut off together.
    may_end = np.ones(len(group), bool)
    may_end[:-1] = (group[1:] != group[:-1]) | (scores[1:] != scores[:-1])
    used = np.flatnonzero(sizes)

    def cuts_of(gains):
        """The first place of each group's greatest gain above 0, from 1."""
        gains = np.where(may_end, gains, -np.inf)
        most = np.zeros(count)
        most[used] = np.maximum.reduceat(gains, starts[used])
        at = np.flatnonzero((gains == most[group]) & (gains > 0))[::-1]
        cuts = np.zeros(count, np.int64)
        cuts[group[at]] = rank[at]
        return cuts

    if average == "macro":
        totals = np.maximum(rank + positives[group], 1)
        cuts = cuts_of(2 * hits / totals)
    else:
        f1 = 0.0
        for _ in range(_MAX_ROUNDS):
            cuts = cuts_of(2 * hits - f1 * rank)
            cut = np.flatnonzero(cuts)
            found = hits[starts[cut] + cuts[cut] - 1].sum()
            reached = 2 * found / max(cuts.sum() + positives.sum(), 1)
            if reached <= f1:
                break
            f1 = reached
    # A threshold is half-way from the last answer to the first other pair.
    scores = scores.astype(np.float64)
    last = np.where(cuts > 0, scores[starts + cuts - 1], 1.0)
    following = np.minimum(starts + cuts, len(scores) - 1)
    below = np.where(cuts < sizes, scores[following], last)
    middle = (last + below) / 2
    # The mean of two neighbors may be rounded to the lower one.
    at_last = np.where(middle.astype(np.float32) <= below, last, middle)
    above = np.nextafter(below.astype(np.float32), np.float32(2))
    found = np.where(cuts > 0, at_last, np.maximum(middle, above))
    return np.where(sizes > 0, found, 0.5).astype(np.float32)[group_of]
