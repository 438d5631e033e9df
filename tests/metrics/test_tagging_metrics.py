"""`RankingScores` and `F1Scores` against the plain way, row by row."""

import numpy as np
import pytest

from tfxclass import metrics
from tfxclass.metrics import F1Scores
from tfxclass.metrics import RankingScores


def make_rows(num_rows=60, num_classes=12, seed=0):
    """`(ids, scores, labels)`: all classes ranked; some rows unlabelled."""
    random = np.random.default_rng(seed)
    scores = random.random((num_rows, num_classes))
    ids = np.argsort(-scores, axis=1)
    labels = np.full((num_rows, 4), -1)
    for row in labels:
        own = random.permutation(num_classes)[: random.integers(0, 5)]
        row[: len(own)] = own
    return ids, np.take_along_axis(scores, ids, 1), labels


def plain_scores(ids, labels, k, propensities):
    rows = [
        (list(ranked), set(own[own >= 0].tolist()))
        for ranked, own in zip(ids, labels)
        if (own >= 0).any()
    ]
    sums = dict.fromkeys(("precision", "recall", "r", "ndcg", "rr"), 0.0)
    gained = most = 0.0
    seen, found = set(), set()
    for ranked, own in rows:
        hits = [c in own for c in ranked[:k]]
        sums["precision"] += sum(hits) / k
        sums["recall"] += sum(hits) / len(own)
        sums["r"] += sum(hits) / min(k, len(own))
        best = sum(1 / np.log2(r + 2) for r in range(min(k, len(own))))
        gain = sum(1 / np.log2(r + 2) for r, hit in enumerate(hits) if hit)
        sums["ndcg"] += gain / best
        sums["rr"] += 1 / (1 + min(ranked.index(c) for c in own))
        worth = sorted((1 / propensities[c] for c in own), reverse=True)
        most += sum(worth[:k])
        gained += sum(1 / propensities[c] for c in ranked[:k] if c in own)
        seen |= own
        found |= own & set(ranked[:k])
    return {
        f"precision_at_{k}": sums["precision"] / len(rows),
        f"recall_at_{k}": sums["recall"] / len(rows),
        f"r_precision_at_{k}": sums["r"] / len(rows),
        f"ndcg_at_{k}": sums["ndcg"] / len(rows),
        f"psp_at_{k}": gained / most,
        f"coverage_at_{k}": len(found) / len(seen),
        "mean_reciprocal_rank": sums["rr"] / len(rows),
    }


@pytest.mark.parametrize("batch_size", [7, 60])
def test_ranking_scores(batch_size):
    ids, _, labels = make_rows()
    propensities = metrics.propensities(np.arange(12), 60)
    scores = RankingScores((1, 3, 12), propensities)
    for begin in range(0, 60, batch_size):
        part = slice(begin, begin + batch_size)
        scores.update(ids[part], labels[part])
    expected = {}
    for k in (1, 3, 12):
        expected.update(plain_scores(ids, labels, k, propensities))
    assert scores.result() == pytest.approx(expected, rel=1e-12)
    assert expected["recall_at_12"] == 1 and expected["recall_at_3"] < 1


def test_scores_without_labels_or_answers():
    scores = RankingScores((2,))
    scores.update([[0, 1]], [[-1, -1]])
    with pytest.raises(ValueError, match="rows with labels"):
        scores.result()
    # Padding of answers is no label.
    scores.update([[-1, -1]], [[3, -1]])
    assert scores.result()["recall_at_2"] == 0
    assert scores.result()["mean_reciprocal_rank"] == 0


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RankingScores(()), "`ks`"),
        (lambda: RankingScores((0,)), "`ks`"),
        (lambda: RankingScores().update([1], [[1]]), "shapes"),
        (lambda: RankingScores().update([[1]], [[1], [2]]), "shapes"),
        (lambda: RankingScores().update([[9, 2]], [[1]]), "at least 5 col"),
        (lambda: RankingScores(propensities=[0.0, 1.0]), r"`propens.*\(0, 1\]"),
        (lambda: RankingScores(propensities=[2.0]), "`propensities` must be"),
        (lambda: RankingScores().update([["a"]], [[1]]), "`ids` .* str"),
        (lambda: RankingScores().update([[1]], [["a"]]), "`labels` .* str"),
        (lambda: RankingScores().update([[1]], [[1], [1, 2]]), "lengths"),
        (lambda: F1Scores(3).update([[1]], [[1]], [["a"]]), "`labels` .* str"),
        (lambda: F1Scores(0), "num_classes"),
        (lambda: RankingScores((2,)).update([[1, 1]], [[1]]), "twice"),
        (lambda: F1Scores(3).update([[1, 1]], [[1, 1]], [[1]]), "twice"),
        (lambda: F1Scores(3).update([[1]], [[np.nan]], [[1]]), "NaN"),
        (
            lambda: F1Scores(3).update([[3]], [[1]], [[1]]),
            "`ids` must be b",
        ),
        (lambda: F1Scores(3).update([[1]], [[1]], [[3]]), "`labels` must be b"),
        (
            lambda: RankingScores((1,), [0.5, 0.5]).update([[0]], [[2]]),
            "`labels` must be below",
        ),
        (lambda: F1Scores(3).update([[1]], [[1, 1]], [[1]]), "shapes"),
        (lambda: F1Scores(3).update([[1]], [[1]], [[1], [2]]), "shapes"),
        (lambda: F1Scores(3, np.nan), "threshold"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_repeated_label_counts_once():
    once, twice = RankingScores((2,)), RankingScores((2,))
    once.update([[0, 1]], [[1, -1]])
    twice.update([[0, 1]], [[1, 1]])
    assert once.result() == twice.result()
    f1 = F1Scores(3)
    f1.update([[1]], [[1.0]], [[1, 1]])
    assert f1.result() == (1, 1)


def test_no_rank_past_the_greatest_k_counts():
    scores = RankingScores((1, 2))
    scores.update([[5, 6, 7, 8], [7, 5, 6, 8]], [[7], [5]])
    assert scores.result()["mean_reciprocal_rank"] == 0.5 / 2


@pytest.mark.parametrize("threshold", [0.3, 0.9])
def test_f1_scores(threshold):
    ids, probabilities, labels = make_rows()
    scores = F1Scores(12, threshold)
    for begin in range(0, 60, 25):
        part = slice(begin, begin + 25)
        scores.update(ids[part], probabilities[part], labels[part])
    micro, macro = scores.result()
    truth = np.zeros((60, 12), bool)
    row, place = np.nonzero(labels >= 0)
    truth[row, labels[row, place]] = True
    dense = np.zeros((60, 12))
    np.put_along_axis(dense, ids, probabilities, 1)
    predicted = dense >= threshold
    hits = (truth & predicted).sum(0)
    both = truth.sum(0) + predicted.sum(0)
    assert micro == pytest.approx(2 * hits.sum() / both.sum())
    each = [2 * h / b for h, b in zip(hits, both) if b]
    assert macro == pytest.approx(np.mean(each))


def test_f1_of_nothing():
    scores = F1Scores(3)
    with pytest.raises(ValueError, match="needs rows"):
        scores.result()
    scores.update([[-1]], [[1.0]], [[-1]])
    assert scores.result() == (0, 0)
