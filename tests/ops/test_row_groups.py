"""Groups of class rows: k-means and PCA hash, against NumPy."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.test_hashing_forest import clustered
from tests.ops.test_hashing_forest import variable
from tests.support import reference
from tests.support.processes import run_code
from tfxclass.ops.index import ClusterIndex
from tfxclass.ops.index import PCAHash

pytestmark = pytest.mark.host

SEED = tf.constant([5, 6], tf.int64)


def built(kind, rows, num_groups, seed=0, normalize=False):
    """Groups and the variable they were built from."""
    kernel = rows if isinstance(rows, tf.Variable) else variable(rows)
    groups = kind()
    groups.build(kernel, num_groups, seed, normalize=normalize)
    return groups, kernel


def group_of(groups, count):
    """A number of its group for each class, by `members` alone."""
    numbers = np.full(count, -1)
    for c in range(count):
        if numbers[c] < 0:
            ids = groups.members([c], count, SEED).numpy()
            assert c in ids and np.all(numbers[ids] == -1)
            numbers[ids] = c
    return numbers


def same_group(numbers):
    return numbers[:, None] == numbers[None, :]


def pca_codes(rows, num_bits):
    """The twin: signs of the projections on the leading eigenvectors."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    projections = centred @ axes[:, ::-1][:, :num_bits]
    return (projections >= 0) @ (1 << np.arange(num_bits)), projections


@pytest.mark.parametrize("normalize", [False, True])
def test_pca_hash_equals_numpy(normalize):
    random = np.random.default_rng(0)
    # Variances apart, so that the axes are; a mean far from the origin.
    rows = random.normal(size=(400, 9)) * 1.7 ** -np.arange(9) + 2
    rows = rows.astype(np.float32)
    groups, _ = built(PCAHash, rows, 5, normalize=normalize)
    seen = reference.normalized(rows) if normalize else rows
    codes, projections = pca_codes(seen, 5)
    # Rows on the plane of a bit may fall to either side in float32.
    sure = np.all(np.abs(projections) > 1e-5, axis=1)
    assert sure.mean() > 0.98
    numbers = group_of(groups, 400)
    np.testing.assert_array_equal(
        same_group(numbers[sure]), same_group(codes[sure])
    )
    assert len(np.unique(numbers)) > 10


def test_more_bits_than_dimensions():
    rows = clustered(60, 2)
    wide, _ = built(PCAHash, rows, 30)
    narrow, _ = built(PCAHash, rows, 2)
    np.testing.assert_array_equal(group_of(wide, 60), group_of(narrow, 60))


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_at_their_nearest_centre(seed):
    """Few clusters: one cell, so the assignment is exact. Centres are the
    mean directions of their groups when Lloyd's passes have settled."""
    rows = clustered(2000, 12, seed=seed, clusters=6, spread=0.1)
    groups, _ = built(ClusterIndex, rows, 6, seed)
    numbers = group_of(groups, 2000)
    directions = reference.normalized(rows)
    names = np.unique(numbers)
    means = reference.normalized(
        np.stack([directions[numbers == n].sum(axis=0) for n in names])
    )
    nearest = names[np.argmax(directions @ means.T, axis=1)]
    assert np.mean(nearest == numbers) > 0.99


def test_two_levels_are_near_to_one():
    """The mean product of a row with the mean direction of its group, and
    the largest group. Recorded: 0.882, and 48 rows where 20 are the mean."""
    rows = clustered(4000, 16, clusters=300)
    groups, _ = built(ClusterIndex, rows, 200)
    numbers = group_of(groups, 4000)
    directions = reference.normalized(rows)
    total = sizes = 0
    for n in np.unique(numbers):
        own = directions[numbers == n]
        total += np.linalg.norm(own.sum(axis=0))
        sizes = max(sizes, len(own))
    assert total / 4000 > 0.87, total / 4000
    assert sizes < 70, sizes


@given(
    count=st.integers(1, 120),
    dim=st.integers(1, 12),
    num_groups=st.integers(1, 150),
    seed=st.integers(-(2**63), 2**63 - 1),
    kind=st.sampled_from(["random", "repeated", "zeros", "equal"]),
    pca=st.booleans(),
)
def test_every_class_is_in_one_group(count, dim, num_groups, seed, kind, pca):
    random = np.random.default_rng(seed % 2**32)
    rows = random.normal(size=(count, dim)).astype(np.float32)
    if kind == "repeated":
        rows = rows[random.integers(0, max(1, count // 5), count)]
    elif kind == "zeros":
        rows[random.random(count) < 0.5] = 0
    elif kind == "equal":
        rows[:] = rows[0]
    kind_of_groups = PCAHash if pca else ClusterIndex
    num_groups = min(num_groups, 30) if pca else num_groups
    groups, _ = built(kind_of_groups, rows, num_groups, seed)
    numbers = group_of(groups, count)
    assert np.all(numbers >= 0)
    if kind == "equal":
        assert len(np.unique(numbers)) == 1


@pytest.mark.parametrize("kind", [ClusterIndex, PCAHash])
def test_members_are_drawn_uniformly(kind):
    groups, _ = built(kind, clustered(80, 4, clusters=4), 2)
    numbers = group_of(groups, 80)
    targets = np.array([[0, -1], [79, 0]])
    pool = np.flatnonzero(np.isin(numbers, numbers[[0, 79]]))
    limit, trials = 7, 2000
    assert len(pool) > limit
    hits = np.zeros(80)
    for trial in range(trials):
        seed = tf.constant([1, trial], tf.int64)
        ids = groups.members(targets, limit, seed).numpy()
        assert len(set(ids)) == limit
        hits[ids] += 1
    assert hits[pool].sum() == limit * trials
    chance = limit / len(pool)
    error = np.sqrt(chance * (1 - chance) / trials)
    assert np.all(np.abs(hits[pool] / trials - chance) < 5 * error)


def test_no_targets_no_members():
    groups, _ = built(ClusterIndex, clustered(30, 4), 4)
    for targets in ([], [-1, -1]):
        targets = np.array(targets, np.int64)
        assert groups.members(targets, 5, SEED).shape == [0]
    assert ClusterIndex().members([3], 5, SEED).shape == [0]


@pytest.mark.parametrize("kind", [ClusterIndex, PCAHash])
def test_same_seed_same_bytes(kind):
    rows = clustered(900, 7)
    groups = [built(kind, rows, 6, seed)[0] for seed in (3, 3, 4)]
    states = [g.state()["ready"].tobytes() for g in groups]
    assert states[0] == states[1] != states[2]
    # Axes are the same from any start, up to their signs; clusters are not.
    same = [same_group(group_of(g, 900)) for g in groups[1:]]
    assert np.array_equal(*same) == (kind is PCAHash)


THREADS = """
import sys
import hashlib
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tests.ops import test_row_groups as cases
rows = cases.clustered(6000, 24)
index, _ = cases.built(cases.ClusterIndex, rows, 300, 5)
codes, _ = cases.built(cases.PCAHash, rows, 9, 5)
digest = hashlib.sha256(index.state()["ready"].tobytes())
digest.update(codes.state()["ready"].tobytes())
print("digest", digest.hexdigest())
"""


def test_the_same_with_any_number_of_threads():
    digests = {
        run_code(THREADS, threads).split("digest")[1] for threads in ("1", "2")
    }
    assert len(digests) == 1


def advance(index, kernel, step, interval=3):
    options = {"num_groups": 30, "seed": 9, "normalize": False}
    index.advance(kernel, step, interval, **options)
    return group_of(index, kernel.shape[0]).tolist()


def test_the_first_step_builds_and_swaps_are_at_fixed_steps():
    kernel = variable(clustered(400, 6))
    index = ClusterIndex()
    seen = []
    for step in range(8):
        advance(index, kernel, step)
        seen.append(same_group(group_of(index, 400)).tobytes())
        if step == 0:
            kernel.assign(clustered(400, 6, seed=5))
    # Of the new rows one is begun at step 3, and is there 3 steps later.
    assert seen[:6] == seen[:1] * 6 and seen[6] == seen[7] != seen[0]


@pytest.mark.parametrize("saved_at", [0, 2, 3, 5])
def test_state_round_trip_in_the_middle(saved_at):
    kernel = variable(clustered(400, 6))

    def go(index, step):
        groups = advance(index, kernel, step)
        index.mark([step, 3 * step])
        return groups

    index, other = ClusterIndex(), ClusterIndex()
    for step in range(saved_at + 1):
        go(index, step)
    other.set_state(index.state())
    for step in range(saved_at + 1, saved_at + 9):
        kernel.assign_add(np.float32(0.05) * clustered(400, 6, seed=step))
        assert go(index, step) == go(other, step)
    for name, value in index.state().items():
        np.testing.assert_array_equal(value, other.state()[name])


def test_an_index_of_other_rows_is_built_anew():
    """Restored for another kernel: nothing is read past its end."""
    index = ClusterIndex(num_groups=5, seed=9, normalize=False)
    index.set_state(built(ClusterIndex, clustered(5000, 40), 50)[0].state())
    index.mark(np.arange(5000))
    kernel = variable(clustered(30, 3))
    index.advance(kernel, 0, 1)
    index.advance(kernel, 1, 1)
    assert len(group_of(index, 30)) == 30


def test_an_index_may_go_while_a_function_is_traced():
    """The collector once deadlocked there, on the lock of the graph."""
    kernel = variable(clustered(50, 3))
    indexes = [built(ClusterIndex, kernel, 4)[0]]
    handle = indexes[0].handle

    @tf.function
    def traced():
        indexes.clear()
        gc.collect()
        graph = tf.compat.v1.get_default_graph()
        return len(graph.get_operations())

    assert int(traced()) == 0
    with pytest.raises(tf.errors.NotFoundError):
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=False)


def nan_rows():
    rows = clustered(20, 3)
    rows[4, 1] = np.nan
    return rows


def members_with(targets=(1,), limit=3, seed=SEED):
    index, _ = built(ClusterIndex, clustered(20, 3), 4)
    index.members(np.array(targets, np.int64), limit, seed)


INVALID = {
    "build_nan": (
        lambda: built(ClusterIndex, nan_rows(), 4),
        ["`kernel` must be finite to build a cluster index"],
    ),
    "pca_nan": (
        lambda: built(PCAHash, nan_rows(), 4),
        ["`kernel` must be finite to build a PCA hash"],
    ),
    "huge": (
        lambda: built(ClusterIndex, np.full((3, 3), 1e30), 4),
        ["`kernel` must be finite"],
    ),
    "build_rank": (
        lambda: built(ClusterIndex, np.zeros(3), 4),
        ["[num_classes, dim]", "shape (3)"],
    ),
    "no_groups": (
        lambda: built(ClusterIndex, clustered(9, 2), 0),
        ["`num_groups` must be >= 1"],
    ),
    "too_many_bits": (
        lambda: built(PCAHash, clustered(9, 40), 31),
        ["`num_groups` of a PCA hash must be at most 30", "31"],
    ),
    "target_out_of_range": (
        lambda: members_with(targets=(1, 20)),
        ["`targets` must be in [-1, 20)", "20 at position 1"],
    ),
    "limit": (lambda: members_with(limit=0), ["`limit`", ">= 1"]),
    "seed": (
        lambda: members_with(seed=tf.zeros([3], tf.int64)),
        ["`seed` must have 2 elements. Received: 3"],
    ),
    "interval": (
        lambda: advance(
            ClusterIndex(), variable(clustered(9, 3)), 0, interval=0
        ),
        ["`interval` must be >= 1"],
    ),
    "state": (
        lambda: ClusterIndex().set_state(
            built(PCAHash, clustered(9, 3), 2)[0].state()
        ),
        ["The bytes are no cluster index"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    call, parts = INVALID[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call()
    for part in parts:
        assert part in str(error.value)
