"""`ranking_scores` and `f1_scores` against the plain way, row by row."""

import numpy as np
import pytest

from tfxclass import metrics
from tfxclass.metrics import f1_scores
from tfxclass.metrics import ranking_scores
from tfxclass.metrics import tagging


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


@pytest.mark.parametrize("block_rows", [7, 60])
def test_ranking_scores(block_rows, monkeypatch):
    monkeypatch.setattr(tagging, "_BLOCK_ROWS", block_rows)
    ids, _, labels = make_rows()
    propensities = metrics.propensities(np.arange(12), 60)
    found = ranking_scores(ids, labels, (1, 3, 12), propensities)
    expected = {}
    for k in (1, 3, 12):
        expected.update(plain_scores(ids, labels, k, propensities))
    assert found == pytest.approx(expected, rel=1e-12)
    assert expected["recall_at_12"] == 1 and expected["recall_at_3"] < 1


def test_scores_without_labels_or_answers():
    with pytest.raises(ValueError, match="rows with labels"):
        ranking_scores([[0, 1]], [[-1, -1]], (2,))
    # Padding of answers is no label.
    found = ranking_scores([[0, 1], [-1, -1]], [[-1, -1], [3, -1]], (2,))
    assert found["recall_at_2"] == found["mean_reciprocal_rank"] == 0


ONE = [[1]]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ranking_scores(ONE, ONE, ()), "`ks`"),
        (lambda: ranking_scores(ONE, ONE, (0,)), "`ks`"),
        (lambda: ranking_scores([1], ONE), "shapes"),
        (lambda: ranking_scores(ONE, [[1], [2]]), "shapes"),
        (lambda: ranking_scores([[9, 2]], ONE), "at least 5 col"),
        (
            lambda: ranking_scores(ONE, ONE, propensities=[0.0, 1.0]),
            r"`propens.*\(0, 1\]",
        ),
        (
            lambda: ranking_scores(ONE, ONE, propensities=[2.0]),
            "`propensities` must be",
        ),
        (lambda: ranking_scores([["a"]], ONE), "`ids` .* str"),
        (lambda: ranking_scores(ONE, [["a"]]), "`labels` .* str"),
        (lambda: ranking_scores(ONE, [[1], [1, 2]]), "lengths"),
        (lambda: ranking_scores([[1, 1]], ONE, (2,)), "twice"),
        (
            lambda: ranking_scores([[0]], [[2]], (1,), [0.5, 0.5]),
            "`labels` must be below",
        ),
        (lambda: f1_scores(ONE, ONE, [["a"]], 3), "`labels` .* str"),
        (lambda: f1_scores(ONE, ONE, ONE, 0), "num_classes"),
        (lambda: f1_scores([[1, 1]], [[1, 1]], ONE, 3), "twice"),
        (lambda: f1_scores(ONE, [[np.nan]], ONE, 3), "NaN"),
        (lambda: f1_scores([[3]], ONE, ONE, 3), "`ids` must be b"),
        (lambda: f1_scores(ONE, ONE, [[3]], 3), "`labels` must be b"),
        (lambda: f1_scores(ONE, [[1, 1]], ONE, 3), "shapes"),
        (lambda: f1_scores(ONE, ONE, [[1], [2]], 3), "shapes"),
        (lambda: f1_scores(ONE, ONE, ONE, 3, np.nan), "threshold"),
        (lambda: f1_scores(*np.zeros((3, 0, 1), int), 3), "needs rows"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_repeated_label_counts_once():
    once = ranking_scores([[0, 1]], [[1, -1]], (2,))
    assert once == ranking_scores([[0, 1]], [[1, 1]], (2,))
    assert f1_scores([[1]], [[1.0]], [[1, 1]], 3) == (1, 1)


def test_no_rank_past_the_greatest_k_counts():
    ids = [[5, 6, 7, 8], [7, 5, 6, 8]]
    found = ranking_scores(ids, [[7], [5]], (1, 2))
    assert found["mean_reciprocal_rank"] == 0.5 / 2


@pytest.mark.parametrize("threshold", [0.3, 0.9])
def test_f1_scores(threshold):
    ids, probabilities, labels = make_rows()
    micro, macro = f1_scores(ids, probabilities, labels, 12, threshold)
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
    assert f1_scores([[-1]], [[1.0]], [[-1]], 3) == (0, 0)
