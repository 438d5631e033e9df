"""Metrics with `train_rows`: some rows of a training batch, all classes."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.metrics.test_metrics import result_of
from tests.support import reference
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import metrics

CLASSES, DIM, ROWS, K = 60, 5, 40, 3
PROPENSITIES = np.linspace(0.1, 1.0, CLASSES)
KINDS = [
    metrics.TopKAccuracy,
    metrics.PrecisionAtK,
    metrics.NDCGAtK,
    metrics.RecallAtK,
    metrics.RPrecisionAtK,
    metrics.MeanReciprocalRank,
    metrics.PropensityScoredPrecisionAtK,
]


def made(cls, head, **options):
    if cls is metrics.PropensityScoredPrecisionAtK:
        return cls(head, PROPENSITIES, K, **options)
    return cls(head, K, **options)


def data(seed=0):
    """Rows with 0 to 3 labels; the first rows have none."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, (ROWS, 3))
    y[np.arange(3) >= random.integers(0, 4, ROWS)[:, None]] = -1
    y[:4] = -1
    return x, y


def sampled_head():
    """Few samples: the ranks among them say little of all classes."""
    head = layers.SampledSoftmax(CLASSES, 6, "uniform", seed=1)
    head.build((None, DIM))
    return head


def chosen(y, count):
    """Labelled rows, evenly spread, before others."""
    is_labelled = (y >= 0).any(axis=1)
    order = np.argsort(~is_labelled, kind="stable")
    count = min(count, len(y))
    return order[np.arange(count) * max(is_labelled.sum() // count, 1)]


@pytest.mark.parametrize("train_rows", [1, 7, 39, 1000])
def test_equals_numpy(train_rows):
    x, y = data()
    weights = np.random.default_rng(1).random(ROWS).astype(np.float32)
    head = sampled_head()
    rows = chosen(y, train_rows)
    ids, _ = reference.top_k(
        reference.head_logits(x, head.kernel.numpy())[rows], K
    )
    expected = reference.ranking_metrics(
        ids, y[rows], K, PROPENSITIES, weights[rows]
    )
    for cls, value in zip(
        (
            metrics.PrecisionAtK,
            metrics.PropensityScoredPrecisionAtK,
            metrics.NDCGAtK,
        ),
        expected,
        strict=True,
    ):
        metric = made(cls, head, train_rows=train_rows)
        result = result_of(metric, head, y, weights, training=True, x=x)
        np.testing.assert_allclose(result, value, rtol=1e-5)


@pytest.mark.parametrize("cls", KINDS)
def test_all_rows_in_training_are_as_in_evaluation(cls):
    x, y = data(2)
    head = sampled_head()
    in_training = result_of(
        made(cls, head, train_rows=ROWS), head, y, training=True, x=x
    )
    evaluated = result_of(made(cls, head, train_rows=2), head, y, x=x)
    np.testing.assert_allclose(in_training, evaluated, rtol=1e-6)


def test_a_sample_flatters_and_train_rows_does_not():
    """10 of 50 sampled classes are more than 10 of all 2,000."""
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    y = random.integers(0, 2000, ROWS)
    head = layers.SampledSoftmax(2000, 50, "uniform", seed=1)
    head.build((None, DIM))
    sampled, exact = (
        metrics.TopKAccuracy(head, 10, train_rows=n) for n in (None, ROWS)
    )
    sampled, exact = (
        result_of(m, head, y, training=True, x=x) for m in (sampled, exact)
    )
    assert exact < 0.1 < sampled


def test_positions_of_sequences_and_their_mask():
    x, y = data(4)
    head = sampled_head()
    expected = result_of(metrics.TopKAccuracy(head, K), head, y, x=x)
    sequences = tf.reshape(x, [8, 5, DIM])
    labels = y.reshape([8, 5, 3])
    metric = metrics.TopKAccuracy(head, K, train_rows=ROWS)
    found = result_of(metric, head, labels, None, True, sequences)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_no_labels_at_all():
    x, _ = data()
    head = sampled_head()
    metric = metrics.TopKAccuracy(head, K, train_rows=4)
    nobody = -np.ones((ROWS, 2), int)
    assert result_of(metric, head, nobody, None, True, x) == 0.0


def test_a_row_whose_loss_is_nan_is_never_right():
    x, y = data(5)
    head = sampled_head()
    head.kernel.assign(np.full((CLASSES, DIM), np.nan))
    metric = metrics.TopKAccuracy(head, CLASSES, train_rows=9)
    assert result_of(metric, head, y, None, True, x) == 0.0


@pytest.mark.parametrize("cls", KINDS)
def test_config_through_json(cls):
    metric = made(cls, sampled_head(), train_rows=8)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(metric)))
    again = keras.saving.deserialize_keras_object(config)
    assert again.train_rows == 8 and again.get_config() == metric.get_config()


def test_no_rows_are_none():
    assert metrics.TopKAccuracy("head", train_rows=0).train_rows is None
    assert "train_rows" not in metrics.TopKAccuracy("head").get_config()


@pytest.mark.parametrize("bad", [-1, 1.5, True, "all"])
def test_bad_train_rows_are_refused(bad):
    with pytest.raises(ValueError, match="`train_rows` must be a positive int"):
        metrics.TopKAccuracy("head", train_rows=bad)


def test_in_fit_save_and_load(tmp_path):
    """A rate of zero: training values are those of evaluation."""
    x, y = data(6)
    head = layers.SampledSoftmax(CLASSES, 12, seed=1)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(
        tfxclass.optimizers.LazySGD(0.0),
        loss=head.loss,
        metrics=[metrics.TopKAccuracy(head, 9, train_rows=ROWS)],
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        history = each.fit(x, y, batch_size=ROWS, verbose=0).history
        _, expected = each.evaluate(x, y, batch_size=ROWS, verbose=0)
        np.testing.assert_allclose(history["accuracy_at_9"][0], expected)


@pytest.mark.parametrize("make", ["sampled", "full"])
@pytest.mark.parametrize("is_eager", [False, True])
def test_ranks_are_those_before_the_update(make, is_eager, tmp_path):
    """A long step learns a batch by heart; its own ranks do not know that."""
    x, y = data(7)
    head = sampled_head()
    if make == "full":
        head = layers.FullSoftmax(CLASSES, seed=1)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(
        tfxclass.optimizers.LazySGD(50.0),
        loss=head.loss,
        metrics=[
            metrics.TopKAccuracy(head, 3, train_rows=ROWS, name="some"),
            metrics.TopKAccuracy(head, 5, train_rows=ROWS, name="more"),
        ],
        run_eagerly=is_eager,
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        before = each.evaluate(x, y, ROWS, verbose=0, return_dict=True)
        found = each.fit(x, y, ROWS, verbose=0).history
        after = each.evaluate(x, y, ROWS, verbose=0, return_dict=True)
        for name in ("some", "more"):
            np.testing.assert_allclose(found[name][0], before[name])
            assert after[name] > before[name] + 0.1


TWO_REPLICAS = """
import keras
import numpy as np
import tensorflow as tf
import tfxclass
from tests.metrics.test_train_rows import CLASSES, DIM, ROWS, data

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
layers = tfxclass.layers
heads = {
    "sampled": lambda: layers.SampledSoftmax(CLASSES, 12, seed=1),
    "sharded": lambda: layers.ShardedSoftmax(
        CLASSES, sampler="uniform", num_sampled=12, seed=1),
}
x, y = data(7)
for name, make in heads.items():
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        head = make()
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(
            tfxclass.optimizers.LazySGD(0.0), loss=head.loss,
            metrics=[
                tfxclass.metrics.TopKAccuracy(
                    head, 9, name="all", train_rows=ROWS),
                tfxclass.metrics.TopKAccuracy(
                    head, 9, name="some", train_rows=3),
            ])
    # 14 rows in the last batch, and none of their first have labels.
    found = model.fit(x, y, batch_size=26, shuffle=False, verbose=0).history
    _, expected, _ = model.evaluate(x, y, batch_size=26, verbose=0)
    np.testing.assert_allclose(found["all"][0], expected, rtol=1e-6)
    assert 0 <= found["some"][0] <= 1, found
    print("passed:", name)
"""


def test_two_replicas():
    output = run_code(TWO_REPLICAS)
    assert "passed: sampled" in output and "passed: sharded" in output
