"""`tfxclass.check`: what is slow or wrong about a model before `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass.advice import model_checks

CLASSES, DIM = 20, 8


def sampled(**options):
    return layers.SampledSoftmax(CLASSES, num_sampled=18, seed=1, **options)


def problem_of(model, *arguments, **options):
    """The one problem that is found."""
    (problem,) = tfxclass.check(model, *arguments, **options)
    return problem


def with_optimizer(optimizer, head):
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizer, loss=head.loss)
    return model


@pytest.mark.parametrize("named", ["accuracy", "object"])
def test_metrics_that_read_the_full_output_of_a_sampled_head(named):
    metric = named
    if named == "object":
        metric = keras.metrics.SparseCategoricalAccuracy(name="right")
    problem = problem_of(make_model(sampled(), metrics=[metric]))
    shown = "right" if named == "object" else "accuracy"
    assert f"['{shown}']" in problem and "TopKAccuracy" in problem


def test_our_own_metrics_and_full_heads_are_fine():
    head = sampled()
    metrics = [tfxclass.metrics.TopKAccuracy(head)]
    assert not tfxclass.check(make_model(head, metrics=metrics))
    full = make_model(layers.FullSoftmax(CLASSES), metrics=["accuracy"])
    assert not tfxclass.check(full)


def test_a_metric_of_another_output_is_fine():
    inputs = keras.Input((DIM,))
    head = layers.SampledSoftmax(CLASSES, num_sampled=18, name="words")
    outputs = [keras.layers.Dense(1, name="size")(inputs), head(inputs)]
    model = keras.Model(inputs, outputs)
    model.compile(
        "sgd",
        loss={"size": "mse", "words": head.loss},
        metrics={"size": ["mae"]},
    )
    assert not tfxclass.check(model)


def test_a_dense_optimizer_of_a_large_sampled_head(monkeypatch):
    monkeypatch.setattr(model_checks, "_LARGE_MATRIX", CLASSES * DIM)
    problem = problem_of(with_optimizer("adam", sampled()))
    assert problem.startswith("Adam updates all 20") and "HeadAdam" in problem


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: tfxclass.optimizers.LazyAdam(),
        lambda: keras.optimizers.LossScaleOptimizer(
            tfxclass.optimizers.LazyAdam()
        ),
    ],
    ids=["sgd", "lazy", "scaled"],
)
def test_optimizers_of_touched_rows_are_fine(monkeypatch, optimizer):
    monkeypatch.setattr(model_checks, "_LARGE_MATRIX", 1)
    assert not tfxclass.check(with_optimizer(optimizer(), sampled()))


def test_dense_optimizers_of_few_classes_and_full_heads_are_fine(monkeypatch):
    assert not tfxclass.check(with_optimizer("adam", sampled()))
    monkeypatch.setattr(model_checks, "_LARGE_MATRIX", 1)
    full = with_optimizer("adam", layers.FullSoftmax(CLASSES))
    assert not tfxclass.check(full)


def test_an_optimizer_that_cannot_move_bfloat16_class_vectors():
    head = sampled(kernel_dtype="bfloat16")
    problem = problem_of(with_optimizer("adam", head))
    assert 'kernel_dtype="bfloat16"' in problem and "HeadAdam" in problem
    head = sampled(kernel_dtype="bfloat16")
    assert not tfxclass.check(
        with_optimizer(tfxclass.optimizers.LazyAdam(), head)
    )


@pytest.mark.parametrize(
    ("labels", "is_wrong"),
    [
        (np.zeros([6, 2], int), True),
        ([[0, 1], [2, -1]], True),
        (tf.TensorSpec([None, 3], tf.int64), True),
        (np.zeros([6, 1], int), False),
        ([0, 1, 2], False),
    ],
)
def test_class_weight_with_several_labels_a_row(labels, is_wrong):
    model = make_model(sampled())
    found = tfxclass.check(model, labels, {0: 2.0})
    assert len(found) == is_wrong
    assert not is_wrong or "LossOptions(class_weight=...)" in found[0]
    assert not tfxclass.check(model, labels)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.arange(1, CLASSES), "No label is 0"),
        (
            np.arange(CLASSES + 1),
            f"labels from 0 to {CLASSES}, but the head has {CLASSES}",
        ),
        ([0, -5], "`labels` has labels from -5 to 0"),
        ([[1, -1], [0, 2]], None),
        (np.full([4, 2], -1), "All labels are -1"),
        (np.zeros([0], int), None),
    ],
)
def test_labels_that_no_class_has(labels, told):
    found = tfxclass.check(make_model(sampled()), labels)
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


def test_errors():
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.Input([DIM]), head])
    with pytest.raises(ValueError, match="`model` must be compiled"):
        tfxclass.check(model)
    with pytest.raises(ValueError, match="exactly one head"):
        tfxclass.check(keras.Sequential([keras.layers.Dense(2)]))
