"""What is known of a variable without an attribute on it."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass import layers
from tfxclass import optimizers
from tfxclass.rows import class_matrix
from tfxclass.weak_registry import WeakRegistry


def variables():
    yield keras.Variable(np.ones((4, 2)))
    yield tf.Variable(tf.ones([4, 2]))


def test_a_registry_knows_variables_apart():
    registry = WeakRegistry()
    keys = [*variables(), *variables()]
    for number, key in enumerate(keys):
        assert registry.get(key) is None
        registry.set(key, number)
    assert [registry.get(key) for key in keys] == [0, 1, 2, 3]
    registry.set(keys[0], "another")
    assert registry.get(keys[0]) == "another"


def test_an_entry_goes_with_its_variable():
    registry = WeakRegistry()
    for key in variables():
        registry.set(key, object())
    del key
    gc.collect()
    assert not registry._entries
    assert registry.get(None) is None and registry.get(3) is None


def test_class_vectors_of_a_head():
    head = layers.SampledSoftmax(
        9, 4, use_bias=True, seed=7, kernel_dtype="bfloat16"
    )
    head.build((None, 3))
    assert class_matrix.seed_of(head.kernel) == 7
    assert class_matrix.holds_bfloat16(head.kernel)
    assert not class_matrix.holds_class_vectors(head.bias)
    assert not [name for name in vars(head.kernel) if "tfxclass" in name]


def test_a_subscriber_is_notified_while_it_lives():
    class Subscriber:
        seen = ()

        def on_update(self, ids):
            Subscriber.seen = (*self.seen, *ids.numpy().tolist())

    variable = keras.Variable(np.ones((4, 2)))
    subscriber = Subscriber()
    class_matrix.of(variable).subscribe(subscriber.on_update)
    class_matrix.of(variable).notify(tf.constant([1, 3]))
    assert Subscriber.seen == (1, 3)
    del subscriber
    gc.collect()
    class_matrix.of(variable).notify(tf.constant([2]))
    assert Subscriber.seen == (1, 3)


@pytest.mark.parametrize(
    "name, read",
    [
        ("set_shard_owner", "keeps_shards"),
        ("set_local_optimizer", "differs_between_replicas"),
    ],
)
def test_an_optimizer_counts_while_it_lives(name, read):
    matrix = class_matrix.of(keras.Variable(np.ones((4, 2))))
    optimizer = optimizers.LazySGD()
    assert not getattr(matrix, read)
    getattr(matrix, name)(optimizer)
    assert getattr(matrix, read)
    del optimizer
    gc.collect()
    assert not getattr(matrix, read)
