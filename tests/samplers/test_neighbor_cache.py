"""Neighbours by label: what is kept, who is searched for, what a step has."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.test_hashing_forest import clustered
from tests.support import reference
from tests.support.lsh import lsh_sampler
from tfxclass import layers
from tfxclass import samplers
from tfxclass.ops import library
from tfxclass.ops.placement import handle_of
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.indexed import candidate_count

pytestmark = pytest.mark.host

CLASSES, DIM, BATCH, WIDTH = 300, 8, 16, 4


def int64(values):
    return tf.constant(values, tf.int64)


def memory_of(rows, slots=20):
    """A variable; rows by label: the step, and the neighbours."""
    memory = np.full((slots, 2 + WIDTH), -1)
    for label, (step, ids) in rows.items():
        memory[label % slots] = [label, step, *ids, *[-1] * (WIDTH - len(ids))]
    return tf.Variable(int64(memory))


def recall_op(*arguments):
    """`(asked, known)`, of variables and tensors."""
    handles = map(handle_of, arguments[:3])
    return library.ops.tfxclass_recall_neighbors(*handles, *arguments[3:])


def rank_op(memory, kernel, *arguments):
    """`(ids, shares)`, of variables, tensors and `normalize`."""
    *arguments, normalize = arguments
    handles = handle_of(memory), handle_of(kernel)
    return library.ops.tfxclass_rank_neighbors(
        *handles, *arguments, normalize=normalize
    )


TABLES, BITS, PLACES = 2, 1, 3


def empty():
    """Tables of recent labels, and their centres."""
    recent = np.full((TABLES, 1 << BITS, PLACES), -1, np.int32)
    return tf.Variable(recent), tf.Variable(tf.zeros([TABLES * BITS]))


def recall(memory, labels, num_asked=0, step=0):
    """`(asked, known)`, what is remembered of labels alone, as lists."""
    products = tf.zeros([len(labels), TABLES * BITS])
    asked, known = recall_op(
        memory, *empty(), products, int64(labels), num_asked, step
    )
    assert (known[:, 2 * WIDTH :].numpy() == -1).all()
    return asked.numpy().tolist(), known[:, : 2 * WIDTH].numpy().tolist()


def test_a_label_has_its_neighbours_and_those_of_one_of_them():
    rows = {3: (7, [5, 6]), 5: (2, [6, 8, 3, 9]), 6: (1, [1])}
    memory = memory_of(rows)
    _, known = recall(memory, [3, -1, 4, 23, 5])
    # Of neighbour 5 the step takes what is new; 23 would lie where 3 does.
    assert known[0] == [5, 6, -1, -1, -1, 8, 3, 9]
    assert known[1:4] == [[-1] * 8] * 3
    assert known[4] == [6, 8, 3, 9, 1, -1, -1, -1]
    _, known = recall(memory, [3], step=1)
    assert known[0] == [5, 6, -1, -1, 1, -1, -1, -1]


def test_the_rows_searched_for_longest_ago_are_searched_for():
    memory = memory_of({4: (0, [1]), 2: (1, [1]), 3: (2, [1])})
    # Label 9 is new; a row without a label is the last.
    labels = [3, -1, 2, 9, 4, 2]
    assert recall(memory, labels, 6)[0] == [3, 4, 2, 5, 0, 1]
    assert recall(memory, labels, 2)[0] == [3, 4]
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_asked"):
        recall(memory, labels, 7)


@given(
    seed=st.integers(0, 10**6),
    bits=st.integers(0, 3),
    places=st.integers(1, 4),
    spread=st.sampled_from([0.0, 1.0]),
)
def test_recent_labels_equal_the_definition(seed, bits, places, spread):
    """Steps of rows that come again: what buckets hold, by a dict."""
    random = np.random.default_rng(seed)
    recent = tf.Variable(tf.fill([TABLES, 1 << bits, places], -1))
    centres = tf.Variable(tf.zeros([TABLES * bits]))
    expected, centre = {}, np.zeros(TABLES * bits)
    for number in range(6):
        # Distinct: no product is at its centre but for those that all are.
        shape = 5, TABLES * bits
        products = spread * random.normal(size=shape).astype(np.float32)
        labels = random.integers(-1, 8, 5)
        _, known = recall_op(
            memory_of({}),
            recent,
            centres,
            tf.constant(products),
            int64(labels),
            0,
            number,
        )
        rate = 1 / (number + 1)
        centre += rate * (products.mean(axis=0) - centre)
        above = products > centre
        keys = [
            [(t, tuple(row[t * bits : (t + 1) * bits])) for t in range(TABLES)]
            for row in above
        ]
        held = [
            [expected.get(key, [-1] * places) for key in row] for row in keys
        ]
        np.testing.assert_array_equal(
            known[:, 2 * WIDTH :], np.reshape(held, (5, TABLES * places))
        )
        for r, label in enumerate(labels):
            for key in keys[r] if label >= 0 else ():
                bucket = list(expected.get(key, [-1] * places))
                if label not in bucket:
                    free = bucket.index(-1) if -1 in bucket else None
                    oldest = (number + r) % places
                    bucket[oldest if free is None else free] = label
                expected[key] = bucket


def test_buckets_fill_evenly_wherever_features_lie():
    """Far from zero the signs of products alone would be all the same."""
    sampler = samplers.AutoSampler(9, seed=1)
    sampler.build((CLASSES, DIM))
    kept, kernel = sampler.neighbor_cache, tf.Variable(tf.ones([CLASSES, DIM]))
    random = np.random.default_rng(0)
    for step in range(20):
        features = 50 + random.normal(size=(64, DIM)).astype(np.float32)
        features = tf.constant(features)
        labels = int64(random.integers(0, CLASSES, (64, 1)))
        kept.find(features, labels, kernel, int64(8), int64(step))
    in_use = (kept.recent.numpy()[:, :, 0] >= 0).mean()
    assert in_use > 0.6, in_use


def test_each_label_of_a_row_has_its_turn():
    targets = int64([[3, 900, -1], [7, -1, -1], [-1, -1, -1], [5, 6, 8]])
    turns = [
        neighbor_cache.label_of(targets, int64(step)).numpy()
        for step in range(60)
    ]
    seen = [set(row) for row in np.stack(turns, axis=1).tolist()]
    assert seen == [{3, 900}, {7}, {-1}, {5, 6, 8}]


def ranked(kernel, query, targets, candidates, count):
    """The definition, in float64: `(ids, shares)`."""
    targets = np.unique(targets[targets >= 0])
    others = np.setdiff1d(candidates[candidates >= 0], targets)
    logits = kernel[np.concatenate([targets, others])] @ query
    shares = reference.softmax(logits[None])[0, len(targets) :]
    order = np.argsort(-shares, kind="stable")[:count]
    return others[order], shares[order]


@given(
    seed=st.integers(0, 10**6),
    normalize=st.booleans(),
    more=st.integers(1, 6),
    width=st.sampled_from([7, 40, 150]),
    twice=st.booleans(),
)
def test_rows_are_ranked_and_the_best_are_kept(
    seed, normalize, more, width, twice
):
    random = np.random.default_rng(seed)
    classes = 4 * width
    kernel = clustered(classes, DIM, seed)
    if twice:
        # Of equals the lower id is the better one.
        kernel[1::2] = kernel[::2]
    # Products of eighths are exact: as many are equal as seem to be.
    kernel = np.round(8 * kernel) / np.float32(8)
    queries = random.integers(-16, 17, (5, DIM)).astype(np.float32) / 8
    targets = random.integers(-1, classes, (5, 2))
    labels = targets.max(axis=1)
    known = random.integers(-1, classes, (5, width))
    asked = np.array([4, 1])
    found = random.integers(-1, classes, (2, more))
    memory = memory_of({int(labels[0]): (5, [3])} if labels[0] >= 0 else {})
    count = max(more, WIDTH)
    ids, shares = rank_op(
        memory,
        tf.Variable(kernel),
        tf.constant(queries),
        *map(int64, (targets, labels, known, asked, found)),
        count,
        9,
        normalize,
    )
    unit = reference.normalized(kernel) if normalize else kernel
    assert ids.shape == shares.shape == (5, count)
    last = np.where(np.isin(np.arange(5), asked), 9, -1)
    last[0] = 5
    for r in range(5):
        candidates = known[r]
        for place in np.flatnonzero(asked == r):
            candidates = np.concatenate([candidates, found[place]])
        expected, of_each = ranked(
            unit.astype(np.float64),
            queries[r],
            targets[r],
            candidates,
            count,
        )
        there = len(expected)
        assert (ids.numpy()[r, there:] == -1).all()
        if normalize:
            # Lengths are rounded: equals may be in any order.
            best = unit[ids.numpy()[r, :there]] @ queries[r]
            np.testing.assert_allclose(
                best, unit[expected] @ queries[r], atol=1e-5
            )
        else:
            np.testing.assert_array_equal(ids[r, :there], expected)
        # A logit errs by some epsilons of its terms, which are below 30.
        np.testing.assert_allclose(shares[r, :there], of_each, rtol=1e-4)
    expected = memory_after(labels, last, ids.numpy(), column=9 % WIDTH)
    assert {row[0]: row[1:] for row in memory.numpy().tolist()} == expected


def memory_after(labels, last, ids, column):
    """The definition: `{label: [step, *neighbours]}`, and -1 has none."""
    rows, places = {}, {}
    for r, label in enumerate(labels.tolist()):
        # Of two rows of one place the first is kept.
        if label >= 0 and places.setdefault(label % 20, label) == label:
            rows.setdefault(label, [int(last[r]), *ids[r, :WIDTH].tolist()])
    for label, near in zip(labels.tolist(), ids[:, column].tolist()):
        row = rows.get(near)
        if label >= 0 and row and label != near and label not in row[1:]:
            free = row.index(-1, 1) if -1 in row[1:] else WIDTH
            row[free] = label
    return rows | {-1: [-1] * (1 + WIDTH)}


def test_what_is_near_gets_the_label_as_its_neighbour():
    """One neighbour, each step another one: at its end, if it is full."""
    rows = {1: (3, [2]), 2: (4, [1, 6, 7, 8]), 5: (2, [4])}

    def kept(label, step):
        memory = memory_of(rows)
        known = int64([[2, 5, 9]])
        rank_op(
            memory,
            tf.Variable(-np.arange(12.0, dtype=np.float32)[:, np.newaxis]),
            tf.ones([1, 1]),
            *map(int64, ([[label]], [label], known, [], np.zeros((0, 1)))),
            WIDTH,
            step,
            False,
        )
        return {r[0]: r[2:] for r in memory.numpy().tolist() if r[0] >= 0}

    before = {1: [2, -1, -1, -1], 2: [1, 6, 7, 8], 5: [4, -1, -1, -1]}
    own = {3: [2, 5, 9, -1]}
    assert kept(3, 0) == before | own | {2: [1, 6, 7, 3]}
    assert kept(3, 1) == before | own | {5: [4, 3, -1, -1]}
    # 9 has no row, and there is no fourth neighbour.
    assert kept(3, 2) == kept(3, 3) == before | own
    # 2 has label 1 already.
    assert kept(1, 0) == before | {1: [2, 5, 9, -1]}


def test_logits_that_are_not_finite_count_for_nothing():
    kernel = np.ones((6, 2), np.float32)
    kernel[2], kernel[3] = np.nan, np.inf
    ids, shares = rank_op(
        memory_of({}),
        tf.Variable(kernel),
        tf.ones([1, 2]),
        *map(int64, ([[0]], [0], [[2, 3, 4, 5]], [], np.zeros((0, 1)))),
        4,
        0,
        False,
    )
    assert ids.numpy().tolist() == [[4, 5, -1, -1]]
    np.testing.assert_allclose(shares, [[1 / 3, 1 / 3, 0, 0]], rtol=1e-6)


ERRORS = {
    "memory": (0, tf.Variable([[1.0, 2.0, 3.0]]), "`memory` must be an int64"),
    "queries": (2, tf.ones([1, 3]), "`queries` must have 2 columns"),
    "nan": (2, tf.constant([[np.nan, 1]]), "`queries` must be finite"),
    "targets": (3, int64([[6]]), r"`target_ids` must be in \[-1, 6\)"),
    "labels": (4, int64([0, 0]), "`labels` must have 1 rows"),
    "asked": (6, int64([1]), r"`asked` must be in \[0, 1\)"),
    "found": (7, int64([[1], [2]]), "`found` must have 1 rows"),
    "count": (8, 0, "`count` must be in"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    place, value, message = ERRORS[name]
    arguments = [
        memory_of({}),
        tf.Variable(tf.ones([6, 2])),
        tf.ones([1, 2]),
        *map(int64, ([[0]], [0], [[2]], [0], [[1]])),
        WIDTH,
        0,
        False,
    ]
    arguments[place] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        rank_op(*arguments)


def test_classes_that_share_a_place_take_less_memory(monkeypatch):
    monkeypatch.setattr(neighbor_cache, "_MOST_SLOTS", 10)
    row = 8 * (2 + neighbor_cache.width_of(CLASSES))
    monkeypatch.setattr(neighbor_cache, "_MOST_SLOTS", CLASSES)
    all_rows = neighbor_cache.bytes_of(CLASSES, DIM)
    monkeypatch.setattr(neighbor_cache, "_MOST_SLOTS", 10)
    few_rows = neighbor_cache.bytes_of(CLASSES, DIM)
    assert all_rows - few_rows == row * (CLASSES - 10)
    sampler = samplers.HashingForestSampler(9)
    sampler.build((CLASSES, DIM))
    assert sampler.neighbor_cache.weight.shape == (10, 10)


def parts_found(sampler, steps):
    """Of a batch that comes again: of the best others of its rows, those that
    are chosen at each step, not drawn."""
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    head.build((None, DIM))
    head.kernel.assign(clustered(CLASSES, DIM))
    rows = head.kernel.numpy()
    labels = np.arange(BATCH) * 7
    features = 3 * rows[labels]
    best = hard(rows, features, labels)
    for _ in range(steps):
        sample = sampler.sample(
            tf.constant(features), int64(labels)[:, tf.newaxis], head.kernel
        )
        sampler.update(head.kernel, sample.ids)
        # Not those of the fill.
        found = sample.ids.numpy()[sample.log_expected_count.numpy() == 0]
        yield np.isin(best, found).mean()


def hard(rows, features, labels):
    """The best class of each row that is no label, by NumPy."""
    logits = features @ rows.T
    logits[:, labels] = -np.inf
    return logits.argmax(axis=1)


@pytest.mark.parametrize(("share", "least"), [(None, 0.9), (1.0, 0.9)])
def test_a_step_has_neighbours_of_all_rows(share, least):
    """Of a batch that comes again, each time with another row asked for."""
    sampler = samplers.HashingForestSampler(
        5 * BATCH, 20, 20, query_fraction=share, seed=1
    )
    shares = list(parts_found(sampler, BATCH + 4))
    assert shares[-1] >= least, shares
    # One row, and what it shares with others.
    assert shares[0] >= least if share else shares[0] < 0.8, shares


@given(st.integers(0, 2**40), st.sampled_from([0.0]) | st.floats(1e-6, 1.0))
def test_a_part_of_places_is_the_same_of_a_tensor(count, fraction):
    of_tensor = candidate_count(tf.constant(count, tf.int64), fraction)
    assert candidate_count(count, fraction) == of_tensor


@pytest.mark.parametrize("fraction", [0.25, 0.99, 1.0])
def test_neighbours_take_a_part_of_what_labels_leave(fraction):
    """The others are drawn, however many labels there are."""
    sampler = samplers.HashingForestSampler(
        60, 20, 20, neighbor_fraction=fraction, query_fraction=1.0, seed=1
    )
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    head.build((None, DIM))
    head.kernel.assign(clustered(CLASSES, DIM))
    labels = np.arange(40)
    sample = sampler.sample(
        tf.constant(head.kernel.numpy()[labels]),
        int64(labels)[:, tf.newaxis],
        head.kernel,
    )
    drawn = np.count_nonzero(sample.log_expected_count.numpy())
    assert drawn == {0.25: 15, 0.99: 1, 1.0: 0}[fraction]


@pytest.mark.parametrize("scheme", ["embedding", "label"])
def test_tables_are_read_for_a_part_of_the_rows(scheme):
    """And after some steps neighbors of all rows are cached."""
    sampler = lsh_sampler(
        5 * BATCH, scheme=scheme, num_hashes=3, num_tables=8, seed=1
    )
    assert sampler.searched_fraction() == 0.0625
    shares = []
    for share in parts_found(sampler, BATCH + 4):
        shares.append(share)
        assert 0 < float(sampler.measured["table_hit_rate"]) <= 1
    # Over seeds 0 to 0.31, and 0.75 to 0.94, by compiled and by stock ops.
    assert shares[0] <= 0.5 and shares[-1] >= 0.7, shares


@pytest.mark.parametrize(
    "options",
    [
        {"correction": "none"},
        {"negatives": "sample"},
        {"query_fraction": 1.0},
    ],
)
def test_laws_of_the_tables_read_them_for_all_rows(options):
    sampler = lsh_sampler(9, **options)
    assert sampler.searched_fraction() == 1
    assert (
        samplers.LSHSampler(9)
        .for_rows(0, 50, num_sampled=9, seed=1)
        .searched_fraction()
        == 1
    )


@pytest.mark.parametrize(
    "options", [{"correction": "none"}, {"negatives": "sample"}]
)
def test_a_part_of_the_rows_has_no_such_law(options):
    with pytest.raises(ValueError, match="`query_fraction` below 1 needs"):
        samplers.LSHSampler(9, query_fraction=0.5, **options)


def test_shards_and_the_papers_rule_ask_for_all_rows():
    sampler = samplers.HashingForestSampler(9)
    assert sampler.searched_fraction() == 0.0625
    assert (
        sampler.for_rows(0, 50, num_sampled=9, seed=1).searched_fraction() == 1
    )
    paper = samplers.HashingForestSampler(9, correct_fill=False)
    assert paper.searched_fraction() == 1
    again = samplers.HashingForestSampler(9, query_fraction=0.5).get_config()
    assert again["query_fraction"] == 0.5


def test_with_rows_on_servers_all_are_asked_for(monkeypatch):
    servers = object.__new__(tf.distribute.ParameterServerStrategy)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: servers)
    sampler = samplers.HashingForestSampler(9, query_fraction=0.5)
    sampler.build((CLASSES, DIM))
    assert sampler.searched_fraction() == 1 and sampler.neighbor_cache is None


def test_a_gpu_searches_for_all_rows():
    sampler = samplers.HashingForestSampler(9)
    sampler.device = "/job:localhost/task:0/device:GPU:0"
    assert sampler.searched_fraction() == 1


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_of_nothing_is_refused(share):
    with pytest.raises(
        ValueError, match=r"`query_fraction` must be in \(0, 1\]"
    ):
        samplers.HashingForestSampler(9, query_fraction=share)
