"""The fused row updates against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import run_code
from tfxclass.ops import row_update
from tfxclass.optimizers import skipped_steps

LR, DECAY, BETA_1, BETA_2, EPSILON = 0.1, 0.01, 0.9, 0.99, 1e-3
# A handful of float32 operations on numbers near 1.
TOLERANCES = {
    "float32": {"rtol": 1e-5, "atol": 1e-6},
    # Momentum and epsilon, attributes, and a catch-up's sums are float32.
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


def run_sgd(w, slots, history, ids, grads, rate=LR):
    row_update.sgd_update(
        w,
        slots[0] if slots else None,
        history,
        ids,
        grads,
        learning_rate=rate,
        decay=DECAY,
        momentum=0.9,
        nesterov=True,
    )


def run_adagrad(w, slots, history, ids, grads, rate=LR):
    row_update.adagrad_update(
        w,
        slots[0],
        history,
        ids,
        grads,
        learning_rate=rate,
        decay=DECAY,
        epsilon=EPSILON,
    )


def run_adam(w, slots, history, ids, grads, rate=LR):
    row_update.adam_update(
        w,
        slots,
        history,
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
    run(handles[0], handles[1:], None, ids, tf.constant(grads))
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
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types_of_rows(rule, dtype):
    check(rule, (9, 3), [0, 7, 2, 7, 5], dtype=dtype)


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


def make_history(rows, capacity, has_rates=False, decays=False):
    """The variables of a `row_update.History`, by name."""
    parts = {
        "last_step": tf.Variable(np.zeros(rows, np.int64)),
        "clock": tf.Variable(np.int64(0)),
    }
    if has_rates:
        parts["rates"] = tf.Variable(np.zeros(capacity, np.float32))
    if decays:
        parts["log_keeps"] = tf.Variable(np.zeros(capacity + 1))
    return parts


def kept(dtype="float32"):
    return row_update.Kept(tf.as_dtype(dtype), tf.as_dtype(dtype))


def history_of(parts, capacity):
    handles = [part.handle for part in parts.values()]
    return row_update.History(handles, capacity)


def test_a_step_is_recorded():
    parts = make_history(3, 2, has_rates=True, decays=True)
    variables = [tf.Variable(tf.ones([3, 2])) for _ in range(3)]
    w, *slots = [v.handle for v in variables]
    for step, rate in enumerate((0.5, 0.25, 0.125)):
        history = history_of(parts, 2)
        ids = [2, step, 2]
        run_adam(w, slots, history, ids, tf.ones([3, 2]), rate)
    assert parts["last_step"].numpy().tolist() == [1, 2, 3]
    assert parts["clock"].numpy() == 3
    assert parts["rates"].numpy().tolist() == [0.125, 0.25]
    log = np.log(1 - DECAY)
    np.testing.assert_allclose(parts["log_keeps"], [0, log, 2 * log])


def terms_of(rule, capacity, beta_2=BETA_2):
    """The arguments of a catch-up that are the rule's own."""
    if rule == "adagrad":
        return {}
    if rule in ("adam", "amsgrad"):
        terms, each = skipped_steps.adam_terms(
            BETA_1, beta_2, EPSILON, rule == "amsgrad", capacity
        )
        betas = {"beta_1": BETA_1, "beta_2": beta_2, "epsilon": EPSILON}
        return {"terms": terms, "each_element": each, **betas}
    momentum = 0.0 if rule == "plain_sgd" else 0.9
    terms = skipped_steps.sgd_terms(momentum, rule == "sgd", capacity)
    return {"terms": terms, "momentum": momentum}


def catch_up(rule, w, slots, history, ids, **options):
    if rule in ("adam", "amsgrad"):
        row_update.adam_catch_up(w, slots, history, ids, **options)
    elif rule == "adagrad":
        row_update.adagrad_catch_up(w, slots[0], history, ids, **options)
    else:
        slot = slots[0] if slots else None
        row_update.sgd_catch_up(w, slot, history, ids, **options)


def skipped(rule, w, slots, rates, decays):
    """The same steps one by one in float64, with zero gradients."""
    w, slots = w.astype(float), [slot.astype(float) for slot in slots]
    for rate, decay in zip(rates, decays):
        w = w - decay * w
        if rule == "sgd":
            slots[0] = 0.9 * slots[0]
            w = w + 0.9 * slots[0]
        elif rule in ("adam", "amsgrad"):
            slots[0], slots[1] = BETA_1 * slots[0], BETA_2 * slots[1]
            v = slots[2] if rule == "amsgrad" else slots[1]
            w = w - rate * slots[0] / (np.sqrt(v) + EPSILON)
    return w, slots


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_catch_up_is_the_skipped_steps(rule, dtype, steps=300, capacity=512):
    """At rates and decays that jump by factors of ten."""
    _, _, num_slots = RULES[rule]
    random = np.random.default_rng(4)
    values, variables = variables_of(num_slots, (5, 7), random, dtype)
    is_adam = rule in ("adam", "amsgrad")
    parts = make_history(5, capacity, is_adam, decays=True)
    rates = 10 ** random.uniform(-3, -1, steps).astype("f")
    decays = 10.0 ** random.uniform(-5, -2, steps)
    lasts = np.array([0, 1, 150, 298, 300])
    parts["last_step"].assign(lasts)
    parts["clock"].assign(steps)
    log_keeps = np.r_[0, np.cumsum(np.log1p(-decays))]
    parts["log_keeps"].assign(np.r_[log_keeps, np.zeros(capacity - steps)])
    if is_adam:
        parts["rates"].assign(np.r_[rates, np.zeros(capacity - steps)])
    w, *slots = [v.handle for v in variables]
    catch_up(
        rule,
        w,
        slots,
        history_of(parts, capacity),
        [4, 1, 3, 1, 0],
        kept=kept(dtype),
        every_row=False,
        **terms_of(rule, capacity),
    )
    assert parts["last_step"].numpy().tolist() == [300, 300, 150, 300, 300]
    for row in (0, 1, 3, 4):
        first = lasts[row]
        old = [value[row] for value in values]
        new_w, new_slots = skipped(
            rule, old[0], old[1:], rates[first:], decays[first:]
        )
        for got, expected in zip(variables, [new_w, *new_slots]):
            np.testing.assert_allclose(
                got.numpy()[row].astype(float),
                expected,
                **TOLERANCES[dtype],
            )
    np.testing.assert_array_equal(variables[0].numpy()[2], values[0][2])


@pytest.mark.parametrize("every_row", [False, True])
@pytest.mark.parametrize("clock", [7, 8])
def test_all_rows_are_caught_up_where_the_history_is_full(clock, every_row):
    parts = make_history(5, 8)
    parts["clock"].assign(clock)
    parts["last_step"].assign([1, 2, 3, 4, 5])
    w, m = tf.Variable(tf.ones([5, 2])), tf.Variable(tf.ones([5, 2]))
    catch_up(
        "sgd",
        w.handle,
        [m.handle],
        history_of(parts, 8),
        [2],
        kept=kept(),
        every_row=every_row,
        **terms_of("sgd", 8),
    )
    everything = every_row or clock == 8
    current = parts["last_step"].numpy() == clock
    assert current.tolist() == [everything] * 2 + [True] + [everything] * 2
    np.testing.assert_array_equal(m.numpy()[:, 0] < 1, current)


def test_catch_up_before_the_first_step_changes_nothing():
    parts = make_history(3, 4)
    w, m = tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([3, 2]))
    alias = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32)
    options = {"kept": kept(), **terms_of("sgd", 4)}
    history = history_of(parts, 4)
    catch_up(
        "sgd", w.handle, [m.handle], history, [], every_row=True, **options
    )
    np.testing.assert_array_equal(w, alias)


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
HISTORY = make_history(4, 8, has_rates=True, decays=True)
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
        {"slots": [SLOTS[0], tf.Variable(np.ones(W))]},
        "float. Received: double",
    ),
    "one slot": ({"slots": SLOTS[:1]}, "2 to 3 variables. Received: 1"),
    "slot twice": ({"slots": [SLOTS[0]] * 2}, "different variables"),
    "last_step too short": (
        {"last_step": tf.Variable(np.zeros(3, np.int64))},
        r"`last_step` must be int64 of shape \(4\).*\(3\)",
    ),
    "last_step int32": (
        {"last_step": tf.Variable(np.zeros(4, np.int32))},
        "Received: int32",
    ),
    "clock a vector": (
        {"clock": tf.Variable(np.zeros(1, np.int64))},
        r"`clock` must be int64 of shape \(\).*\(1\)",
    ),
    "rates too short": ({"rates": floats(7)}, r"`rates` .*\(8\).*\(7\)"),
    "log_keeps float": (
        {"log_keeps": floats(9)},
        r"`log_keeps` must be double of shape \(9\). Received: float",
    ),
    "clock before 0": (
        {"clock": tf.Variable(np.int64(-1))},
        "`clock` must be in .*Received: -1",
    ),
    "clock at its end": (
        {"clock": tf.Variable(np.int64(2**63 - 1))},
        "`clock` must be in",
    ),
    "rate a vector": ({"rate": [0.1, 0.2]}, "must be a scalar"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_changes_nothing(case):
    change, message = BAD[case]
    given = {"slots": SLOTS, "ids": IDS, "grads": GRADS, **HISTORY, **change}
    parts = {name: given.pop(name) for name in HISTORY}
    slots = given.pop("slots")
    w = floats(*W)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run_adam(
            w.handle,
            [s.handle for s in slots],
            history=history_of(parts, 8),
            **given,
        )
    for variable in (w, *slots):
        np.testing.assert_array_equal(variable, np.ones(variable.shape))
    assert not any(part.numpy().any() for part in HISTORY.values())


def test_a_scalar_has_no_rows():
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 1 or more"):
        run_sgd(floats().handle, [], None, [], tf.zeros([0]))


def test_uninitialised_variable():
    handle = tf.raw_ops.VarHandleOp(
        dtype=tf.float32, shape=[4, 2], shared_name="never_assigned"
    )
    with pytest.raises(tf.errors.OpError, match="never_assigned"):
        run_sgd(handle, [], None, IDS, GRADS)


def test_catch_up_needs_a_history():
    w = floats(4, 2).handle
    options = {"kept": kept(), "every_row": False}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`history` must be 2 to 3"
    ):
        catch_up("sgd", w, [], None, IDS, **options, **terms_of("sgd", 8))


@pytest.mark.parametrize("rows", [0, 7])
def test_terms_of_a_catch_up(rows):
    parts = make_history(4, 8, has_rates=True)
    options = {"kept": kept(), "every_row": False}
    options.update(terms_of("adam", 8), terms=np.ones((rows, 3)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have 1 to"):
        catch_up(
            "adam",
            floats(4, 2).handle,
            [slot.handle for slot in SLOTS],
            history_of(parts, 8),
            IDS,
            **options,
        )


THREADS = """
import hashlib, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass.ops import row_update
from tfxclass.optimizers import skipped_steps
random = np.random.default_rng(3)
state = [random.uniform(size=(5000, 37)).astype("f") for _ in range(3)]
state = [tf.Variable(x) for x in state]
last = tf.Variable(random.integers(0, 20, 5000))
rates = tf.Variable(random.uniform(size=64).astype("f"))
log_keeps = tf.Variable(-np.arange(65) / 100)
history = [last, tf.Variable(np.int64(20)), rates, log_keeps]
history = row_update.History([x.handle for x in history], 64)
w, m, v = (x.handle for x in state)
rest = dict(beta_1=0.9, beta_2=0.999, epsilon=1e-7)
terms, each = skipped_steps.adam_terms(amsgrad=False, capacity=64, **rest)
kept = row_update.Kept(tf.float32, tf.float32)
for step in range(5):
    ids = random.integers(0, 5000, 9000)
    grads = random.normal(size=(9000, 37)).astype("f")
    row_update.adam_catch_up(
        w, [m, v], history, ids, kept=kept, every_row=False,
        terms=terms, each_element=each, **rest)
    row_update.adam_update(
        w, [m, v], history, ids, grads, alpha=0.1, decay=0.01, **rest)
print(hashlib.sha256(b"".join(x.numpy().tobytes() for x in state)).hexdigest())
"""


def test_same_bits_for_any_number_of_threads():
    digests = [run_code(THREADS, threads) for threads in ("1", "2")]
    assert len(digests[0]) > 60
    assert len(set(digests)) == 1
