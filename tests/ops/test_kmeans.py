"""The k-means of trees and of served lists."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.test_hashing_forest import clustered
from tests.support import reference
from tfxclass.ops.library import ops

NAN = float("nan")


def clusters(rows, num_clusters, seed=0):
    """The cluster of each row, int64 `[n]`."""
    return ops.tfxclass_k_means(rows, num_clusters, seed)


@given(
    count=st.integers(1, 120),
    dim=st.integers(1, 12),
    num_clusters=st.integers(1, 150),
    seed=st.integers(-(2**63), 2**63 - 1),
    kind=st.sampled_from(["random", "zeros", "equal"]),
)
def test_clusters_of_any_rows(count, dim, num_clusters, seed, kind):
    rows = np.random.default_rng(seed % 99).normal(size=(count, dim))
    rows = {"random": rows, "zeros": 0 * rows, "equal": 0 * rows + 3}[kind]
    rows = rows.astype(np.float32)
    found = clusters(rows, num_clusters, seed).numpy()
    assert found.shape == (count,)
    assert found.min() >= 0 and found.max() < min(num_clusters, count)
    np.testing.assert_array_equal(found, clusters(rows, num_clusters, seed))


def test_clusters_do_not_see_lengths():
    rows = clustered(1000, 8, clusters=20)
    # Powers of two: no rounding.
    lengths = 2.0 ** np.random.default_rng(1).integers(-9, 9, (1000, 1))
    np.testing.assert_array_equal(
        clusters(rows, 30),
        clusters((lengths * rows).astype(np.float32), 30),
    )


def test_rows_are_in_the_cluster_of_the_nearest_mean():
    """Recorded: 0.985 of them; two levels do not find all."""
    rows = reference.normalized(clustered(6000, 16, clusters=150))
    found = clusters(rows.astype(np.float32), 300).numpy()
    names = np.unique(found)
    means = np.stack([rows[found == name].mean(axis=0) for name in names])
    nearest = names[np.argmax(rows @ reference.normalized(means).T, axis=1)]
    assert np.mean(nearest == found) > 0.95, np.mean(nearest == found)


@given(
    sizes=st.lists(st.integers(0, 20), max_size=30),
    dim=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_halves_keep_the_groups(sizes, dim, seed):
    random = np.random.default_rng(seed)
    count = sum(sizes)
    rows = random.normal(size=(count + 1, dim)).astype(np.float32)
    rows[random.random(count + 1) < 0.3] = 0
    ids = random.permutation(count)
    splits = random.random(len(sizes)) < 0.7
    sizes = np.array(sizes, np.int64)
    halved = ops.tfxclass_halve_groups(
        rows, ids, sizes, splits, 5, seed
    ).numpy()
    ends = np.cumsum(sizes)
    for begin, end, is_split in zip(ends - sizes, ends, splits):
        if is_split:
            assert set(halved[begin:end]) == set(ids[begin:end])
        else:
            np.testing.assert_array_equal(halved[begin:end], ids[begin:end])


@pytest.mark.parametrize("groups", [1, 40])
def test_halves_are_the_two_clusters(groups):
    """Few groups share threads, many are shared out to them."""
    random = np.random.default_rng(0)
    of = np.tile(random.permutation(np.repeat([0, 1], 50)), groups)
    centres = random.normal(size=(2, 16))
    rows = centres[of] + 0.05 * random.normal(size=(100 * groups, 16))
    halved = ops.tfxclass_halve_groups(
        rows.astype(np.float32),
        np.arange(100 * groups),
        [100] * groups,
        [True] * groups,
        10,
        0,
    ).numpy()
    halves = of[halved].reshape(groups, 2, 50)
    assert np.all(halves == halves[:, :, :1])


def halve(**changes):
    arguments = {
        "rows": tf.ones([4, 2]),
        "ids": [0, 1, 2, 3],
        "sizes": [3, 1],
        "splits": [True, True],
        "passes": 3,
        "seed": 0,
    }
    return ops.tfxclass_halve_groups(**{**arguments, **changes})


def cluster(**changes):
    return clusters(**{"rows": tf.ones([4, 2]), "num_clusters": 2, **changes})


INVALID = {
    "rank": (cluster, {"rows": tf.ones([4])}, "`rows` must have rank 2"),
    "none": (cluster, {"rows": tf.ones([0, 2])}, "Received: shape (0, 2)"),
    "narrow": (cluster, {"rows": tf.ones([3, 0])}, "Received: shape (3, 0)"),
    "nan": (cluster, {"rows": [[1.0], [NAN]]}, "`rows` must be finite"),
    "clusters": (cluster, {"num_clusters": 0}, "`num_clusters` must be in"),
    "many": (cluster, {"num_clusters": 2**31}, "Received: 2147483648"),
    "seed": (cluster, {"seed": [1, 2]}, "`seed` must be a scalar"),
    "halve_nan": (halve, {"rows": [[NAN]] * 4}, "`rows` must be finite"),
    "ids": (halve, {"ids": [0, 1, 2, 4]}, "`ids` must be in [0, 4)"),
    "ids_rank": (halve, {"ids": [[0]]}, "`ids` must have rank 1"),
    "sum": (halve, {"sizes": [2, 1]}, "must add up to the 4"),
    "past": (halve, {"sizes": [3, 2]}, "Received: 2 at position 1"),
    "overflow": (halve, {"sizes": [2, 2**63 - 1]}, "at position 1"),
    "negative": (halve, {"sizes": [5, -1]}, "Received: 5 at position 0"),
    "splits": (halve, {"splits": [True]}, "the shape of `sizes`, (2)"),
    "passes": (halve, {"passes": 0}, "`passes` must be in"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    function, changes, message = INVALID[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        function(**changes)
    assert message in str(error.value)
