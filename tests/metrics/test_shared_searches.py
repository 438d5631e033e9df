"""Metrics of one step share what they compute."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass import layers
from tfxclass import metrics

HEADS = {
    "full": lambda: layers.FullSoftmax(50, seed=1),
    "sampled": lambda: layers.SampledSoftmax(50, 50, seed=1),
    "tree": lambda: layers.HierarchicalSoftmax(50, tree="balanced"),
}
KINDS = metrics.NDCGAtK, metrics.TopKAccuracy, metrics.RecallAtK
KS = 10, 10, 3


def _batch():
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 8)).astype(np.float32)
    return x, random.integers(0, 50, (16, 2))


@pytest.mark.parametrize("head", HEADS)
def test_each_has_the_value_that_it_has_alone(head):
    values = []
    for kinds in (KINDS, *((kind,) for kind in KINDS)):
        keras.utils.set_random_seed(0)
        head_layer = HEADS[head]()
        model = keras.Sequential([keras.Input([8]), head_layer])
        used = [
            kind(head_layer, k=k, name=kind.__name__)
            for kind, k in zip(KINDS, KS)
            if kind in kinds
        ]
        model.compile(
            tfxclass.optimizers.LazySGD(0.1), head_layer.loss, metrics=used
        )
        runs = model.train_on_batch, model.test_on_batch
        values.append([run(*_batch(), return_dict=True) for run in runs])
    together, *alone = values
    for kind, found in zip(KINDS, alone):
        for own, all_values in zip(found, together):
            assert own[kind.__name__] == all_values[kind.__name__]


def _searches(kinds, ks):
    """How many searches are in the graph of an evaluation with metrics."""
    head = HEADS["full"]()
    model = keras.Sequential([keras.Input([8]), head])
    found = [kind(head, k=k) for kind, k in zip(kinds, ks)]
    x, y = map(tf.constant, _batch())

    @tf.function
    def evaluate():
        output = model(x, training=False)
        for metric in found:
            metric.update_state(y, output)

    graph = evaluate.get_concrete_function().graph.as_graph_def()
    functions = [x.node_def for x in graph.library.function]
    nodes = itertools.chain(graph.node, *functions)
    return sum(node.op == "Tfxclass>TopKBlock" for node in nodes)


def test_the_same_and_smaller_numbers_share_a_search():
    one = _searches(KINDS[:1], KS)
    assert one > 0
    assert _searches(KINDS, KS) == one
    assert _searches(KINDS, (3, 10, 10)) == 2 * one


def test_eager_metrics_see_weights_that_have_changed():
    """The output is older than the weights, which alone are asked."""
    head = HEADS["full"]()
    x, y = _batch()
    output = head(x)
    first, second = (metrics.TopKAccuracy(head, k=1) for _ in range(2))
    first.update_state(y[:, :1], output)
    rows = np.zeros([50, 8], np.float32)
    rows[y[:, 0]] = x
    head.kernel.assign(100 * rows)
    second.update_state(y[:, :1], output)
    assert float(first.result()) < float(second.result())
