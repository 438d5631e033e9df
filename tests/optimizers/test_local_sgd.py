"""LocalSGD: stages, checks, one replica, and two on logical devices."""

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import local_sgd
from tests.support.processes import free_ports
from tests.support.processes import run_all
from tfxclass import optimizers
from tfxclass.optimizers.stages import StageSchedule

STAGES = local_sgd.STAGES


def check(folder, names, environments):
    """Runs tests/support/local_sgd.py in processes of their own."""
    commands = [["tests.support.local_sgd", *names]] * len(environments)
    _, outputs = run_all(commands, folder, environments)
    for output in outputs:
        passed = [x for x in output.splitlines() if x.startswith("passed: ")]
        assert len(passed) == len(names), output[-3000:]


def test_indexes_on_two_devices(tmp_path):
    check(tmp_path, ["indexes"], [{}])


@pytest.mark.slow
def test_two_devices(tmp_path):
    names = [name for name in local_sgd.CHECKS if name != "indexes"]
    check(tmp_path, names, [{}])


@pytest.mark.slow
def test_two_workers(tmp_path):
    """Processes that average over loopback."""
    workers = [f"localhost:{port}" for port in free_ports(2)]
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    configs = [{"cluster": {"worker": workers}, "task": x} for x in tasks]
    environments = [{"TF_CONFIG": json.dumps(config)} for config in configs]
    check(
        tmp_path, ["dense_oracle", "row_oracle", "indexes", "lsh"], environments
    )


@given(
    st.lists(
        st.tuples(st.floats(0.01, 1), st.integers(1, 7), st.integers(1, 9)),
        min_size=1,
        max_size=4,
    )
)
def test_schedule_is_the_plan(stages):
    schedule = StageSchedule(stages)
    steps = [
        (
            float(schedule(step)),
            bool(schedule.is_start(step)),
            bool(schedule.is_average(step)),
        )
        for step in range(25)
    ]
    expected = local_sgd.plan(stages, 25)
    np.testing.assert_allclose(
        [step[0] for step in steps],
        [step[0] for step in expected],
        rtol=1e-6,
    )
    assert [step[1:] for step in steps] == [step[1:] for step in expected]


def test_growing_stages_are_those_of_theorem_2():
    """I_s = I_1 sqrt(eta_1 / eta_s), rounded down."""
    assert optimizers.growing_stages(0.8, 10, 3, num_stages=3) == [
        (0.8, 10, 3),
        (0.4, 20, 4),
        (0.2, 40, 6),
    ]
    stages = optimizers.growing_stages(0.9, 5, 3, num_stages=9, growth=4.0)
    assert stages[:3] == [(0.9, 5, 3), (0.225, 20, 6), (0.05625, 80, 12)]
    assert [stage.interval for stage in stages] == [3 * 2**s for s in range(9)]
    slow = optimizers.growing_stages(1.0, 10, 1, num_stages=4, growth=1.3)
    assert [stage.interval for stage in slow] == [1, 1, 1, 1]
    assert [stage.steps for stage in slow] == [10, 13, 17, 22]


INVALID = {
    "interval": ({"interval": 0}, "`interval` must be a positive"),
    "interval_float": ({"interval": 1.5}, "`interval` must be a positive"),
    "gamma": ({"stages": STAGES, "gamma": 0.0}, "`gamma` must be > 0"),
    "gamma_nan": ({"stages": STAGES, "gamma": math.nan}, "`gamma` must be > 0"),
    "gamma_alone": ({"gamma": 1.0}, "`gamma` needs `stages`"),
    "no_stages": ({"stages": []}, "at least one stage"),
    "rate_twice": (
        {"stages": STAGES, "learning_rate": 0.1},
        "`learning_rate` must be left out with `stages`",
    ),
    "interval_twice": (
        {"stages": STAGES, "interval": 2},
        "`interval` must be left out with `stages`",
    ),
    "stage_of_two": ({"stages": [(0.1, 3)]}, r"Received: stages\[0\]="),
    "stage_rate": (
        {"stages": [(0.0, 3, 1)]},
        r"`stages\[0\].learning_rate` must",
    ),
    "stage_steps": ({"stages": [(0.1, 0, 1)]}, r"`stages\[0\].steps` must"),
    "stage_interval": (
        {"stages": [(0.1, 3, 1), (0.1, 3, 0)]},
        r"`stages\[1\].interval` must",
    ),
    "use_ema": ({"use_ema": True}, "no `use_ema`"),
    "slot_dtype": ({"slot_dtype": "bfloat16"}, "no `slot_dtype`"),
    "accumulation": (
        {"gradient_accumulation_steps": 2},
        "no `gradient_accumulation_steps`",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name):
    arguments, message = INVALID[name]
    with pytest.raises(ValueError, match=message):
        optimizers.LocalSGD(**arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"growth": 1.0}, "`growth` must be > 1"),
        ({"num_stages": 0}, "`num_stages` must be a positive"),
        ({"interval": 0}, "`interval` must be a positive"),
        ({"steps": 0}, "`steps` must be a positive"),
        ({"learning_rate": 0.0}, r"`stages\[0\].learning_rate` must"),
    ],
)
def test_invalid_growth(arguments, message):
    valid = {"learning_rate": 0.1, "steps": 5, "interval": 1, "num_stages": 2}
    with pytest.raises(ValueError, match=message):
        optimizers.growing_stages(**{**valid, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"learning_rate": 0.2, "interval": 4, "momentum": 0.9},
        {"stages": STAGES, "gamma": 3.0, "nesterov": True, "momentum": 0.5},
        {"stages": optimizers.growing_stages(0.1, 9, 2, num_stages=3)},
    ],
)
def test_config(arguments):
    optimizer = optimizers.LocalSGD(**arguments)
    saved = json.loads(
        json.dumps(keras.saving.serialize_keras_object(optimizer))
    )
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is optimizers.LocalSGD
    assert again.get_config() == optimizer.get_config()
    for name, value in arguments.items():
        if name == "stages":
            value = [optimizers.Stage(*stage) for stage in value]
        if name == "learning_rate":
            continue
        assert getattr(again, name) == value
    assert float(again.learning_rate) == float(optimizer.learning_rate)


def test_one_replica_without_gamma_is_lazy_sgd():
    random = np.random.default_rng(0)
    start = random.normal(size=(6, 3)).astype(np.float32)
    ours, theirs = keras.Variable(start), keras.Variable(start)
    options = {"momentum": 0.9, "weight_decay": 0.01, "clipnorm": 1.0}
    local = optimizers.LocalSGD(0.1, 3, gamma=math.inf, **options)
    lazy = optimizers.LazySGD(0.1, **options)
    for _ in range(4):
        rows = tf.IndexedSlices(
            random.normal(size=(3, 3)).astype(np.float32), [4, 1, 4], [6, 3]
        )
        local.apply([rows], [ours])
        lazy.apply([rows], [theirs])
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert not np.array_equal(ours.numpy(), start)
    assert len(local.variables) == len(lazy.variables)


@pytest.mark.parametrize("is_rows", [False, True])
def test_one_replica_pulls_to_the_start_of_the_stage(is_rows):
    random = np.random.default_rng(0)
    z = random.normal(size=(4, 2))
    variable = keras.Variable(z.astype(np.float32))
    optimizer = optimizers.LocalSGD(stages=[(0.5, 3, 2)], gamma=2.0)
    rows = np.array([2, 0]) if is_rows else np.arange(4)
    for step in range(7):
        if step % 3 == 0:
            origin = z.copy()
        slope = random.normal(size=(len(rows), 2))
        gradient = tf.constant(slope, tf.float32)
        if is_rows:
            gradient = tf.IndexedSlices(gradient, rows, [4, 2])
        optimizer.apply([gradient], [variable])
        z[rows] -= 0.5 * (slope + (z - origin)[rows] / 2.0)
    np.testing.assert_allclose(variable.numpy(), z, rtol=1e-5, atol=1e-6)


def test_callback_needs_local_sgd():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match="needs a model .* Received: .*SGD"):
        model.fit(
            np.zeros((2, 2)),
            np.zeros((2, 1)),
            callbacks=[optimizers.AverageReplicas()],
            verbose=0,
        )
