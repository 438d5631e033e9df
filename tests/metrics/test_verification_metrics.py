"""Metrics of face recognition against plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxclass import metrics


def test_verification_accuracy_by_hand():
    # Fold 1 is judged by the threshold of fold 2 (0.5), and the other way
    # round (0.6): one error in the second.
    similarities = [0.9, 0.6, 0.8, 0.1, 0.9, 0.5, 0.7, 0.55]
    same = [True, False, True, False, True, False, True, True]
    found = metrics.verification_accuracy(similarities, same, folds=2)
    # Fold 1 with 0.5: 0.6 is taken for equal. Fold 2 with 0.6: 0.55 is not.
    assert found == pytest.approx((3 / 4 + 3 / 4) / 2)


ROW = np.ones((1, 2))
SAME = [True, False]


@given(st.integers(0, 10**6), st.integers(4, 40))
def test_threshold_is_the_best_of_all(seed, pairs):
    random = np.random.default_rng(seed)
    similarities = random.integers(0, 6, pairs) / 5
    same = random.integers(0, 2, pairs).astype(bool)
    same[:2] = SAME
    folds = np.array_split(np.arange(pairs), 2)
    expected = []
    for rows, others in (folds, folds[::-1]):
        best = [(similarities[others] > t) == same[others] for t in THRESHOLDS]
        threshold = THRESHOLDS[np.argmax([hits.sum() for hits in best])]
        expected.append(((similarities[rows] > threshold) == same[rows]).mean())
    found = metrics.verification_accuracy(similarities, same, folds=2)
    assert found == pytest.approx(np.mean(expected))


# Those that tell the similarities above apart, falling into the same cuts.
THRESHOLDS = [-np.inf, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


@given(st.integers(0, 10**6), st.floats(0, 0.9))
def test_true_positive_rate_keeps_the_false_ones(seed, rate):
    random = np.random.default_rng(seed)
    same = np.arange(60) % 3 == 0
    similarities = random.normal(size=60) + same
    found = metrics.true_positive_rate(similarities, same, rate)
    passing = [
        (similarities[same] > t).mean()
        for t in similarities
        if (similarities[~same] > t).mean() <= rate + 1e-9
    ]
    assert found == pytest.approx(max(passing))


def test_hit_rate_by_hand_and_over_blocks(monkeypatch):
    gallery = np.array([[1, 0], [0, 2], [1, 1]], float)
    queries = np.array([[3, 0.1], [0.1, 1], [2, 1.9], [1, 0.9]])
    labels = [0, 2, 2, 7]
    for rows in (1024, 3):
        monkeypatch.setattr(metrics.verification, "_BLOCK_ROWS", rows)
        of = [
            metrics.hit_rate(queries, gallery, labels, [0, 1, 2], k)
            for k in (1, 2, 3)
        ]
        assert of == [0.5, 0.75, 0.75]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda m: m.verification_accuracy([1, 2], [True]), "(2,) and (1,)"),
        (lambda m: m.verification_accuracy([1, 2], [True, False], 3), "folds"),
        (lambda m: m.verification_accuracy([np.nan], [True]), "NaN"),
        (lambda m: m.verification_accuracy([1, 2], ["yes", "no"]), "`same`"),
        (lambda m: m.verification_accuracy([1, 2], [0.9, 0.1]), "`same`"),
        (lambda m: m.verification_accuracy(SAME, [0.9, 0.1]), "swapped"),
        (lambda m: m.verification_accuracy(["a", "b"], SAME), "`similarities`"),
        (lambda m: m.verification_accuracy([1, 2], [0, 0], 2), "0 of 2 pairs"),
        (lambda m: m.true_positive_rate([1, 2], [True, True]), "2 of 2 pairs"),
        (lambda m: m.true_positive_rate([1, 2], [True, False], 1), "[0, 1)"),
        (
            lambda m: m.hit_rate(ROW, ROW, [0], [0], 2),
            "k=2",
        ),
        (
            lambda m: m.hit_rate(ROW, ROW, [], [0]),
            "(0,) and (1,)",
        ),
        (lambda m: m.hit_rate(ROW[0], ROW, [0], [0]), "(2,)"),
        (lambda m: m.hit_rate(ROW, ROW, [[0]], [0]), "(1, 1) and (1,)"),
        (lambda m: m.hit_rate(ROW, ROW, ["0"], [0]), "both be integers"),
        (lambda m: m.hit_rate([[np.nan, 1]], ROW, [0], [0]), "`queries`"),
        (lambda m: m.hit_rate(ROW, [[np.inf, 1]], [0], [0]), "`gallery`"),
    ],
    ids=[
        "shapes",
        "folds",
        "nan",
        "strings",
        "floats",
        "swapped",
        "names",
        "all_different",
        "one_kind",
        "rate",
        "k",
        "labels",
        "rank",
        "columns",
        "kinds",
        "nan_query",
        "infinite_gallery",
    ],
)
def test_bad_arguments(call, part):
    with pytest.raises(ValueError) as error:
        call(metrics)
    assert part in str(error.value)
