"""Metrics of one step share what they compute."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tfxclass import layers
from tfxclass import metrics

HEADS = {
    "full": lambda: layers.FullSoftmax(50),
    "tree": lambda: layers.HierarchicalSoftmax(50, tree="balanced"),
}
KINDS = metrics.NDCGAtK, metrics.TopKAccuracy, metrics.RecallAtK
KS = 10, 10, 3


def batch():
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 8)).astype(np.float32)
    return x, random.integers(0, 50, (16, 2))


def evaluation(head, kinds, ks, training=False):
    """A function that returns the metrics' values of one batch."""
    x, y = map(tf.constant, batch())
    found = [kind(head, k=k) for kind, k in zip(kinds, ks)]

    def evaluate():
        output = head(x, training=training)
        for metric in found:
            metric.reset_state()
            metric.update_state(y, output)
        return [metric.result() for metric in found]

    return evaluate


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", quick(HEADS, ["full"]))
def test_each_has_the_value_that_it_has_alone(name, training):
    """Eager metrics share nothing. In training, all logits are at hand."""
    keras.utils.set_random_seed(0)
    head = HEADS[name]()
    head.build((None, 8))
    evaluate = evaluation(head, KINDS, KS, training)
    alone = [float(value) for value in evaluate()]
    together = [float(value) for value in tf.function(evaluate)()]
    assert together == alone
    assert 0 < min(alone) and max(alone) < 1


def searches(kinds, ks):
    """How many searches are in the graph of an evaluation with metrics."""
    head = HEADS["full"]()
    head.build((None, 8))
    function = tf.function(evaluation(head, kinds, ks))
    graph = function.get_concrete_function().graph.as_graph_def()
    functions = [x.node_def for x in graph.library.function]
    nodes = itertools.chain(graph.node, *functions)
    return sum(node.op == "Tfxclass>TopKBlock" for node in nodes)


def test_the_same_and_smaller_numbers_share_a_search():
    one = searches(KINDS[:1], KS)
    assert one > 0
    assert searches(KINDS, KS) == one
    assert searches(KINDS, (3, 10, 10)) == 2 * one


def test_eager_metrics_see_weights_that_have_changed():
    """The output is older than the weights, which alone are asked."""
    head = HEADS["full"]()
    x, y = batch()
    output = head(x)
    first, second = (metrics.TopKAccuracy(head, k=1) for _ in range(2))
    first.update_state(y[:, :1], output)
    rows = np.zeros([50, 8], np.float32)
    rows[y[:, 0]] = x
    head.kernel.assign(100 * rows)
    second.update_state(y[:, :1], output)
    assert float(first.result()) < float(second.result())
