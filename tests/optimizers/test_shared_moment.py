"""LazyAdam with one second moment for all class rows of a matrix."""

import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.rows.class_matrix import ClassMatrix

ROWS, DIM = 12, 5
# An optimizer finds a matrix while it lives.
MATRICES = []
RATE = 0.05
BETAS = {"beta_1": 0.8, "beta_2": 0.99}
BETA_1, BETA_2 = BETAS.values()


def adam(rate=RATE, kind="LazyAdam", **options):
    return getattr(optimizers, kind)(
        rate, **BETAS, second_moment="matrix", **options
    )


def class_rows(seed=0, dtype="float32"):
    values = np.random.default_rng(seed).normal(size=(ROWS, DIM))
    variable = keras.Variable(values, dtype=dtype)
    MATRICES.append(ClassMatrix(variable))
    return variable


def rows_of(ids, values):
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(ids, tf.int64), [ROWS, DIM]
    )


class Reference:
    """What it should be, in float64."""

    def __init__(self, start):
        self.rows = np.asarray(start.numpy(), np.float64)
        self.momentum = np.zeros_like(self.rows)
        self.squares = self.weights = 0.0

    def apply(self, ids, values, rate=RATE):
        touched = np.unique(ids)
        sums = np.zeros_like(self.rows)
        np.add.at(sums, ids, np.asarray(values, np.float64))
        mean_square = np.mean(sums[np.any(sums, axis=1)] ** 2)
        self.squares = BETA_2 * self.squares + (1 - BETA_2) * mean_square
        self.weights = BETA_2 * self.weights + 1 - BETA_2
        root = np.sqrt(self.squares / self.weights) + 1e-7
        step = rate * (1 - BETA_1) * sums / root
        self.momentum[touched] = (BETA_1 * self.momentum - step)[touched]
        self.rows[touched] += self.momentum[touched]


def gradients(steps, dtype="float32", seed=1):
    random = np.random.default_rng(seed)
    for _ in range(steps):
        ids = random.integers(0, ROWS, 6)  # some of them twice
        yield ids, random.normal(size=(6, DIM)).astype(dtype)


@pytest.mark.host
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_numpy(dtype):
    variable, optimizer = class_rows(dtype=dtype), adam()
    expected = Reference(variable)
    for ids, values in gradients(30, dtype):
        optimizer.apply([rows_of(ids, values)], [variable])
        expected.apply(ids, values)
    # 30 steps of a few float32 roundings of numbers below 4. In float64 the
    # rate and the momentum, 1 / (1 - 0.8) steps of which add up, still are
    # float32.
    tolerance = 30 * 4 * 2**-24 * (1 if dtype == "float64" else 4)
    np.testing.assert_allclose(variable, expected.rows, atol=tolerance)


def test_a_schedule_and_decay():
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, 3, 0.5)
    variable = class_rows()
    optimizer = adam(schedule, "LazyAdamW", weight_decay=0.1)
    expected = Reference(variable)
    for step, (ids, values) in enumerate(gradients(10)):
        rate, touched = RATE * 0.5 ** (step / 3), np.unique(ids)
        optimizer.apply([rows_of(ids, values)], [variable])
        decay = rate * 0.1 * expected.rows[touched]
        expected.apply(ids, values, rate)
        expected.rows[touched] -= decay
    np.testing.assert_allclose(variable, expected.rows, atol=1e-5)


def test_a_row_moves_by_its_own_gradient():
    """Adam moves rows of a label and of a hardly likely negative alike."""

    def moves(optimizer):
        variable = class_rows()
        start = variable.numpy()
        values = np.ones([2, DIM], np.float32) * [[1.0], [1e-3]]
        for _ in range(3):
            optimizer.apply([rows_of([1, 2], values)], [variable])
        return np.abs(variable.numpy() - start)[[1, 2]].mean(axis=1)

    label, negative = moves(adam())
    assert negative == pytest.approx(1e-3 * label, rel=1e-3)
    label, negative = moves(optimizers.LazyAdam(RATE, **BETAS))
    assert negative == pytest.approx(label, rel=1e-3)


def test_the_scale_of_gradients_does_not_matter():
    ends = []
    for scale in (1.0, 1e-4):
        variable, optimizer = class_rows(), adam(epsilon=0)
        for ids, values in gradients(5):
            values = (scale * values).astype(np.float32)
            optimizer.apply([rows_of(ids, values)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_allclose(*ends, rtol=1e-5, atol=1e-6)


def test_dense_gradients_are_those_of_all_rows():
    dense, rows = class_rows(), class_rows()
    of_dense, of_rows = adam(), adam()
    for seed in range(5):
        values = np.random.default_rng(seed).normal(size=(ROWS, DIM))
        values = values.astype(np.float32)
        of_dense.apply([tf.constant(values)], [dense])
        of_rows.apply([rows_of(np.arange(ROWS), values)], [rows])
    np.testing.assert_array_equal(dense, rows)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_a_step_that_is_not_finite_does_not_count(wrong):
    """Its rows are as they come out; those of later steps learn on."""
    variable, optimizer = class_rows(), adam()
    expected = Reference(variable)
    for ids, values in gradients(6):
        keep = ids != 3
        ids, values = np.where(keep, ids, 4), values
        optimizer.apply([rows_of(ids, values)], [variable])
        expected.apply(ids, values)
        bad = np.full([1, DIM], wrong, np.float32)
        optimizer.apply([rows_of([3], bad)], [variable])
    others = np.arange(ROWS) != 3
    np.testing.assert_allclose(
        variable.numpy()[others], expected.rows[others], atol=1e-5
    )


def test_rows_without_a_gradient_do_not_count():
    ends = []
    for extra in (0, 4):
        variable, optimizer = class_rows(), adam()
        for ids, values in gradients(5):
            ids = np.r_[ids % 6, np.arange(6, 6 + extra)]
            values = np.r_[values, np.zeros([extra, DIM], np.float32)]
            optimizer.apply([rows_of(ids, values)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_a_row_that_is_not_finite_does_not_move_the_others(wrong):
    """Also in the first step, when there is no moment yet."""
    variable, optimizer = class_rows(), adam()
    expected = Reference(variable)
    for ids, values in gradients(6):
        ids = np.where(ids == 3, 4, ids)
        bad = np.full([1, DIM], wrong, np.float32)
        rows = rows_of(np.r_[ids, 3], np.r_[values, bad])
        optimizer.apply([rows], [variable])
        expected.apply(ids, values)
    others = np.arange(ROWS) != 3
    np.testing.assert_allclose(
        variable.numpy()[others], expected.rows[others], atol=1e-5
    )


def test_gradients_of_zero_move_nothing_without_an_epsilon():
    variable, optimizer = class_rows(), adam(epsilon=0.0)
    start = variable.numpy()
    for _ in range(2):
        zeros = np.zeros([1, DIM], np.float32)
        optimizer.apply([rows_of([1], zeros)], [variable])
    np.testing.assert_array_equal(variable, start)


def test_gradients_of_no_known_shape():
    variable, optimizer = class_rows(), adam()
    optimizer.build([variable])
    expected = Reference(variable)

    @tf.function(
        input_signature=[
            tf.TensorSpec(None, tf.int64),
            tf.TensorSpec(None, tf.float32),
        ]
    )
    def step(ids, values):
        rows = tf.IndexedSlices(values, ids, [ROWS, DIM])
        optimizer.apply([rows], [variable])

    for ids, values in gradients(3):
        step(tf.constant(ids, tf.int64), tf.constant(values))
        expected.apply(ids, values)
    np.testing.assert_allclose(variable, expected.rows, atol=1e-5)


def test_no_rows_move_nothing():
    variable, optimizer = class_rows(), adam()
    optimizer.apply([rows_of([1], np.ones([1, DIM], "f"))], [variable])
    before = [v.numpy() for v in (variable, *optimizer.variables[1:])]
    none = rows_of(np.zeros([0]), np.zeros([0, DIM], np.float32))
    optimizer.apply([none], [variable])
    for old, new in zip(before, (variable, *optimizer.variables[1:])):
        if new is not optimizer.iterations:
            np.testing.assert_array_equal(old, new)


def test_other_variables_move_as_ever():
    ends = []
    for optimizer in (adam(), optimizers.LazyAdam(RATE, **BETAS)):
        variable = keras.Variable(np.ones([ROWS, DIM], np.float32))
        for ids, values in gradients(5):
            optimizer.apply([rows_of(ids, values)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_array_equal(*ends)


def test_slots_are_one_matrix_and_two_numbers():
    head = layers.SampledSoftmax(ROWS, 8, use_bias=True)
    head.build((None, DIM))
    optimizer = adam()
    optimizer.build(head.trainable_variables)
    shapes = sorted(tuple(v.shape) for v in optimizer.variables[2:])
    assert shapes == [(1, 2), (ROWS,), (ROWS,), (ROWS, DIM)]
    estimate = tfxclass.estimate(layers.SampledSoftmax(1000, 8), 64, 4, adam())
    assert estimate.slot_bytes == 1000 * 64 * 4
    compact = adam(slot_dtype="bfloat16")
    estimate = tfxclass.estimate(layers.SampledSoftmax(1000, 8), 64, 4, compact)
    assert estimate.slot_bytes == 1000 * 64 * 2


def trained(head, optimizer, epochs=8):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    y = random.integers(0, ROWS, 256)
    centres = 2 * random.normal(size=(ROWS, DIM))
    x = (centres[y] + 0.3 * random.normal(size=(256, DIM))).astype("f")
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizer, loss=head.loss)
    model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False)
    return model, x, y


HEADS = {
    "full": lambda: layers.FullSoftmax(ROWS),
    "bfloat16": lambda: layers.SampledSoftmax(
        ROWS, 12, kernel_dtype="bfloat16"
    ),
    "selective": lambda: layers.SelectiveSoftmax(ROWS, 12, similarity="cosine"),
}
OPTIONS = {
    "plain": {},
    "bfloat16 slots": {"slot_dtype": "bfloat16", "clipnorm": 10.0, "l2": 1e-6},
}
# The op has a way for each type of rows and of slots.
SOME = [
    ("full", "plain"),
    ("bfloat16", "bfloat16 slots"),
    ("selective", "bfloat16 slots"),
]


@pytest.mark.parametrize(
    "case", quick(list(itertools.product(HEADS, OPTIONS)), SOME), ids="-".join
)
def test_a_head_learns(case):
    head, options = case
    model, x, y = trained(HEADS[head](), adam(0.1, **OPTIONS[options]))
    ids, _ = model.layers[-1].top_k(x, 1)
    assert np.mean(ids[:, 0].numpy() == y) > 0.9


def test_resumed_model_continues_bit_for_bit(tmp_path):
    model, x, y = trained(
        layers.SampledSoftmax(ROWS, 12, "uniform"), adam(), epochs=1
    )
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert resumed.optimizer.second_moment == "matrix"
    ends = []
    for one in (model, resumed):
        one.fit(x, y, batch_size=16, verbose=0, shuffle=False)
        ends.append([v.numpy() for v in one.weights + one.optimizer.variables])
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_config_through_json():
    for kind in ("LazyAdam", "LazyAdamW"):
        optimizer = adam(kind=kind)
        text = json.dumps(keras.optimizers.serialize(optimizer))
        back = keras.optimizers.deserialize(json.loads(text))
        assert back.get_config() == optimizer.get_config()
        assert back.second_moment == "matrix"


def test_the_largest_moment_of_each_element_is_refused():
    with pytest.raises(ValueError, match="`amsgrad`.*Received: amsgrad=True"):
        adam(amsgrad=True)


@pytest.mark.parametrize("name", ["second_moment", "slot_dtype"])
def test_another_choice_is_refused(name):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: 'no'"):
        optimizers.LazyAdam(**{name: "no"})


TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf
import tfxclass

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 5)), random.integers(0, 12, 64)


def model_in(strategy, kind):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        head = kind(12, 12) if kind is not SHARDED else kind(12)
        model = keras.Sequential([keras.Input([5]), head])
        model.compile(
            tfxclass.optimizers.LazyAdam(0.01, second_moment="matrix"),
            loss=head.loss)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.layers[-1].kernel.numpy()


SHARDED = tfxclass.layers.ShardedSoftmax
kind = tfxclass.layers.SampledSoftmax
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
np.testing.assert_allclose(
    model_in(tf.distribute.get_strategy(), kind), model_in(two, kind),
    rtol=1e-4, atol=2e-5)
try:
    model_in(two, SHARDED)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_two_devices_equal_one_and_shards_are_refused():
    told = run_code(TWO_DEVICES)
    assert "`second_moment` needs more than the rows of one" in told
