"""The fused row updates against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import run_code
from tfxclass.ops import row_update

LR, DECAY, BETA_1, BETA_2, EPSILON = 0.1, 0.01, 0.9, 0.99, 1e-3
# A handful of float32 operations on numbers near 1.
TOLERANCES = {
    "float32": {"rtol": 1e-5, "atol": 1e-6},
    # Momentum and epsilon, which are attributes, are float32.
    "float64": {"rtol": 2e-7, "atol": 2e-7},
    # One rounding of the result, 2^-11 and 2^-8, and one of what is kept.
    "float16": {"rtol": 1e-3, "atol": 1e-3},
    "bfloat16": {"rtol": 8e-3, "atol": 8e-3},
}


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


def run_sgd(w, slots, ids, grads, rate=LR):
    row_update.update(
        "sgd",
        w,
        slots,
        ids,
        grads,
        learning_rate=rate,
        decay=DECAY,
        momentum=0.9,
        nesterov=True,
    )


def run_adagrad(w, slots, ids, grads, rate=LR):
    row_update.update(
        "adagrad",
        w,
        slots,
        ids,
        grads,
        learning_rate=rate,
        decay=DECAY,
        offset=EPSILON,
    )


def run_adam(w, slots, ids, grads, rate=LR):
    row_update.update(
        "adam",
        w,
        slots,
        ids,
        grads,
        alpha=rate,
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


def variables_of(num_slots, shape, random, dtype="float32"):
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    values = [random.normal(size=shape).astype(dtype)]
    for _ in range(num_slots):
        values.append(random.uniform(size=shape).astype(dtype))
    return values, [tf.Variable(v) for v in values]


def check(rule, shape, ids, seed=0, dtype="float32"):
    oracle, run, num_slots = RULES[rule]
    random = np.random.default_rng(seed)
    values, variables = variables_of(num_slots, shape, random, dtype)
    grads = random.normal(size=(len(ids), *shape[1:])).astype(values[0].dtype)
    handles = [v.handle for v in variables]
    ids = np.asarray(ids, np.int64)
    run(handles[0], handles[1:], ids, tf.constant(grads))
    wide = [v.astype(np.float64) for v in values]
    w, slots = oracle(wide[0], wide[1:], summed(ids, grads, shape))
    touched = np.isin(np.arange(shape[0]), ids)
    for got, old, new in zip(variables, values, [w, *slots]):
        got = got.numpy()
        wide = got.astype(np.float64)
        np.testing.assert_allclose(
            wide[touched], new[touched], **TOLERANCES[dtype]
        )
        np.testing.assert_array_equal(got[~touched], old[~touched])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 1), (5,), (9, 3), (40, 17), (6, 2, 3), (3000, 33)]
)
def test_touched_rows_move_and_others_do_not(rule, shape):
    ids = np.random.default_rng(1).integers(0, shape[0], 2 * shape[0] // 3 + 1)
    check(rule, shape, ids)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("dim", [3, 8])
def test_rows_of_16_bits(rule, dtype, dim):
    check(rule, (9, dim), [0, 7, 2, 7, 5], dtype=dtype)


@pytest.mark.host
@pytest.mark.parametrize("rule", RULES)
def test_rows_in_float64(rule):
    check(rule, (9, 3), [0, 7, 2, 7, 5], dtype="float64")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ids", [[], [2, 2, 2, 2], [3, 0, 3], [0, 1, 2, 3]])
def test_duplicates_and_none(rule, ids):
    check(rule, (4, 5), ids)


@given(
    rows=st.integers(1, 5000),
    dim=st.integers(1, 20),
    n=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_any_size(rows, dim, n, seed):
    ids = np.random.default_rng(seed).integers(0, rows, n)
    check("adam", (rows, dim), ids, seed)


def test_a_tensor_read_before_keeps_its_value():
    w = tf.Variable(tf.ones([3, 2]))
    before = w.read_value()
    alias = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32)
    run_sgd(w.handle, [], [1], tf.ones([1, 2]))
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


def floats(*shape, dtype="float32"):
    # Not on a GPU, whose ops leave out ids that are out of range.
    with tf.device("CPU:0"):
        return tf.Variable(np.ones(shape, dtype))


W, SLOTS = (4, 2), (floats(4, 2), floats(4, 2))
IDS, GRADS = np.array([1, 3], np.int64), np.ones((2, 2), np.float32)
BAD = {
    "id too high": ({"ids": np.array([1, 4])}, "4 at position 1"),
    "id negative": ({"ids": np.array([-1, 3])}, "-1 at position 0"),
    "ids of rank 2": ({"ids": np.array([[1, 3]])}, "rank 1"),
    "grads too few": ({"grads": np.ones((1, 2), "f")}, r"\(2, 2\).*\(1, 2\)"),
    "grads too wide": ({"grads": np.ones((2, 3), "f")}, r"\(2, 2\).*\(2, 3\)"),
    "grads of rank 1": ({"grads": np.ones(4, "f")}, r"\(2, 2\).*\(4\)"),
    "grads of another type": (
        {"grads": tf.ones((2, 2), tf.float64)},
        "must be double. Received: float",
    ),
    "slot of another shape": (
        {"slots": [SLOTS[0], floats(3, 2)]},
        r"Slot 1 .*\(4, 2\).*\(3, 2\)",
    ),
    "slot of another type": (
        {"slots": [SLOTS[0], floats(*W, dtype="float64")]},
        "float. Received: double",
    ),
    "one slot": ({"slots": SLOTS[:1]}, "2 to 3 variables. Received: 1"),
    "slot twice": ({"slots": [SLOTS[0]] * 2}, "different variables"),
    "rate a vector": ({"rate": [0.1, 0.2]}, "must be a scalar"),
}


@pytest.mark.host
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_changes_nothing(case):
    change, message = BAD[case]
    given = {"slots": SLOTS, "ids": IDS, "grads": GRADS, **change}
    slots = given.pop("slots")
    w = floats(*W)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run_adam(w.handle, [s.handle for s in slots], **given)
    for variable in (w, *slots):
        np.testing.assert_array_equal(variable, np.ones(variable.shape))


def test_a_scalar_has_no_rows():
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 1 or more"):
        run_sgd(floats().handle, [], [], tf.zeros([0]))


def test_uninitialised_variable():
    handle = tf.raw_ops.VarHandleOp(
        dtype=tf.float32, shape=[4, 2], shared_name="never_assigned"
    )
    with pytest.raises(tf.errors.OpError, match="never_assigned"):
        run_sgd(handle, [], IDS, GRADS)


@pytest.mark.host
@pytest.mark.parametrize(
    "slot_dtype, options, message",
    [
        ("float32", {"bfloat16_moments": True}, "needs `row_moments`"),
        (
            "float64",
            {"row_moments": True},
            "S to be float. Received: double|No OpKernel",
        ),
    ],
)
def test_moments_that_there_are_not(slot_dtype, options, message):
    storage = row_update.RowStorage(
        tf.as_dtype(slot_dtype), tf.as_dtype(slot_dtype), **options
    )
    variable = tf.Variable(np.ones(W, slot_dtype))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        row_update.update(
            "sgd",
            variable.handle,
            [],
            IDS,
            tf.ones([2, 2], slot_dtype),
            storage,
            learning_rate=1.0,
            decay=0.0,
            momentum=0.0,
            nesterov=False,
        )


def test_rows_are_assigned():
    variable = tf.Variable(np.ones((4, 3), np.float32))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    row_update.assign_rows(variable.handle, np.array([3, 0]), values)
    expected = np.ones((4, 3))
    expected[[3, 0]] = values
    np.testing.assert_array_equal(variable, expected)


def test_one_second_moment_for_each_row():
    """In NumPy, with first moments in float32."""
    random = np.random.default_rng(5)
    w, m = random.normal(size=(2, 4, 3)).astype(np.float32)
    v = random.uniform(size=4).astype(np.float32)
    grads = random.normal(size=(3, 3)).astype(np.float32)
    ids = np.array([2, 0, 2])
    variables = [tf.Variable(x) for x in (w, m, v)]
    handles = [x.handle for x in variables]
    storage = row_update.RowStorage(tf.float32, tf.float32, row_moments=True)
    row_update.update(
        "adam",
        handles[0],
        handles[1:],
        ids,
        grads,
        alpha=LR,
        decay=DECAY,
        beta_1=BETA_1,
        beta_2=BETA_2,
        epsilon=EPSILON,
        storage=storage,
    )
    g = summed(ids, grads, w.shape)
    square = np.mean(g**2, axis=1)
    new_m = BETA_1 * m + (1 - BETA_1) * g
    new_v = BETA_2 * v + (1 - BETA_2) * square
    root = np.sqrt(new_v)[:, None] + EPSILON
    new_w = w - DECAY * w - LR * new_m / root
    for variable, old, new in zip(variables, (w, m, v), (new_w, new_m, new_v)):
        np.testing.assert_allclose(
            variable.numpy()[[0, 2]], new[[0, 2]], rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(variable.numpy()[[1, 3]], old[[1, 3]])


THREADS = """
import hashlib, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass.ops import row_update
random = np.random.default_rng(3)
state = [random.uniform(size=(5000, 37)).astype("f") for _ in range(3)]
state = [tf.Variable(x) for x in state]
w, m, v = (x.handle for x in state)
rest = dict(beta_1=0.9, beta_2=0.999, epsilon=1e-7)
for step in range(5):
    ids = random.integers(0, 5000, 9000)
    grads = random.normal(size=(9000, 37)).astype("f")
    row_update.update("adam",
        w, [m, v], ids, grads, alpha=0.1, decay=0.01, **rest)
print(hashlib.sha256(b"".join(x.numpy().tobytes() for x in state)).hexdigest())
"""


def test_same_bits_for_any_number_of_threads():
    digests = [run_code(THREADS, threads) for threads in ("1", "2")]
    assert len(digests[0]) > 60
    assert len(set(digests)) == 1
