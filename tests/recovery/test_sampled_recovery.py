"""Recovery whose pass draws the classes that stand for the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recovery import test_step_recovery as rows
from tfxclass.recovery import step
from tfxclass.recovery.sums import RecoverySums
from tfxclass.recovery.sums import labels_and_sample


@pytest.mark.parametrize("max_held_out", [0, 100])
@pytest.mark.parametrize("name", rows.HEADS)
def test_all_classes_drawn_are_all_classes(name, max_held_out):
    """But for the labels they come in another order, and from each part."""
    head = rows.HEADS[name]()
    x, y = rows.data(labels=3)
    exact, drawn = (
        RecoverySums(head, count, max_held_out)
        for count in (None, 2 * rows.CLASSES)
    )
    for sums in (exact, drawn):
        sums.add(x, y)
        sums.add(x[:7], y[:7], np.linspace(0, 2, 7))
    size = np.abs(exact.kernel).max()
    np.testing.assert_allclose(
        drawn.kernel, exact.kernel, rtol=1e-4, atol=1e-5 * size
    )


@given(
    st.integers(1, 60),
    st.integers(1, 70),
    st.lists(st.integers(-1, 59), max_size=20),
    st.integers(0, 9),
)
def test_what_is_drawn_stands_for_all(num_classes, count, labels, seed):
    """Without bias: the counts' inverses sum to the number of classes."""
    labels = np.array(labels, np.int64)
    labels = labels[labels < num_classes]
    random = np.random.default_rng(seed)
    ids, log_counts = labels_and_sample(labels, count, num_classes, random)
    assert len(set(ids)) == len(ids)
    known = np.isin(ids, labels)
    assert set(ids[known]) == set(labels[labels >= 0])
    assert np.all(log_counts[known] == 0)
    if not known.all():
        total = np.exp(-log_counts.astype(np.float64)).sum()
        assert total == pytest.approx(num_classes, rel=1e-6)


def test_sums_of_many_draws_are_near_the_exact_ones():
    head = rows.slim()
    # Of a few rows: else every class is a label.
    x, y = (part[:3] for part in rows.data())
    exact = RecoverySums(head)
    exact.add(x, y)
    size = np.linalg.norm(exact.kernel)
    draws = []
    for seed in range(200):
        sums = RecoverySums(head, num_sampled=8, seed=seed)
        sums.add(x, y)
        draws.append(sums.kernel)
    alone = np.linalg.norm(draws - exact.kernel, axis=(1, 2)).mean() / size
    error = np.linalg.norm(np.mean(draws, axis=0) - exact.kernel) / size
    # A quotient of estimates has a bias, of the order of their variance.
    assert error < 0.3 * alone and error < 0.1


def test_a_step_from_a_sample_is_no_worse_than_the_lift():
    head = rows.slim()
    x, y = rows.data()
    sums = rows.summed(head, x, y, size=10, num_sampled=5)
    kernel, report = step.recovered_by_step(sums)
    assert report.step.eta > 0
    features, ids, *_ = sums.held_out
    weight = np.ones(len(ids))
    before = rows.loss(head, rows.lifted(head), features, ids, weight)
    assert rows.loss(head, kernel, features, ids, weight) < 0.9 * before


def test_bad_arguments():
    with pytest.raises(ValueError, match="`num_sampled` must be a positive"):
        RecoverySums(rows.slim(), num_sampled=0)


def test_logits_that_are_not_finite_leave_the_sums_alone():
    head = rows.slim()
    x, y = rows.data()
    sums = RecoverySums(head, num_sampled=3)
    sums.add(x, y)
    before = sums.kernel.copy()
    head.kernel.assign(np.full(head.kernel.shape, 1e38, np.float32))
    with pytest.raises(ValueError, match="logits must be finite"):
        sums.add(x, y)
    np.testing.assert_array_equal(sums.kernel, before)


def test_fewer_rows_are_searched_where_there_are_more_classes():
    most = [step.rows_held_out(10**n) for n in range(1, 9)]
    assert most == [4096] * 5 + [1073, 1024, 1024]
