"""The fused row updates against NumPy in float64."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tfxclass.ops import row_update

LR, DECAY, BETA_1, BETA_2, EPSILON = 0.1, 0.01, 0.9, 0.99, 1e-3
# A handful of float32 operations on numbers near 1.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def summed(ids, grads, shape):
    total = np.zeros(shape)
    np.add.at(total, ids, grads)
    return total


def sgd(w, slots, g):
    m = 0.9 * slots[0] - LR * g
    return w - DECAY * w + 0.9 * m - LR * g, [m]


def plain_sgd(w, slots, g):
    return w - DECAY * w - LR * g, []


def adagrad(w, slots, g):
    a = slots[0] + g**2
    return w - DECAY * w - LR * g / np.sqrt(a + EPSILON), [a]


def adam(w, slots, g):
    m = BETA_1 * slots[0] + (1 - BETA_1) * g
    v = BETA_2 * slots[1] + (1 - BETA_2) * g**2
    return w - DECAY * w - LR * m / (np.sqrt(v) + EPSILON), [m, v]


def amsgrad(w, slots, g):
    _, (m, v) = adam(w, slots[:2], g)
    top = np.maximum(slots[2], v)
    return w - DECAY * w - LR * m / (np.sqrt(top) + EPSILON), [m, v, top]


def run_sgd(w, slots, last, ids, grads, step=0):
    row_update.sgd_update(
        w,
        slots[0] if slots else None,
        last,
        ids,
        grads,
        step=step,
        learning_rate=LR,
        decay=DECAY,
        momentum=0.9,
        nesterov=True,
    )


def run_adagrad(w, slots, last, ids, grads, step=0):
    row_update.adagrad_update(
        w,
        slots[0],
        last,
        ids,
        grads,
        step=step,
        learning_rate=LR,
        decay=DECAY,
        epsilon=EPSILON,
    )


def run_adam(w, slots, last, ids, grads, step=0):
    row_update.adam_update(
        w,
        slots,
        last,
        ids,
        grads,
        step=step,
        alpha=LR,
        decay=DECAY,
        beta_1=BETA_1,
        beta_2=BETA_2,
        epsilon=EPSILON,
    )


RULES = {
    "plain_sgd": (plain_sgd, run_sgd, 0),
    "sgd": (sgd, run_sgd, 1),
    "adagrad": (adagrad, run_adagrad, 1),
    "adam": (adam, run_adam, 2),
    "amsgrad": (amsgrad, run_adam, 3),
}


def variables_of(num_slots, shape, random):
    values = [random.normal(size=shape).astype(np.float32)]
    for _ in range(num_slots):
        values.append(random.uniform(size=shape).astype(np.float32))
    return values, [tf.Variable(v) for v in values]


def check(rule, shape, ids, seed=0):
    oracle, run, num_slots = RULES[rule]
    random = np.random.default_rng(seed)
    values, variables = variables_of(num_slots, shape, random)
    grads = random.normal(size=(len(ids), *shape[1:])).astype(np.float32)
    handles = [v.handle for v in variables]
    ids = np.asarray(ids, np.int64)
    run(handles[0], handles[1:], None, ids, grads)
    wide = [v.astype(np.float64) for v in values]
    w, slots = oracle(wide[0], wide[1:], summed(ids, grads, shape))
    touched = np.isin(np.arange(shape[0]), ids)
    for got, old, new in zip(variables, values, [w, *slots]):
        got = got.numpy()
        np.testing.assert_allclose(got[touched], new[touched], **TOLERANCE)
        np.testing.assert_array_equal(got[~touched], old[~touched])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 1), (5,), (9, 3), (40, 17), (6, 2, 3), (3000, 33)]
)
def test_touched_rows_move_and_others_do_not(rule, shape):
    ids = np.random.default_rng(1).integers(0, shape[0], 2 * shape[0] // 3 + 1)
    check(rule, shape, ids)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ids", [[], [2, 2, 2, 2], [3, 0, 3], [0, 1, 2, 3]])
def test_duplicates_and_none(rule, ids):
    check(rule, (4, 5), ids)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5000),
    dim=st.integers(1, 20),
    n=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_any_size(rows, dim, n, seed):
    ids = np.random.default_rng(seed).integers(0, rows, n)
    check("adam", (rows, dim), ids, seed)


def test_last_step_is_recorded():
    last = tf.Variable(np.array([4, 5, 6], np.int64))
    w, m = tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([3, 2]))
    run_sgd(w.handle, [m.handle], last.handle, [2, 0, 2], tf.ones([3, 2]), 9)
    assert last.numpy().tolist() == [10, 5, 10]


def test_a_tensor_read_before_keeps_its_value():
    w = tf.Variable(tf.ones([3, 2]))
    before = w.read_value()
    alias = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32)
    run_sgd(w.handle, [], None, [1], tf.ones([1, 2]))
    np.testing.assert_array_equal(before, np.ones((3, 2)))
    np.testing.assert_array_equal(alias, np.ones((3, 2)))
    assert w.numpy()[1, 0] < 1


def test_sum_duplicate_rows():
    ids, sums = row_update.sum_duplicate_rows(
        [5, 1, 5, 2**40], tf.reshape(tf.range(12.0), [4, 3])
    )
    assert ids.numpy().tolist() == [1, 5, 2**40]
    assert sums.numpy().tolist() == [[3, 4, 5], [6, 8, 10], [9, 10, 11]]
    ids, sums = row_update.sum_duplicate_rows([], tf.zeros([0, 3]))
    assert ids.shape == (0,) and sums.shape == (0, 3)


def floats(*shape):
    return tf.Variable(np.ones(shape, np.float32))


W, SLOTS = (4, 2), (floats(4, 2), floats(4, 2))
IDS, GRADS = np.array([1, 3], np.int64), np.ones((2, 2), np.float32)
LAST = tf.Variable(np.zeros(4, np.int64))
BAD = {
    "id too high": ({"ids": np.array([1, 4])}, "4 at position 1"),
    "id negative": ({"ids": np.array([-1, 3])}, "-1 at position 0"),
    "ids of rank 2": ({"ids": np.array([[1, 3]])}, "rank 1"),
    "grads too few": ({"grads": np.ones((1, 2), "f")}, r"\(2, 2\).*\(1, 2\)"),
    "grads too wide": ({"grads": np.ones((2, 3), "f")}, r"\(2, 2\).*\(2, 3\)"),
    "grads of rank 1": ({"grads": np.ones(4, "f")}, r"\(2, 2\).*\(4\)"),
    "slot of another shape": (
        {"slots": [SLOTS[0], floats(3, 2)]},
        r"Slot 1 .*\(4, 2\).*\(3, 2\)",
    ),
    "slot of another type": (
        {"slots": [SLOTS[0], tf.Variable(np.ones(W))]},
        "float32. Received: double",
    ),
    "one slot": ({"slots": SLOTS[:1]}, "2 to 3 variables. Received: 1"),
    "slot twice": ({"slots": [SLOTS[0]] * 2}, "different variables"),
    "last_step too short": (
        {"last": tf.Variable(np.zeros(3, np.int64))},
        r"int64 of shape \(4\).*\(3\)",
    ),
    "last_step int32": (
        {"last": tf.Variable(np.zeros(4, np.int32))},
        "Received: int32",
    ),
    "step a vector": ({"step": [1, 2]}, "rank 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_changes_nothing(case):
    change, message = BAD[case]
    arguments = {"slots": SLOTS, "last": LAST, "ids": IDS, "grads": GRADS}
    arguments = {"step": 1, **arguments, **change}
    slots, last = arguments.pop("slots"), arguments.pop("last")
    w = floats(*W)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run_adam(
            w.handle, [s.handle for s in slots], last=last.handle, **arguments
        )
    for variable in (w, *slots):
        np.testing.assert_array_equal(variable, np.ones(variable.shape))
    assert not last.numpy().any()


def test_a_scalar_has_no_rows():
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 1 or more"):
        run_sgd(floats().handle, [], None, [], tf.zeros([0]))


def test_uninitialised_variable():
    handle = tf.raw_ops.VarHandleOp(
        dtype=tf.float32, shape=[4, 2], shared_name="never_assigned"
    )
    with pytest.raises(tf.errors.OpError, match="never_assigned"):
        run_sgd(handle, [], None, IDS, GRADS)


def test_catch_up_needs_last_step():
    ops = row_update.ops
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="at least minimum 1"
    ):
        ops.tfxclass_lazy_sgd_catch_up(
            variable=floats(4, 2).handle,
            slots=[],
            last_step=[],
            ids=IDS,
            step=1,
            decay=0.0,
            momentum=0.0,
            nesterov=False,
        )


THREADS = """
import hashlib, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass.ops import row_update
random = np.random.default_rng(3)
state = [random.uniform(size=(5000, 37)).astype("f") for _ in range(3)]
state = [tf.Variable(x) for x in state]
last = tf.Variable(random.integers(0, 20, 5000))
w, m, v = (x.handle for x in state)
for step in range(20, 25):
    ids = random.integers(0, 5000, 9000)
    grads = random.normal(size=(9000, 37)).astype("f")
    rest = dict(decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7, step=step)
    row_update.adam_catch_up(
        w, [m, v], last.handle, ids, learning_rate=0.1, **rest)
    row_update.adam_update(
        w, [m, v], last.handle, ids, grads, alpha=0.1, **rest)
print(hashlib.sha256(b"".join(x.numpy().tobytes() for x in state)).hexdigest())
"""


def test_same_bits_for_any_number_of_threads():
    digests = [
        subprocess.run(
            [sys.executable, "-c", THREADS, threads],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]
    assert len(digests[0]) > 60
    assert len(set(digests)) == 1
