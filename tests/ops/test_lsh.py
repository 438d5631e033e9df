"""LSH codes and tables against NumPy, and the theorems about sampling."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import reference
from tests.support.processes import run_code
from tfxclass.ops import library
from tfxclass.ops.lsh import LSHIndex

FAMILIES = ("simhash", "sparse_simhash", "dwta")
each_family = pytest.mark.parametrize("hash", FAMILIES)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def hash_codes(
    vectors, num_hashes, num_tables, hash="simhash", bin_size=8, seed=0
):
    """Codes of vectors `[n, dim]`, int32 `[num_tables, n]`."""
    return library.ops.tfxclass_lsh_hash(
        vectors,
        tf.cast(seed, tf.int64),
        hash=hash,
        num_hashes=num_hashes,
        num_tables=num_tables,
        bin_size=bin_size,
    )


def variable(rows):
    return tf.Variable(np.asarray(rows, np.float32))


def as_queries(rows):
    """One query a sample, all of them valid."""
    rows = tf.constant(rows)[:, tf.newaxis]
    return rows, tf.ones(rows.shape[:2], tf.bool)


def advance(tables, kernel, step, interval, lag, seed):
    tables.advance(kernel, step, interval, lag=lag, drifted=False, seed=seed)


def query(tables, rows, room=10**6, targets=(), seed=(1, 2)):
    return tables.query(
        *as_queries(rows),
        tf.constant(targets, tf.int64),
        num_sampled=room + len(set(targets)),
        max_candidates=room,
        seed=tf.constant(seed, tf.int64),
    )


def pairs_at(angle, dim, count, seed=0):
    """Pairs of random directions with that angle between them."""
    first = reference.normalized(normal(count, dim, seed=seed))
    other = normal(count, dim, seed=seed + 1).astype(np.float64)
    other -= (other * first).sum(axis=1, keepdims=True) * first
    second = np.cos(angle) * first + np.sin(angle) * reference.normalized(other)
    return first.astype(np.float32), second.astype(np.float32)


def within_binomial(hits, trials, probability, slack=0.0, sigmas=4.5):
    """Whether frequencies agree with probabilities; 4.5 sigma is 7e-6."""
    error = np.sqrt(probability * (1 - probability) / trials)
    allowed = sigmas * error + 1 / trials + slack
    return np.all(np.abs(hits / trials - probability) <= allowed)


@pytest.mark.parametrize("angle", [0.0, 0.2, 1.0, math.pi / 2, 2.5, math.pi])
@pytest.mark.parametrize("hash", ["simhash", "sparse_simhash"])
def test_simhash_bits_agree_with_probability_one_minus_angle(hash, angle):
    first, second = pairs_at(angle, 300, 8)
    codes = hash_codes(np.concatenate([first, second]), 1, 3000, hash).numpy()
    hits = (codes[:, :8] == codes[:, 8:]).sum()
    # The signs of products with sparse vectors follow the law of Gaussian
    # ones but for a term of the order of dim^-1/2.
    slack = 0.0 if hash == "simhash" else 0.01
    expected = 1 - angle / math.pi
    assert within_binomial(hits, 8 * 3000, expected, slack)


def bins_of(dim, num_functions, bin_size, seed):
    """The bins of DWTA functions, asked of the op itself: `[functions, slot]`.

    Among equal coordinates one that is greater shows its slot, and one that
    is less shows that it was in slot 0, from which the next one takes over.
    """
    size = min(bin_size, dim)
    bins = np.full((num_functions, size), -1)
    for sign in (1.0, -1.0):
        probes = np.full((dim, dim), 5.0, np.float32)
        probes[np.diag_indices(dim)] += sign
        codes = hash_codes(
            probes, 1, num_functions, "dwta", bin_size, seed
        ).numpy()
        for f, c in zip(*np.nonzero(codes)):
            bins[f, codes[f, c] if sign > 0 else 0] = c
    return bins


@pytest.mark.parametrize(
    ("dim", "bin_size"), [(16, 8), (30, 8), (5, 8), (9, 2)]
)
def test_dwta_is_winner_take_all_where_nothing_is_zero(dim, bin_size):
    num_hashes, num_tables, seed = 3, 5, 8
    bins = bins_of(dim, num_hashes * num_tables, bin_size, seed)
    assert np.all(bins >= 0)
    per = dim // min(bin_size, dim)
    for first in range(0, len(bins), per):  # of one permutation: disjoint
        coordinates = bins[first : first + per].ravel()
        assert len(set(coordinates)) == len(coordinates)
    rows = normal(100, dim)
    slots = rows[:, bins].argmax(axis=2)  # [rows, functions]
    bits = math.ceil(math.log2(bin_size))
    weights = 2 ** (bits * np.arange(num_hashes)[::-1])
    expected = slots.reshape(100, num_tables, num_hashes) @ weights
    codes = hash_codes(rows, num_hashes, num_tables, "dwta", bin_size, seed)
    np.testing.assert_array_equal(codes, expected.T)


@each_family
def test_codes_are_scale_free_and_zero_for_zero_vectors(hash):
    rows = normal(20, 12)
    codes = hash_codes(rows, 4, 6, hash).numpy()
    assert codes.shape == (6, 20) and codes.dtype == np.int32
    np.testing.assert_array_equal(hash_codes(rows * 8, 4, 6, hash), codes)
    assert not np.any(hash_codes(np.zeros((3, 12), np.float32), 4, 6, hash))
    equal = hash_codes(np.ones((3, 12), np.float32), 4, 6, hash).numpy()
    assert np.all(equal == equal[:, :1])
    assert hash_codes(np.zeros((0, 12), np.float32), 4, 6, hash).shape == (6, 0)


@each_family
def test_another_seed_gives_other_functions(hash):
    rows = normal(50, 16)
    first, again, other = (
        hash_codes(rows, 4, 6, hash, seed=seed).numpy() for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.3


THREADS = """
import hashlib
import sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass.ops.lsh import LSHIndex
rows = np.random.default_rng(0).normal(size=(3000, 24)).astype(np.float32)
kernel = tf.Variable(rows)
digest = hashlib.sha256()
for hash in ("simhash", "sparse_simhash", "dwta"):
    tables = LSHIndex(num_hashes=4, num_tables=7, hash=hash, bucket_size=40)
    tables.build(kernel, 5)
    queries = rows[:200, None]
    valid = np.ones((200, 1), bool)
    seed = np.array([1, 2])
    found = tables.query(queries, valid, np.array([3]), 900, 900, seed)
    mask = tables.members(queries, valid, found[1], found[0], found[2])
    digest.update(tables.state()["ready"].tobytes())
    digest.update(found[0].numpy().tobytes() + mask.numpy().tobytes())
print("digest", digest.hexdigest())
"""


def test_the_same_with_any_number_of_threads():
    digests = {
        run_code(THREADS, threads).split("digest")[1] for threads in ("1", "3")
    }
    assert len(digests) == 1


def with_equal_norms(rows):
    """Rows with the coordinate that makes their norms equal, and the norm."""
    squared = (rows.astype(np.float64) ** 2).sum(axis=1)
    extra = np.sqrt(squared.max() - squared)
    rows = np.concatenate([rows, extra[:, None]], axis=1)
    return rows.astype(np.float32), math.sqrt(squared.max())


def buckets(codes, bits, num_classes):
    """Codes, hashed into a smaller range where they have too many bits."""
    most = min(18, math.ceil(math.log2(num_classes)) + 4)
    if bits <= most:
        return codes
    factor = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        hashed = codes.astype(np.uint64) * factor
    return hashed >> np.uint64(64 - most)


def brute_force(rows, queries, options, seed):
    """The exact twin: `[tables, queries, classes]`, who shares a bucket."""
    inner_product = options.get("inner_product", False)
    if inner_product:
        rows, _ = with_equal_norms(rows)
        queries = np.pad(queries, [(0, 0), (0, 1)])
    names = ("num_hashes", "num_tables", "hash", "bin_size")
    hashing = {n: options[n] for n in names if n in options}
    bits = options["num_hashes"] * (3 if options.get("hash") == "dwta" else 1)
    of_rows, of_queries = (
        buckets(hash_codes(x, **hashing, seed=seed).numpy(), bits, len(rows))
        for x in (rows, queries)
    )
    return of_rows[:, None, :] == of_queries[:, :, None]


TWINS = {
    "simhash": {"num_hashes": 4, "num_tables": 5},
    "sparse": {"num_hashes": 4, "num_tables": 5, "hash": "sparse_simhash"},
    "dwta": {"num_hashes": 2, "num_tables": 20, "hash": "dwta"},
    "inner_product": {"num_hashes": 3, "num_tables": 5, "inner_product": True},
    "dwta_folded": {"num_hashes": 6, "num_tables": 17, "hash": "dwta"},
    "one_bit": {"num_hashes": 1, "num_tables": 1},
}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("num_classes", [1, 5, 400])
def test_found_classes_are_those_of_brute_force(name, num_classes):
    options = TWINS[name]
    rows = normal(num_classes, 10) * np.linspace(0.5, 2, num_classes)[:, None]
    rows = rows.astype(np.float32)
    queries = np.concatenate([normal(9, 10, seed=5), rows[:3]])
    tables = LSHIndex(**options)
    tables.build(variable(rows), seed=3)
    shared = brute_force(rows, queries, options, seed=3)
    targets = [0, num_classes - 1, -1]
    found = query(tables, queries, 10**6, targets)
    np.testing.assert_array_equal(
        found.probed, np.arange(options["num_tables"])
    )
    assert found.last_fraction == 1.0 and found.least_votes == 1
    expected = np.flatnonzero(shared.any(axis=(0, 1)))
    expected = np.setdiff1d(expected, targets)
    np.testing.assert_array_equal(np.sort(found.candidates), expected)
    assert found.pool == len(expected)
    if "inner_product" in options:
        greatest = np.linalg.norm(rows, axis=1).max()
        np.testing.assert_allclose(found.norm, greatest, rtol=1e-6)
    else:
        assert found.norm == 0
    ids = np.random.default_rng(1).permutation(num_classes)[:50]
    for least in (1, 2):
        mask = tables.members(
            *as_queries(queries), found.probed, tf.constant(ids), least
        )
        expected = shared.sum(axis=0)[:, ids] >= least
        np.testing.assert_array_equal(mask, expected)


@given(room=st.integers(0, 120), seed=st.integers(0, 10**6))
def test_a_union_that_does_not_fit_is_cut_by_votes(room, seed):
    """A query reads all tables; who has more votes than another is kept."""
    options = {"num_hashes": 3, "num_tables": 6}
    rows, queries = normal(150, 6, seed=seed), normal(4, 6, seed=seed + 1)
    tables = LSHIndex(**options)
    tables.build(variable(rows), seed=seed)
    votes = brute_force(rows, queries, options, seed).sum(axis=0).max(axis=0)
    result = query(tables, queries, room, targets=[3, 90, -1], seed=(seed, 1))
    votes[[3, 90]] = 0
    found, least = result.candidates.numpy(), result.least_votes.numpy()
    np.testing.assert_array_equal(result.probed, np.arange(6))
    assert result.pool == (votes > 0).sum()
    assert len(set(found)) == len(found) == min(room, (votes > 0).sum())
    assert set(np.flatnonzero(votes > least)) <= set(found)
    assert np.all(votes[found] >= least)
    tied = votes == least
    if tied.any():
        kept = np.isin(np.flatnonzero(tied), found).mean()
        np.testing.assert_allclose(result.last_fraction, kept, rtol=1e-6)


def test_of_equal_votes_a_uniform_sample_is_kept():
    tables = LSHIndex(num_hashes=2, num_tables=5)
    rows = np.ones((40, 3), np.float32)
    tables.build(variable(rows), seed=0)
    kept = np.zeros(40)
    for seed in range(300):
        found = query(tables, rows[:1], room=10, seed=(seed, 5))
        assert found.least_votes == 5 and found.last_fraction == 0.25
        kept[found.candidates.numpy()] += 1
    assert within_binomial(kept, 300, np.full(40, 0.25))


def test_a_full_bucket_keeps_a_uniform_sample():
    """With all rows in one bucket, each is kept as often as any other."""
    kernel = variable(np.ones((40, 3)))
    kept = np.zeros(40)
    for seed in range(60):
        tables = LSHIndex(num_hashes=2, num_tables=5, bucket_size=10)
        tables.build(kernel, seed=seed)
        found = []
        for table in range(5):
            mask = tables.members(
                *as_queries(np.ones((1, 3), np.float32)),
                tf.constant([table], tf.int64),
                tf.range(40, dtype=tf.int64),
            )
            found.append(mask.numpy()[0])
            assert found[-1].sum() == 10
        kept += np.sum(found, axis=0)
        # Other tables keep others.
        assert not np.all(np.equal(found, found[0]))
    assert within_binomial(kept, 300, np.full(40, 0.25))


def at_least(votes, tables, in_table):
    """P(Binomial(tables, in_table) >= votes), summed term by term."""
    return sum(
        math.comb(tables, n) * in_table**n * (1 - in_table) ** (tables - n)
        for n in range(votes, tables + 1)
    )


def found_frequency(rows, queries, runs, room=10**6, **options):
    """How often each class is found, over independent hash functions."""
    kernel = variable(rows)
    hits = np.zeros(len(rows))
    expected = np.zeros(len(rows))
    inner_product = options.get("inner_product", False)
    sides = with_equal_norms(rows)[0] if inner_product else rows
    query_sides = np.pad(queries, [(0, 0), (0, int(inner_product))])
    cosine = reference.normalized(query_sides) @ reference.normalized(sides).T
    in_table = (1 - np.arccos(np.clip(cosine[0], -1, 1)) / math.pi) ** options[
        "num_hashes"
    ]
    tables = LSHIndex(**options)
    for seed in range(runs):
        tables.build(kernel, seed=seed)
        found = query(tables, queries, room, seed=(seed, 3))
        hits[found.candidates.numpy()] += 1
        count, least = len(found.probed), int(found.least_votes)
        f = float(found.last_fraction)
        kept = f * at_least(least, count, in_table)
        kept += (1 - f) * at_least(least + 1, count, in_table)
        expected += kept / runs
    return hits / runs, np.minimum(expected, 1.0), cosine[0]


@pytest.mark.parametrize("inner_product", [False, True])
@pytest.mark.parametrize("scheme", ["embedding", "label"])
def test_theorem_1_a_class_is_found_with_probability(scheme, inner_product):
    """Theorem 1 of LNS: 1 - (1 - p^K)^L, p = 1 - angle / pi, over independent
    hash functions, whether features or the label's row are looked up."""
    rows = normal(40, 6) * np.linspace(0.5, 1.5, 40)[:, None]
    rows = rows.astype(np.float32)
    asked = rows[:1] if scheme == "label" else normal(1, 6, seed=4)
    runs = 600
    frequency, expected, cosine = found_frequency(
        rows, asked, runs, num_hashes=3, num_tables=4,
        inner_product=inner_product,
    )  # fmt: skip
    assert within_binomial(frequency * runs, runs, expected)
    if scheme == "label" and not inner_product:
        assert frequency[0] == 1.0  # the label finds itself
    # Theorem 2: the more similar, the more often.
    order = np.argsort(cosine)
    groups = frequency[order].reshape(5, 8).mean(axis=1)
    assert np.all(np.diff(groups) > 0), groups
    assert np.all(np.diff(expected[order]) >= 0)


@pytest.mark.parametrize("room", [5, 15])
def test_law_of_what_is_kept(room):
    """Binomial votes above the least, a fraction of those with as many."""
    rows, runs = normal(60, 5), 1500
    frequency, expected, _ = found_frequency(
        rows, normal(1, 5, seed=2), runs, room=room, num_hashes=2, num_tables=8
    )
    # Where the cut lies depends on what is found: not quite binomial. The
    # part of it that the formula does not know is some hundredths.
    np.testing.assert_allclose(frequency, expected, atol=0.07)
    assert np.corrcoef(frequency, expected)[0, 1] > 0.98


def test_votes_find_the_groups_of_the_queries():
    """31,077 classes in groups of 50, a budget of 1,024 for 256 queries, K = 9
    and L = 50. While tables were probed until the room was used up, 1 of 50 was
    read, and what was kept was as uniform as the pool, in which nearly all
    classes are. Recorded: 0.90 of what is kept is of a query's group, 0.39 of
    the classes are."""
    random = np.random.default_rng(0)
    count, dim = 31_077, 64
    centres = random.normal(size=(count // 50 + 1, dim))
    rows = centres[np.arange(count) // 50] + 0.7 * normal(count, dim)
    rows = reference.normalized(rows).astype(np.float32)
    labels = random.choice(count, 256, replace=False)
    queries = rows[labels] + 0.9 * dim**-0.5 * normal(256, dim, seed=1)
    tables = LSHIndex(num_hashes=9, num_tables=50, bucket_size=128)
    tables.build(variable(rows), seed=0)
    found = query(tables, queries.astype(np.float32), 768, labels)
    assert len(found.probed) == 50 and int(found.pool) > 0.9 * count
    groups = np.unique(labels // 50)
    assert np.isin(found.candidates.numpy() // 50, groups).mean() > 0.8


def test_the_distribution_follows_the_weights():
    """A class that moves next to the features is found after the refresh,
    one that moves away no longer; others stay where they were."""
    rows = normal(200, 16)
    features = normal(1, 16, seed=9)
    near, away = 7, 8
    rows[near], rows[away] = -features[0], features[0]
    kernel = variable(rows)
    tables = LSHIndex(num_hashes=8, num_tables=20)
    tables.build(kernel, seed=1)
    before = set(query(tables, features)[0].numpy())
    kernel.scatter_nd_update([[near], [away]], [features[0], -features[0]])
    assert set(query(tables, features)[0].numpy()) == before
    tables.mark(tf.constant([near, away], tf.int64))
    for step in (0, 1):
        advance(tables, kernel, step, 1, 1, seed=1)
    after = set(query(tables, features)[0].numpy())
    assert near in after - before and away in before - after
    assert after - {near} == before - {away}


def test_recall_of_the_greatest_products():
    """Recorded: of the ten nearest of 3,000 clustered rows, 0.998 are among
    the 0.138 of the classes that 50 tables of 9 bits give."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(60, 32))
    rows = centres[random.integers(0, 60, 3000)]
    rows = rows + 0.5 * random.normal(size=rows.shape)
    queries = (rows[:50] + 0.3 * random.normal(size=(50, 32))).astype("float32")
    rows = rows.astype(np.float32)
    tables = LSHIndex(num_hashes=9, num_tables=50)
    tables.build(variable(rows), seed=2)
    probed = tf.range(50, dtype=tf.int64)
    mask = tables.members(
        *as_queries(queries), probed, tf.range(3000, dtype=tf.int64)
    ).numpy()
    cosine = reference.normalized(queries) @ reference.normalized(rows).T
    best = np.argsort(-cosine, axis=1)[:, :10]
    recall = np.take_along_axis(mask, best, axis=1).mean()
    assert recall > 0.98 and mask.mean() < 0.16


def run_steps(tables, kernel, first, last, interval=3, lag=2):
    """Moves rows and refreshes; returns what was found at each step."""
    found = []
    for step in range(first, last):
        ids = np.array([step % 30, (7 * step) % 30])
        kernel.scatter_nd_update(ids[:, None], normal(2, 6, seed=step))
        tables.mark(tf.constant(ids))
        advance(tables, kernel, step, interval, lag, seed=4)
        found.append(query(tables, normal(2, 6, seed=step))[0].numpy().tolist())
    return found


@each_family
@pytest.mark.parametrize("incremental", [True, False])
def test_restored_tables_go_on_bit_for_bit(hash, incremental):
    options = dict(
        num_hashes=2, num_tables=3, hash=hash, incremental=incremental,
        redraw_interval=2, bucket_size=6,
    )  # fmt: skip
    kernel, tables = variable(normal(30, 6)), LSHIndex(**options)
    assert all(run_steps(tables, kernel, 0, 2))  # built by the first step
    run_steps(tables, kernel, 2, 8)  # one refresh is under way
    again, rows = LSHIndex(**options), variable(kernel)
    again.set_state(tables.state())
    assert len(tables.state()["touched"]) > 0
    expected = run_steps(tables, kernel, 8, 20)
    assert all(expected) and run_steps(again, rows, 8, 20) == expected
    for name, value in tables.state().items():
        np.testing.assert_array_equal(value, again.state()[name])


def state_of_tables():
    tables = LSHIndex(num_hashes=2, num_tables=2)
    tables.build(variable(normal(30, 4)), seed=0)
    return tables.state()


BAD_INPUT = {
    "nan features": (
        lambda t, k: query(t, np.full((1, 4), np.nan, np.float32)),
        "`queries` must be finite",
    ),
    "features of another dim": (
        lambda t, k: query(t, normal(2, 5)),
        r"kernel of shape \(30, 4\)",
    ),
    "label too great": (
        lambda t, k: query(t, normal(2, 4), targets=[30]),
        "`targets` must be in",
    ),
    "nan rows": (
        lambda t, k: t.build(variable(np.full((3, 4), np.nan)), seed=0),
        "must be finite to build",
    ),
    "rank of the kernel": (
        lambda t, k: t.build(variable(np.zeros(3)), seed=0),
        "`kernel` must be float32",
    ),
    "table out of range": (
        lambda t, k: t.members(*as_queries(normal(2, 4)), [2], [0]),
        "`probed` must be in",
    ),
    "class out of range": (
        lambda t, k: t.members(*as_queries(normal(2, 4)), [0], [30]),
        "`ids` must be in",
    ),
    "lag": (
        lambda t, k: t.advance(k, 0, 1, lag=2, drifted=False, seed=0),
        "`lag` must be at most",
    ),
    "valid of another shape": (
        lambda t, k: t.members(
            np.zeros([2, 1, 4], np.float32), np.ones([1, 2], bool), [0], [0]
        ),
        "`valid` must have",
    ),
    "negative mark": (lambda t, k: t.mark([-1]), "`ids` must be in"),
    "code too long": (
        lambda t, k: hash_codes(normal(1, 4), 11, 1, "dwta"),
        "at most 30 bits",
    ),
    "vectors of rank 1": (
        lambda t, k: hash_codes(normal(4), 2, 1),
        "`vectors` must have rank 2",
    ),
    "vectors that are not finite": (
        lambda t, k: hash_codes(np.full((1, 2), np.inf, np.float32), 2, 1),
        "`vectors` must be finite",
    ),
    "vectors without coordinates": (
        lambda t, k: hash_codes(np.zeros((1, 0), np.float32), 2, 1),
        "`vectors` must have 1 to",
    ),
    "bytes that are none": (
        lambda t, k: t.set_state(
            {**t.state(), "ready": np.zeros(50, np.uint8)}
        ),
        "no set of LSH tables",
    ),
    "touched out of range": (
        lambda t, k: t.set_state({**t.state(), "touched": [-4]}),
        "`touched` must be in",
    ),
}


@pytest.mark.host
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused(name):
    call, message = BAD_INPUT[name]
    kernel, tables = (
        variable(normal(30, 4)),
        LSHIndex(num_hashes=2, num_tables=2),
    )
    tables.build(kernel, seed=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(tables, kernel)


@each_family
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_that_are_all_equal_share_all_buckets(hash, value):
    tables = LSHIndex(num_hashes=3, num_tables=4, hash=hash)
    rows = np.full((20, 5), value, np.float32)
    tables.build(variable(rows), seed=0)
    found = query(tables, rows[:1])[0].numpy()
    np.testing.assert_array_equal(np.sort(found), np.arange(20))
    # A bucket of its own that no class is in: nothing is found.
    if value and hash == "simhash":
        assert query(tables, -rows[:1])[0].shape == (0,)


def test_no_queries_find_nothing():
    tables = LSHIndex(num_hashes=2, num_tables=2)
    tables.build(variable(normal(30, 4)), seed=0)
    assert query(tables, np.zeros((0, 4), np.float32))[0].shape == (0,)
    nothing = tables.query(
        normal(2, 1, 4),
        np.zeros((2, 1), bool),
        np.zeros(0, np.int64),
        5,
        5,
        np.zeros(2, np.int64),
    )
    assert nothing[0].shape == (0,)
