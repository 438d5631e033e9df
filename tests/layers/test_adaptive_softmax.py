"""Adaptive softmax."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tests.support.cases import check_refused
from tests.support.cases import quick
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import LONG
from tests.support.contract import HeadContract
from tests.support.contract import built
from tests.support.contract import data
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass.core import targets as targets_lib
from tfxclass.rows import blocks
from tfxclass.rows import stock_search

CUTOFFS = [12, 30]


def weights_by_name(head):
    clusters = [head.clusters] if head.cutoffs else []
    return {
        "kernels": head.kernels,
        "clusters": clusters,
        "projections": head.projections,
    }


def log_probabilities(head, features):
    arrays = {
        name: [x.numpy() for x in values]
        for name, values in weights_by_name(head).items()
    }
    return reference.adaptive_log_probabilities(features, **arrays)


class TestAdaptiveSoftmax(HeadContract):
    slow_tests = LONG
    has_own_logits = False

    def make_head(self, num_classes=CLASSES, **changes):
        cutoffs = CUTOFFS if num_classes == CLASSES else []
        options = {"cutoffs": cutoffs, "div_value": 2.0, **changes}
        return layers.AdaptiveSoftmax(num_classes, **options)

    def logits(self, head, features):
        return log_probabilities(head, features)


def make_head(**changes):
    options = {"cutoffs": CUTOFFS, "div_value": 2.0, **changes}
    return built(layers.AdaptiveSoftmax(CLASSES, **options))


def test_widths_fall_by_div_value():
    head = layers.AdaptiveSoftmax(100, [10, 30, 60], div_value=4.0)
    head.build((None, 20))
    shapes = [tuple(k.shape) for k in head.kernels]
    # 20, 20 // 4, 20 // 16, and 1 where 20 // 64 is none.
    assert shapes == [(10, 20), (20, 5), (30, 1), (40, 1)]
    assert head.clusters.shape == (3, 20)
    assert [tuple(p.shape) for p in head.projections] == [
        (20, 5),
        (20, 1),
        (20, 1),
    ]


LABELS = {
    "single": data(seed=2)[1],
    "multi": data(seed=3, labels_wide=4)[1],
    # Several in one cluster, and in all of them.
    "one_cluster": np.array([[40, 50, 59, -1]] * BATCH),
    "all_parts": np.array([[0, 12, 59, 13]] * BATCH),
    "head_alone": np.arange(BATCH) % 12,
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("block_logits", [1, 1 << 21])
def test_loss_and_gradients(name, block_logits, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", block_logits)
    head = make_head()
    x, _ = data()
    y = LABELS[name]
    upstream = data(seed=6)[0][:, 0]
    features = tf.constant(x)
    variables = head.trainable_variables
    assert len(variables) == 6
    with tf.GradientTape() as tape:
        tape.watch(features)
        losses = head.compute_loss(features, y, training=True)
    expected = reference.cross_entropy(log_probabilities(head, x), y)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    gradients = tape.gradient(
        losses,
        [features, *(v.value for v in variables)],
        output_gradients=tf.constant(upstream),
    )
    names = ["features"]
    for kind, values in weights_by_name(head).items():
        names += [(kind, i) for i in range(len(values))]
    arrays = [x, *(v.numpy() for v in variables)]
    paths = {v.path: i for i, v in enumerate(variables, 1)}

    def loss_of(changed, at):
        weights = {
            kind: [
                changed if paths[v.path] == at else v.numpy().astype(float)
                for v in values
            ]
            for kind, values in weights_by_name(head).items()
        }
        inputs = changed if at == 0 else x
        return upstream @ reference.cross_entropy(
            reference.adaptive_log_probabilities(inputs, **weights), y
        )

    random = np.random.default_rng(0)
    for at, (array, gradient) in enumerate(zip(arrays, gradients)):
        dense = tf.convert_to_tensor(gradient)
        direction = random.normal(size=array.shape)
        slope = reference.numeric_gradient(
            lambda a, at=at: loss_of(a, at), array.astype(float), direction
        )
        np.testing.assert_allclose(
            np.sum(dense * direction), slope, rtol=2e-4, atol=2e-4
        )


def test_probabilities_sum_to_one_and_follow_the_definition():
    """p(class) = p(cluster | head) p(class | cluster), by hand."""
    head = make_head()
    x, _ = data()
    output = head(x).numpy()
    np.testing.assert_allclose(output.sum(axis=1), 1.0, rtol=1e-5)
    rows = np.concatenate([head.kernels[0].numpy(), head.clusters.numpy()])
    in_head = reference.softmax(x @ rows.T)
    np.testing.assert_allclose(
        output[:, :12], in_head[:, :12], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        output[:, 12:30].sum(axis=1), in_head[:, 12], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        output[:, 30:].sum(axis=1), in_head[:, 13], rtol=1e-5, atol=1e-6
    )


def test_without_clusters_it_is_the_full_softmax():
    x, y = data(labels_wide=2)
    results = []
    for head in (
        layers.FullSoftmax(CLASSES),
        layers.AdaptiveSoftmax(CLASSES, cutoffs=[]),
    ):
        built(head)
        kernel = head.trainable_variables[0].value
        with tf.GradientTape() as tape:
            loss = head.compute_loss(x, y, training=True)
        gradient = tape.gradient(loss, kernel)
        results.append([loss, gradient, head(x)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_without_clusters_it_trains_as_a_graph():
    model = make_model(layers.AdaptiveSoftmax(CLASSES, cutoffs=[]))
    losses = model.fit(*data(), verbose=0).history["loss"]
    assert np.all(np.isfinite(losses))


@pytest.mark.parametrize(
    ("label", "touched"), [(3, [0, 0]), (12, [18, 0]), (59, [0, 30])]
)
def test_a_cluster_without_a_label_has_no_gradient(label, touched):
    head = make_head()
    x, _ = data()

    @tf.function
    def gradients(labels):
        with tf.GradientTape() as tape:
            loss = head.compute_loss(x, labels, training=True)
        sources = [kernel.value for kernel in head.kernels[1:]]
        result = tape.gradient(loss, sources)
        assert all(isinstance(g, tf.IndexedSlices) for g in result)
        return [g.indices for g in result]

    y = np.array([0] * (BATCH - 1) + [label])
    assert [len(ids) for ids in gradients(y)] == touched


def test_untouched_rows_stay():
    """LazyAdam leaves a cluster alone that no label touches."""
    x, _ = data()
    labels = [np.full(BATCH, c) for c in (59, 3, 14, 3, 59)]
    keras.utils.set_random_seed(1)
    head = layers.AdaptiveSoftmax(CLASSES, CUTOFFS, div_value=2.0)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.02), loss=head.loss)
    rows = []
    for y in labels:
        model.train_on_batch(x, y)
        rows.append(head.kernels[2].numpy())
    # Steps 1 to 3 have no label in the last cluster.
    assert np.array_equal(rows[0], rows[3])
    assert not np.array_equal(rows[0], rows[4])


def test_merge_repeats():
    ids = tf.constant([[7, 3, 7, -1], [-1, 5, 5, 5]], tf.int64)
    weights = tf.constant([[0.5, 0.25, 0.25, 0.0], [0.0, 0.5, 0.25, 0.25]])
    merged = targets_lib.merge_repeats(targets_lib.Targets(ids, weights))
    assert merged.ids.numpy().tolist() == [[7, 3, -1, -1], [-1, 5, -1, -1]]
    np.testing.assert_allclose(
        merged.weights, [[0.75, 0.25, 0, 0], [0, 1, 0, 0]]
    )


@pytest.mark.parametrize("k", quick([1, 7, 40, 2000], [7, 2000]))
def test_top_k_in_blocks(k, monkeypatch):
    """Several blocks of classes in each part, and ties across parts."""
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 1)
    monkeypatch.setattr(stock_search, "ONE_BLOCK_CLASSES", 100)
    head = built(layers.AdaptiveSoftmax(5000, [1500, 3000], div_value=2.0))
    x, _ = data()
    logits = log_probabilities(head, x)
    expected = np.argsort(-logits, axis=1)[:, :k]
    weights = head.export_weights()
    export = tf.function(lambda x: head.top_k(x, k, weights=weights))
    for ids, scores in (head.top_k(x, k), export(x)):
        probabilities = np.exp(np.take_along_axis(logits, ids.numpy(), 1))
        np.testing.assert_allclose(scores, probabilities, rtol=3e-5)
        best = np.exp(np.take_along_axis(logits, expected, 1))
        np.testing.assert_allclose(probabilities, best, rtol=3e-5)
        # But for classes that float32 cannot tell apart.
        assert np.mean(ids.numpy() == expected) > 0.99


def test_equal_scores_come_by_rising_id():
    head = built(layers.AdaptiveSoftmax(CLASSES, CUTOFFS))
    ids, _ = head.top_k(np.zeros((2, DIM), np.float32), CLASSES)
    # 12 classes and 2 clusters of equal chance, of 18 and 30 classes.
    assert ids.numpy().tolist() == [list(range(CLASSES))] * 2


def test_great_features_are_safe():
    head = make_head()
    x = 1e4 * data()[0]
    y = LABELS["all_parts"]
    losses = head.compute_loss(x, y, training=True)
    expected = reference.cross_entropy(log_probabilities(head, x), y)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert np.all(np.isfinite(head.logits(x)))


def test_class_weights_of_a_model_that_was_trained_are_in_an_export(tmp_path):
    head = layers.AdaptiveSoftmax(CLASSES, CUTOFFS)
    model = make_model(head, 0.05)
    x, y = data()
    model.fit(x, y, epochs=3, verbose=0)
    folder = tfxclass.export.saved_model(model, tmp_path, verify=False)
    names = tf.train.list_variables(f"{folder}/variables/variables")
    # Class rows are columns there.
    sizes = sorted(int(np.prod(shape)) for _, shape in names if shape)
    assert sizes == sorted(v.value.shape.num_elements() for v in model.weights)


INVALID = {
    "falling": (
        lambda: layers.AdaptiveSoftmax(9, [5, 3]),
        ["`cutoffs` must be rising", "[5, 3]", "num_classes=9"],
    ),
    "equal": (lambda: layers.AdaptiveSoftmax(9, [3, 3]), ["rising"]),
    "too_great": (
        lambda: layers.AdaptiveSoftmax(9, [3, 9]),
        ["below `num_classes`", "[3, 9]"],
    ),
    "zero": (
        lambda: layers.AdaptiveSoftmax(9, [0, 3]),
        ["`cutoffs` must be a positive integer", "0"],
    ),
    "fraction": (
        lambda: layers.AdaptiveSoftmax(9, [2.5]),
        ["`cutoffs` must be a positive integer", "2.5"],
    ),
    "div_value": (
        lambda: layers.AdaptiveSoftmax(9, [3], div_value=0.5),
        ["`div_value` must be >= 1", "0.5"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])
