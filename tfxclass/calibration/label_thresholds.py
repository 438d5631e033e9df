"""Each label's threshold that makes F1 greatest, from the best of each row."""

from typing import NamedTuple

import numpy as np

_MAX_ROUNDS = 100
# Chosen on held-out halves of Bibtex and Delicious, by micro- and macro-F1.
SHRINKAGE = 20.0
_TINY = 1e-4


class Pairs(NamedTuple):
    """Pairs of row and class that may be answers.

    Attributes:
        ids: int64 `[n]`, the class.
        scores: float32 `[n]`, its probability.
        hits: bool `[n]`, whether it is a label of the row.
        positives: int64 `[num_classes]`, rows with each label, those counted
            of which it is no pair.
    """

    ids: np.ndarray
    scores: np.ndarray
    hits: np.ndarray
    positives: np.ndarray


def best_thresholds(
    pairs: Pairs, average: str = "micro", shrinkage: float = SHRINKAGE
) -> tuple[np.ndarray, float]:
    """Thresholds, and the F1 that they reach on these pairs.

    For micro-F1, 2 hits / (answers + positives) over all labels, each label's
    cut is the one with the greatest 2 hits - F1 * answers, for the F1 that the
    cuts themselves reach (Dinkelbach's algorithm: it rises until nothing
    changes, and then is the greatest). Macro-F1 is a sum over labels.

    A label of few rows tells too little of its own: its log odds are averaged
    with the log odds of the one threshold that is best for all pairs together,
    which counts as much as `shrinkage` rows with the label.

    Args:
        pairs: `Pairs`.
        average: `"micro"` or `"macro"`.
        shrinkage: float >= 0; 0 leaves each label's own.

    Returns:
        `(thresholds, f1)`: float32 `[num_classes]`, and float.

    Raises:
        ValueError: scores that are NaN.

    References:
        Dinkelbach, On Nonlinear Fractional Programming, 1967. Fan and Lin, A
        Study on Threshold Selection for Multi-label Classification, 2007.
    """
    num_classes = len(pairs.positives)
    if np.isnan(pairs.scores).any():
        raise ValueError(
            "`scores` must be numbers. Received: NaN in "
            f"{int(np.isnan(pairs.scores).sum())} of {len(pairs.scores)} pairs"
        )
    of_each = _best(pairs, average, np.arange(num_classes))
    of_all = _best(pairs, average, np.zeros(num_classes, np.int64))
    found = _shrunk(of_each, of_all, pairs.positives, shrinkage)
    answers, hits = _counts(pairs, found, num_classes)
    total = answers + pairs.positives
    if average == "micro":
        return found, float(2 * hits.sum() / max(total.sum(), 1))
    f1 = 2 * hits / np.maximum(total, 1)
    return found, float(f1.sum() / max((total > 0).sum(), 1))


def _best(pairs, average, group_of):
    """Thresholds of the classes, one for each group of them."""
    groups = _Groups(pairs, group_of, int(group_of.max()) + 1)
    cuts = groups.micro() if average == "micro" else groups.macro()
    return groups.thresholds(cuts)[group_of]


def _shrunk(of_each, of_all, positives, shrinkage):
    if not shrinkage:
        return of_each
    share = positives / (positives + shrinkage)
    odds = share * _log_odds(of_each) + (1 - share) * _log_odds(of_all)
    return (1 / (1 + np.exp(-odds))).astype(np.float32)


def _log_odds(p):
    p = np.clip(p.astype(np.float64), _TINY, 1 - _TINY)
    return np.log(p / (1 - p))


def _counts(pairs, thresholds, num_classes):
    """Answers and hits of each class, int64 `[num_classes]`."""
    is_answer = pairs.scores >= thresholds[pairs.ids]
    return tuple(
        np.bincount(pairs.ids[kept], minlength=num_classes)
        for kept in (is_answer, is_answer & pairs.hits)
    )


class _Groups:
    """Pairs by group, best first; a cut is how many of a group are answers."""

    def __init__(self, pairs, group_of, count):
        group = group_of[pairs.ids]
        order = np.lexsort((-pairs.scores, group))
        group, self.scores = group[order], pairs.scores[order]
        hits = pairs.hits[order]
        self.sizes = np.bincount(group, minlength=count)
        self.starts = np.cumsum(self.sizes) - self.sizes
        before = np.concatenate([[0], np.cumsum(hits)])
        self.rank = np.arange(len(hits)) - self.starts[group] + 1
        self.hits = before[1:] - before[self.starts[group]]
        self.positives = np.bincount(
            group_of, weights=pairs.positives, minlength=count
        )
        self.group = group
        # Equal scores are cut off together.
        self.may_end = np.ones(len(hits), bool)
        same = (group[1:] == group[:-1]) & (self.scores[1:] == self.scores[:-1])
        self.may_end[:-1] = ~same

    def macro(self):
        totals = self.rank + self.positives[self.group]
        return self._best(2 * self.hits / np.maximum(totals, 1))

    def micro(self):
        f1, cuts = 0.0, None
        for _ in range(_MAX_ROUNDS):
            cuts = self._best(2 * self.hits - f1 * self.rank)
            hits = self._hits_of(cuts).sum()
            total = max(cuts.sum() + self.positives.sum(), 1)
            reached = 2 * hits / total
            if reached <= f1:
                break
            f1 = reached
        return cuts

    def _best(self, gains):
        """The first place of each group's greatest gain above 0, from 1."""
        gains = np.where(self.may_end, gains, -np.inf)
        cuts = np.zeros(len(self.sizes), np.int64)
        used = np.flatnonzero(self.sizes)
        if not len(used):
            return cuts
        most = np.zeros(len(self.sizes))
        most[used] = np.maximum.reduceat(gains, self.starts[used])
        is_best = (gains == most[self.group]) & (gains > 0)
        at = np.flatnonzero(is_best)[::-1]
        cuts[self.group[at]] = self.rank[at]
        return cuts

    def _hits_of(self, cuts):
        used = np.flatnonzero(cuts)
        return self.hits[self.starts[used] + cuts[used] - 1]

    def thresholds(self, cuts):
        """float32 of each group: half-way to the first that is no answer."""
        found = np.full(len(cuts), 0.5)
        for g in np.flatnonzero(self.sizes):
            start = self.starts[g]
            scores = self.scores[start : start + self.sizes[g]]
            cut = cuts[g]
            last = scores[cut - 1] if cut else 1.0
            below = scores[cut] if cut < len(scores) else last
            found[g] = (np.float64(last) + below) / 2
            # The mean of two neighbors may be rounded to the lower one.
            if cut and np.float32(found[g]) <= below:
                found[g] = last
            elif not cut:
                found[g] = max(found[g], np.nextafter(below, np.float32(2)))
        return found.astype(np.float32)
