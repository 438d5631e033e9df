"""`tfxclass.plan`: memory by `estimate`, and bytes by hand."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from benchmarks import measure
from tfxclass import initializers
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.planning import Link

CLASSES, DIM, BATCH, SAMPLED = 10_000, 16, 64, 512
LINK = Link(bytes_per_s=1e6, latency_s=1e-3)


def plan(machines=4, num_classes=CLASSES, link=LINK, **options):
    options = {"num_sampled": SAMPLED, **options}
    return tfxclass.plan(num_classes, DIM, BATCH, machines, link, **options)


def step_bytes(estimate):
    step = estimate.gradient_bytes + estimate.activation_bytes
    return estimate.weight_bytes + estimate.slot_bytes + step


def test_memory_is_the_estimate_of_what_lies_on_a_machine():
    adam = optimizers.LazyAdam()
    found = plan(optimizer=adam)
    whole = layers.SampledSoftmax(CLASSES, SAMPLED, sampler="uniform")
    mirrored = tfxclass.estimate(whole, DIM, BATCH // 4, adam)
    assert found["mirrored"].machine_bytes == step_bytes(mirrored)
    # There the initializer holds less than the slots and a step.
    assert found["mirrored"].machine_bytes == mirrored.total_bytes
    shard = layers.ShardedSoftmax(CLASSES // 4, num_sampled=SAMPLED // 4)
    of_shard = tfxclass.estimate(shard, DIM, BATCH, adam)
    assert found["sharded"].machine_bytes == step_bytes(of_shard)
    variables = of_shard.weight_bytes + of_shard.slot_bytes
    assert found["sharded"].variable_bytes == variables


def test_start_of_a_shard_is_its_rows_and_a_block():
    # While Keras' initializers draw a block, they hold two more copies of it.
    drawn = 3 * 4 * min(CLASSES // 4 * DIM, initializers.BLOCK_NUMBERS)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        start = size * CLASSES // 4 * DIM + drawn
        found = plan(kernel_dtype=dtype)
        assert found["sharded"].start_bytes == start
    assert plan()["mirrored"].start_bytes == 3 * 4 * CLASSES * DIM


def test_bytes_by_hand():
    row, ids = 4 * DIM, 8
    found = plan()
    of_batch = (BATCH // 4) * (row + ids)
    expected = 3 * (of_batch + SAMPLED * (row + ids))
    assert found["mirrored"].sent_bytes == expected
    # Features, labels, what the loss weighs; statistics; a ring's sum.
    expected = 3 * ((BATCH // 4) * (row + ids + 4) + 12 * BATCH)
    expected += 2 * 3 / 4 * BATCH * row
    assert found["sharded"].sent_bytes == expected
    exact = plan(num_sampled=None)
    assert exact["mirrored"].sent_bytes == 2 * 3 / 4 * CLASSES * row
    assert exact["sharded"].sent_bytes == found["sharded"].sent_bytes


def test_one_machine_sends_nothing():
    found = plan(machines=1)
    for name in ("mirrored", "sharded"):
        assert found[name].sent_bytes == found[name].link_s == 0


def test_more_machines_need_less_of_each():
    rows = [plan(machines=n) for n in (1, 2, 4, 8)]
    bytes_ = [row["sharded"].variable_bytes for row in rows]
    assert bytes_ == sorted(bytes_, reverse=True)
    assert bytes_[0] == pytest.approx(8 * bytes_[-1], rel=0.01)


def test_options_change_memory():
    half = plan(kernel_dtype="bfloat16")
    small = plan(
        optimizer=optimizers.LazyAdam(
            second_moment="row", slot_dtype="bfloat16"
        )
    )
    weights = CLASSES * DIM
    full = plan()["mirrored"].variable_bytes
    assert full - half["mirrored"].variable_bytes == 2 * weights
    # The default, HeadAdam, has one accumulator for each number.
    slots = 4 * weights - (2 * weights + 4 * CLASSES)
    assert full - small["mirrored"].variable_bytes == slots
    full = plan()["sharded"].variable_bytes
    assert full - half["sharded"].variable_bytes == 2 * weights / 4
    assert full - small["sharded"].variable_bytes == slots / 4


def test_fits_where_start_and_step_do():
    assert all(row.fits for row in plan().rows)
    for row in plan().rows:
        most = max(row.machine_bytes, row.start_bytes)
        assert plan(memory_bytes=most)[row.strategy].fits
        assert not plan(memory_bytes=most - 1)[row.strategy].fits


def test_whole_numbers_may_be_floats():
    found = tfxclass.plan(1e4, 16.0, 64.0, 4.0, LINK, num_sampled=512.0)
    assert found == tfxclass.plan(10_000, 16, 64, 4, LINK, num_sampled=512)


def test_no_more_classes_are_sampled_than_there_are():
    assert plan(num_sampled=2 * CLASSES) == plan(num_sampled=CLASSES)


def test_it_is_printed_as_a_table():
    lines = str(plan()).splitlines()
    assert len(lines) == 2 + 2
    assert len({line.count("|") for line in lines}) == 1
    assert "sharded" in lines[-1] and "yes" in lines[-1]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"machines": 0}, "`machines` must be a positive integer"),
        ({"machines": 65}, "`machines` .*batch=64. Received: 65"),
        ({"machines": 60, "num_classes": 50}, "at most num_classes=50"),
        ({"num_sampled": -1}, "`num_sampled`.*-1"),
        ({"link": 1e9}, "`link` must be a tfxclass.planning.Link"),
        ({"memory_bytes": 0.0}, "`memory_bytes`.*0.0"),
        ({"memory_bytes": np.nan}, "`memory_bytes`.*nan"),
        ({"memory_bytes": "24 GB"}, "`memory_bytes`.*24 GB"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)


def test_refused_within_a_strategy():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        with pytest.raises(ValueError, match="OneDeviceStrategy"):
            plan()


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan, "1 GB"])
def test_figures_are_checked(wrong):
    with pytest.raises(ValueError, match="bytes_per_s"):
        Link(wrong)


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the benchmarks, whose scripts import each other."""
    folder = pathlib.Path(measure.FOLDER)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in ("measure", "scale_page"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_page_says_what_the_plan_says(scripts):
    import scale_page

    text = (scripts.parent / "docs" / "scale.md").read_text()
    assert text == scale_page.filled(text)
    assert text.count("<!-- table:") == len(scale_page.TABLES)
