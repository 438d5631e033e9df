"""Metrics of training steps: ranks are by the class vectors of before."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import metrics

CLASSES, DIM, ROWS = 60, 5, 40
EXACT = {
    "full": lambda: layers.FullSoftmax(CLASSES, seed=1),
    "one-vs-rest": lambda: layers.FullSoftmax(CLASSES, loss="sigmoid", seed=1),
    "logits": lambda: layers.FullSoftmax(CLASSES, activation=None, seed=1),
    "sparsemax": lambda: layers.Sparsemax(CLASSES, seed=1),
    "dropmax": lambda: layers.DropMax(CLASSES, seed=1),
    "adaptive": lambda: layers.AdaptiveSoftmax(CLASSES, [10, 30], seed=1),
    "projected": lambda: layers.ProjectedSoftmax(CLASSES, 4, seed=1),
    "tree": lambda: layers.HierarchicalSoftmax(CLASSES, "balanced", seed=1),
}


def data(seed=0):
    """Rows with 0 to 3 labels; the first rows have none."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, (ROWS, 3))
    y[np.arange(3) >= random.integers(0, 4, ROWS)[:, None]] = -1
    y[:4] = -1
    return x, y


def sampled_head():
    return layers.SampledSoftmax(CLASSES, 12, "uniform", seed=1)


def compiled(head, found, rate=50.0, **options):
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(
        tfxclass.optimizers.LazySGD(rate),
        loss=head.loss,
        metrics=found,
        **options,
    )
    return model


def check_before(model, names, x, y):
    """A long step learns a batch by heart; its own values do not know that."""
    before = model.evaluate(x, y, ROWS, verbose=0, return_dict=True)
    found = model.fit(x, y, batch_size=ROWS, verbose=0).history
    after = model.evaluate(x, y, ROWS, verbose=0, return_dict=True)
    for name in names:
        np.testing.assert_allclose(found[name][0], before[name], rtol=1e-5)
        assert abs(after[name] - before[name]) > 1e-3, name


# One matrix, matrices of groups, two matrices, and nodes of a tree. The others
# compute their logits as "full" does.
@pytest.mark.parametrize(
    "name", quick(EXACT, ["full", "adaptive", "dropmax", "tree"])
)
def test_ranks_are_those_before_the_update(name):
    head = EXACT[name]()
    found = [metrics.TopKAccuracy(head, 3), metrics.NDCGAtK(head, 9)]
    check_before(
        compiled(head, found), ("accuracy_at_3", "ndcg_at_9"), *data(7)
    )


@pytest.mark.parametrize("is_eager", [False, True])
def test_ranks_of_a_loaded_model_are_those_before_the_update(
    is_eager, tmp_path
):
    """Metrics from a file know their head by its name alone."""
    head = EXACT["full"]()
    model = compiled(
        head, [metrics.TopKAccuracy(head, 3)], run_eagerly=is_eager
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        check_before(each, ["accuracy_at_3"], *data(7))


@pytest.mark.filterwarnings("ignore:.*read the whole output")
def test_metrics_of_all_classes_are_those_before_the_update():
    """Of a head that samples as well."""
    head = sampled_head()
    found = [
        metrics.F1Score(head, 0.03, k=9),
        metrics.CumulativeProbability(head, 5),
    ]
    model = compiled(head, found)
    check_before(model, [metric.name for metric in found], *data(8))


@pytest.mark.parametrize("name", EXACT)
def test_values_of_training_are_those_of_evaluation(name):
    """The two ways to the best classes agree, scores included."""
    x, y = data(3)
    head = EXACT[name]()
    labels = tf.constant(y)
    found = [metrics.RecallAtK(head, 7)]
    if head.activation is not None:
        found.append(metrics.F1Score(head, 0.02, k=CLASSES))
    values = []
    for training in (False, True):
        output = head(x, training=training)
        for metric in found:
            metric.reset_state()
            metric.update_state(labels, output)
        values.append([float(metric.result()) for metric in found])
    np.testing.assert_allclose(*values, rtol=1e-4)


def test_saturated_probabilities_do_not_tie():
    """Metrics go by logits: the sigmoid of 40 and of 50 is 1 in float32."""
    head = layers.FullSoftmax(4, loss="sigmoid")
    head.build((None, 4))
    head.kernel.assign(np.eye(4, dtype=np.float32))
    metric = metrics.TopKAccuracy(head)
    output = head(tf.constant([[40.0, 50.0, 0.0, 0.0]]), training=True)
    metric.update_state([1], output)
    assert float(metric.result()) == 1.0


class CountingHead(layers.FullSoftmax):
    """Counts how often the logits of all classes are really computed."""

    def logits(self, features):
        logits = super().logits(features)

        def counted(logits):
            self.counts.append(1)
            return logits

        found = tf.numpy_function(counted, [logits], tf.float32, stateful=False)
        return tf.ensure_shape(found, logits.shape)

    def best(self, features, k):
        self.counts.append(1)  # A search, when it is traced.
        return super().best(features, k)


def counting_head():
    head = CountingHead(CLASSES, name="head")
    head.counts = []
    return head


@pytest.mark.parametrize("has_metric", [False, True])
def test_a_step_ranks_only_for_metrics_of_its_own_model(has_metric):
    """Another head of the same name has a metric, never compiled."""
    other = counting_head()
    unused = [metrics.TopKAccuracy(other, 9), metrics.F1Score(other, k=9)]
    head = counting_head()
    unused.append(metrics.TopKAccuracy(head, 9))
    found = [metrics.TopKAccuracy(head, 9)] if has_metric else []
    x, y = data()
    compiled(head, found).fit(x, y, batch_size=10, verbose=0)
    assert len(head.counts) == (4 if has_metric else 0)


def test_an_eager_loop_computes_the_output_once():
    x, y = data()
    head = counting_head()
    metric = metrics.TopKAccuracy(head, 9)
    output = head(x, training=True)
    head.loss(y, output)
    metric.update_state(y, output)
    assert len(head.counts) == 1


TWO_REPLICAS = """
import keras
import numpy as np
import tensorflow as tf
import tfxclass
from tests.metrics.test_training_values import CLASSES, DIM, data

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
layers = tfxclass.layers
heads = {
    "full": lambda: layers.FullSoftmax(CLASSES, seed=1),
    "sharded": lambda: layers.ShardedSoftmax(CLASSES, sampler=None, seed=1),
}
x, y = data(7)
for name, make in heads.items():
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        head = make()
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(
            tfxclass.optimizers.LazySGD(50.0), loss=head.loss,
            metrics=[tfxclass.metrics.TopKAccuracy(head, 9)])
    _, before = model.evaluate(x, y, batch_size=40, verbose=0)
    found = model.fit(x, y, batch_size=40, shuffle=False, verbose=0).history
    _, after = model.evaluate(x, y, batch_size=40, verbose=0)
    np.testing.assert_allclose(found["accuracy_at_9"][0], before, rtol=1e-6)
    assert after > before + 0.1
    print("passed:", name)
"""


def test_two_replicas():
    output = run_code(TWO_REPLICAS)
    assert "passed: full" in output and "passed: sharded" in output
