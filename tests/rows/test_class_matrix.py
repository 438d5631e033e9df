"""What a head knows of its class vectors, and how others find it."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass import layers
from tfxclass import optimizers
from tfxclass import shards
from tfxclass.rows import class_matrix
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.shards import shards as shards_lib


def variables():
    yield keras.Variable(np.ones((4, 2)))
    yield tf.Variable(tf.ones([4, 2]))


def test_owners_know_variables_apart():
    kernels = [*variables(), *variables()]
    matrices = [ClassMatrix(kernel) for kernel in kernels]
    for kernel, matrix in zip(kernels, matrices, strict=True):
        assert class_matrix.owner_of(kernel) is matrix
    tied = ClassMatrix(kernels[0])
    assert class_matrix.owner_of(kernels[0]) is tied
    assert class_matrix.owner_of(None) is class_matrix.owner_of(3) is None


def test_a_variable_with_the_id_of_a_dead_one_has_no_owner():
    matrix = ClassMatrix(next(variables()))
    for state in variables():
        matrix.own(state)
        assert class_matrix.owner_of(state) is matrix
    number, other = id(state), keras.Variable(0.0)
    class_matrix._OWNERS[id(other)] = class_matrix._OWNERS[number]
    assert class_matrix.owner_of(other) is None


def test_an_owner_is_not_kept():
    for kernel in variables():
        matrix = ClassMatrix(kernel)
        assert class_matrix.owner_of(kernel) is matrix
        del matrix
        gc.collect()
        assert class_matrix.owner_of(kernel) is None


def test_class_vectors_of_a_head():
    head = layers.SampledSoftmax(
        9, 4, use_bias=True, seed=7, kernel_dtype="bfloat16"
    )
    head.build((None, 3))
    matrix = class_matrix.of(head.kernel)
    assert matrix is head.class_matrix
    assert matrix.variables == [head.kernel, head.bias]
    assert matrix.seed == 7 and matrix.is_half and not matrix.normalize
    assert class_matrix.of(head.bias) is None
    assert not [name for name in vars(head.kernel) if "tfxclass" in name]
    kernel, bias = matrix.rows.gather(tf.constant([8, 0], tf.int64))
    np.testing.assert_array_equal(kernel, matrix.values().numpy()[[8, 0]])
    np.testing.assert_array_equal(bias, [0.0, 0.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.AdaptiveSoftmax(9, cutoffs=[4]),
        lambda: layers.DropMax(9, "posterior"),
        lambda: layers.FullSoftmax(9, similarity="cosine"),
        lambda: layers.HierarchicalSoftmax(9, tree="balanced"),
    ],
)
def test_all_class_vectors_have_an_owner(make):
    head = make()
    head.build((None, 6))
    wide = [
        variable
        for name, variable in head.weights_by_name.items()
        if "kernel" in name
    ]
    assert wide and all(class_matrix.of(x) is not None for x in wide)
    assert class_matrix.of(wide[0]).normalize == (
        getattr(head, "similarity", "dot") == "cosine"
    )


class TwoServers(shards_lib.ServerShards):
    def _count(self):
        return 2


def test_new_class_vectors_on_servers_count_as_new(monkeypatch):
    monkeypatch.setattr(shards, "make_shards", TwoServers)
    head = layers.ShardedSoftmax(9, use_bias=True)
    head.build((None, 3))
    kernels = [v for v in head.trainable_variables if len(v.shape) == 2]
    assert [v.shape for v in kernels] == [(5, 3), (4, 3)]
    assert all(class_matrix.of(v) is head.class_matrix for v in kernels)
    rows = head.class_matrix.rows_by_shard()
    assert [(x.first, x.num_classes) for x in rows.values()] == [(0, 5), (5, 4)]
    assert head.class_matrix.values().shape == (9, 3)
    # The optimizer slows down class vectors that were trained before.
    optimizer = optimizers.HeadAdam()
    optimizer.build(head.trainable_variables)
    states = [x for x in optimizer._states if "gradient_scale" in x]
    assert [float(x["gradient_scale"][0, 2]) for x in states] == [0.0, 0.0]


def test_a_sampler_is_told_of_what_moved():
    head = layers.LSHSoftmax(9, 4)
    head.build((None, 3))
    assert head.class_matrix.on_moved == head.sampler.rows_moved
    seen = []
    head.class_matrix.on_moved = lambda ids: seen.extend(ids.numpy())
    head.class_matrix.on_moved(tf.constant([1, 3]))
    assert seen == [1, 3]
    ClassMatrix(head.kernel).on_moved(tf.constant([1, 3]))


def test_an_optimizer_counts_while_it_lives():
    matrix = ClassMatrix(keras.Variable(np.ones((4, 2))))
    assert matrix.optimizer is None and not matrix.differs_between_replicas
    matrix.optimizer = optimizer = optimizers.LazySGD()
    assert matrix.optimizer is optimizer
    assert not matrix.differs_between_replicas
    del optimizer
    gc.collect()
    assert matrix.optimizer is None
