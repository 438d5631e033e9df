"""The streaming passes over blocks of logits against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import reference
from tfxclass.ops.library import ops

# float32 sums of some thousand exponentials, each within 2e-7.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
SIZES = {"batch": (0, 5), "classes": (0, 70), "width": (0, 3)}
INF, NAN = float("inf"), float("nan")


def draw_case(seed, batch, classes, width, scale=5.0):
    """Logits, distinct targets (some padded), and what raises them."""
    random = np.random.default_rng(seed)
    logits = (scale * random.normal(size=(batch, classes))).astype(np.float32)
    targets = np.full((batch, width), -1, np.int64)
    for row in targets:
        count = random.integers(0, min(width, classes) + 1)
        row[:count] = random.permutation(classes)[:count]
    delta = random.normal(size=targets.shape).astype(np.float32)
    return logits, targets, np.where(targets >= 0, delta, 0.0)


def raised(logits, targets, delta):
    logits = np.array(logits, np.float64)
    for i, row in enumerate(targets):
        for c, move in zip(row, delta[i]):
            if c >= 0:
                logits[i, c] += move
    return logits


def blocks_of(total, size):
    return range(0, total, size) if total else [0]


def run_stats(logits, targets, delta, block):
    """log-sum-exp of each row, streamed in blocks of `block` classes."""
    top = tf.fill([len(logits)], -INF)
    total = tf.zeros([len(logits)], tf.float64)
    for start in blocks_of(logits.shape[1], block):
        top, total = ops.tfxclass_softmax_block_stats(
            logits[:, start : start + block], targets, delta, start, top, total
        )
    return top.numpy() + tf.math.log(total).numpy()


def run_top_k(logits, k, block):
    scores = tf.fill([len(logits), k], -INF)
    ids = tf.fill([len(logits), k], tf.constant(-1, tf.int64))
    for start in blocks_of(logits.shape[1], block):
        scores, ids = ops.tfxclass_top_k_block(
            logits[:, start : start + block], start, scores, ids
        )
    return ids.numpy(), scores.numpy()


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(*SIZES["batch"]),
    classes=st.integers(*SIZES["classes"]),
    width=st.integers(*SIZES["width"]),
    block=st.integers(1, 80),
)
def test_stats_in_blocks_equal_the_logsumexp(
    seed, batch, classes, width, block
):
    logits, targets, delta = draw_case(seed, batch, classes, width)
    result = run_stats(logits, targets, delta, block)
    expected = reference.logsumexp(raised(logits, targets, delta))
    np.testing.assert_allclose(result, expected, **TOLERANCE)


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(*SIZES["batch"]),
    classes=st.integers(*SIZES["classes"]),
    width=st.integers(*SIZES["width"]),
    block=st.integers(1, 80),
)
def test_grad_in_blocks_is_the_softmax_except_at_targets(
    seed, batch, classes, width, block
):
    logits, targets, at_targets = draw_case(seed, batch, classes, width)
    upstream = np.random.default_rng(seed).normal(size=batch)
    upstream = upstream.astype(np.float32)
    expected = upstream[:, None] * reference.softmax(logits)
    for i, row in enumerate(targets):
        expected[i, row[row >= 0]] = at_targets[i, row >= 0]
    logsumexp = reference.logsumexp(logits).astype(np.float32)
    pieces = [
        ops.tfxclass_softmax_block_grad(
            logits[:, start : start + block],
            targets,
            at_targets,
            start,
            logsumexp,
            upstream,
        )
        for start in blocks_of(classes, block)
    ]
    np.testing.assert_allclose(
        np.concatenate(pieces, axis=1), expected, **TOLERANCE
    )


def test_grad_leaves_its_input_alone_where_it_is_read_again():
    logits = tf.constant([[1.0, 2.0]])
    ops.tfxclass_softmax_block_grad(
        logits, [[0]], [[0.5]], 0, tf.constant([3.0]), tf.constant([1.0])
    )
    assert logits.numpy().tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("block", [1, 7, 64, 1000, 5000])
def test_stats_of_many_classes(block):
    logits, targets, delta = draw_case(0, 3, 4999, 2)
    result = run_stats(logits, targets, delta, block)
    expected = reference.logsumexp(raised(logits, targets, delta))
    np.testing.assert_allclose(result, expected, **TOLERANCE)


FAR_BELOW = [-1e5] * 40  # long enough for the vectorised loop

EXTREME_ROWS = {
    "great": ([*FAR_BELOW, 1e4, -1e4, 0.0], 1e4),
    "great_and_equal": ([1e4, *FAR_BELOW, 1e4], 1e4 + np.log(2)),
    "very_low": ([-1e4, *FAR_BELOW, -1e4], -1e4 + np.log(2)),
    "first_is_minus_infinity": ([-INF, 1.0], 1.0),
    "all_are_minus_infinity": ([-INF] * 5, -INF),
    "infinity": ([0.0, INF], NAN),
    "nan_first": ([NAN, *FAR_BELOW, 1.0], NAN),
    "nan_last": ([1.0, *FAR_BELOW, NAN], NAN),
    "nan_with_minus_infinity": ([-INF, -INF, NAN], NAN),
}


@pytest.mark.parametrize("name", EXTREME_ROWS)
@pytest.mark.parametrize("block", [1, 2, 8, 100])
def test_stats_of_extreme_logits(name, block):
    row, expected = EXTREME_ROWS[name]
    none = np.full((1, 1), -1, np.int64)
    delta = np.zeros((1, 1), np.float32)
    result = run_stats(np.array([row], np.float32), none, delta, block)
    np.testing.assert_allclose(result, [expected], rtol=1e-6)


@pytest.mark.parametrize("block", [1, 2, 5])
@pytest.mark.parametrize("rest", [-10.0, -30.0, -60.0])
def test_margin_on_a_target_far_above_the_rest(block, rest):
    """With CosFace's usual scale of 64 a margin takes a target that dwarfs
    the rest (60 above it here) below it: the rest must not be lost in its
    shadow."""
    logits = np.array([[rest, 0.0, rest, rest, rest]], np.float32)
    targets = np.array([[1]])
    for move in (-100.0, rest - 2.0, -25.6):
        delta = np.array([[move]], np.float32)
        expected = reference.logsumexp(raised(logits, targets, delta))
        result = run_stats(logits, targets, delta, block)
        np.testing.assert_allclose(result, expected, **TOLERANCE)


@given(
    logits=st.lists(
        st.sampled_from([-INF, -1e4, -1.0, 0.0, 0.5, 1.0, 1e4, INF, NAN]),
        max_size=150,
    ),
    k=st.integers(1, 12),
    block=st.integers(1, 160),
)
def test_top_k_in_blocks_with_ties_and_nan(logits, k, block):
    logits = np.array([logits, logits[::-1]], np.float32)
    ids, scores = run_top_k(logits, k, block)
    expected_ids, expected_scores = reference.top_k(logits, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(0, 4),
    classes=st.integers(1, 300),
    k=st.integers(1, 40),
    block=st.integers(1, 300),
)
def test_top_k_of_random_logits(seed, batch, classes, k, block):
    logits = draw_case(seed, batch, classes, 0)[0]
    ids, scores = run_top_k(logits, k, block)
    expected_ids, expected_scores = reference.top_k(logits, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


def test_top_k_of_ids_past_32_bits():
    offset = 2**40
    scores, ids = ops.tfxclass_top_k_block(
        tf.constant([[1.0, 3.0, 2.0]]),
        offset,
        tf.fill([1, 2], -INF),
        tf.fill([1, 2], tf.constant(-1, tf.int64)),
    )
    assert ids.numpy().tolist() == [[offset + 1, offset + 2]]
    assert scores.numpy().tolist() == [[3.0, 2.0]]


@given(
    seed=st.integers(0, 10**6),
    shape=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    data=st.data(),
)
def test_write_rows(seed, shape, data):
    random = np.random.default_rng(seed)
    start = data.draw(st.integers(0, shape[0]))
    count = data.draw(st.integers(0, shape[0] - start))
    buffer = random.normal(size=shape).astype(np.float32)
    rows = random.normal(size=[count, *shape[1:]]).astype(np.float32)
    held = tf.constant(buffer)
    result = ops.tfxclass_write_rows(held, rows, start)
    expected = buffer.copy()
    expected[start : start + count] = rows
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(held, buffer)  # held: copied, not written


def test_rows_written_in_a_loop_fill_an_empty_buffer():
    like = tf.zeros([1003, 5])
    rows = tf.random.stateless_normal([1003, 5], seed=[1, 2])

    @tf.function
    def copied():
        def step(start, buffer):
            piece = rows[start : start + 100]
            return start + 100, ops.tfxclass_write_rows(buffer, piece, start)

        return tf.while_loop(
            lambda start, _: start < 1003,
            step,
            (tf.zeros([], tf.int64), ops.tfxclass_empty_like(like)),
            parallel_iterations=1,
        )[1]

    np.testing.assert_array_equal(copied(), rows)


def test_empty_like_has_the_shape():
    assert ops.tfxclass_empty_like(tf.zeros([3, 0, 2])).shape == [3, 0, 2]


def stats_arguments(**changes):
    arguments = {
        "logits": tf.zeros([3, 4]),
        "targets": tf.zeros([3, 2], tf.int64),
        "delta": tf.zeros([3, 2]),
        "offset": 0,
        "running_max": tf.zeros([3]),
        "running_sum": tf.zeros([3], tf.float64),
    }
    return ops.tfxclass_softmax_block_stats(**{**arguments, **changes})


def grad_arguments(**changes):
    arguments = {
        "logits": tf.zeros([3, 4]),
        "targets": tf.zeros([3, 2], tf.int64),
        "target_grad": tf.zeros([3, 2]),
        "offset": 0,
        "logsumexp": tf.zeros([3]),
        "upstream": tf.zeros([3]),
    }
    return ops.tfxclass_softmax_block_grad(**{**arguments, **changes})


def top_k_arguments(**changes):
    arguments = {
        "logits": tf.zeros([3, 4]),
        "offset": 0,
        "scores": tf.zeros([3, 2]),
        "ids": tf.zeros([3, 2], tf.int64),
    }
    return ops.tfxclass_top_k_block(**{**arguments, **changes})


def write_arguments(**changes):
    arguments = {"buffer": tf.zeros([4, 2]), "rows": tf.zeros([2, 2])}
    return ops.tfxclass_write_rows(**{**arguments, "start": 0, **changes})


INVALID = {
    "stats_rank": (
        stats_arguments,
        {"logits": tf.zeros([3])},
        ["`logits` must have rank 2", "(3)"],
    ),
    "stats_targets_rank": (
        stats_arguments,
        {"targets": tf.zeros([3], tf.int64)},
        ["`targets` must have rank 2"],
    ),
    "stats_targets_rows": (
        stats_arguments,
        {"targets": tf.zeros([2, 2], tf.int64)},
        ["`targets` must have a row for each", "(2, 2)", "(3, 4)"],
    ),
    "stats_delta": (
        stats_arguments,
        {"delta": tf.zeros([3, 1])},
        ["(3, 2)", "Received: shape (3, 1)"],
    ),
    "stats_offset": (
        stats_arguments,
        {"offset": [0]},
        ["`offset` must have rank 0"],
    ),
    "stats_max": (
        stats_arguments,
        {"running_max": tf.zeros([4])},
        ["`running_max` must have shape (3)", "(4)"],
    ),
    "stats_sum": (
        stats_arguments,
        {"running_sum": tf.zeros([3, 1], tf.float64)},
        ["`running_sum` must have shape (3)", "(3, 1)"],
    ),
    "grad_rank": (
        grad_arguments,
        {"logits": tf.zeros([3, 4, 1])},
        ["`logits` must have rank 2", "(3, 4, 1)"],
    ),
    "grad_logsumexp": (
        grad_arguments,
        {"logsumexp": tf.zeros([2])},
        ["`logsumexp` must have shape (3)"],
    ),
    "grad_upstream": (
        grad_arguments,
        {"upstream": tf.zeros([])},
        ["`upstream` must have shape (3)", "()"],
    ),
    "top_k_ids": (
        top_k_arguments,
        {"ids": tf.zeros([3, 1], tf.int64)},
        ["`ids` must have shape (3, 2)", "(3, 1)"],
    ),
    "top_k_batch": (
        top_k_arguments,
        {"logits": tf.zeros([5, 4])},
        ["`scores` must have shape (5, k) with k > 0", "(3, 2)"],
    ),
    "top_k_zero": (
        top_k_arguments,
        {"scores": tf.zeros([3, 0]), "ids": tf.zeros([3, 0], tf.int64)},
        ["k > 0", "(3, 0)"],
    ),
    "write_rank": (
        write_arguments,
        {"rows": tf.zeros([2])},
        ["`rows` must have the rank of `buffer`", "(2)", "(4, 2)"],
    ),
    "write_width": (
        write_arguments,
        {"rows": tf.zeros([2, 3])},
        ["`rows` must have shape (2, 2)", "(2, 3)"],
    ),
    "write_past_the_end": (
        write_arguments,
        {"start": 3},
        ["`rows` must fit into `buffer`", "start=3 and 2 rows with 4"],
    ),
    "write_before_the_start": (
        write_arguments,
        {"start": -1},
        ["`rows` must fit into `buffer`", "start=-1"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    op, changes, parts = INVALID[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        op(**changes)
    for part in parts:
        assert part in str(error.value)
