"""Heads in Keras' and TensorBoard's pictures of a model, copies and tuners."""

import copy
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

import tfxclass
from tests.support.contract import data
from tests.support.contract import make_model

CLASSES = 60


def make_head(**options):
    sampler = tfxclass.samplers.KMeansSampler(32, num_groups=4)
    return tfxclass.layers.SampledSoftmax(
        CLASSES, sampler=sampler, name="words", seed=0, **options
    )


def events_of(folder):
    """`{tag: value}` of what a callback wrote, the last of each."""
    found = {}
    for path in folder.rglob("*tfevents*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                found[value.tag] = value.tensor
    return found


def test_tensorboard(tmp_path):
    """Its model graph has the head; what the sampler measures is a scalar."""
    model = make_model(make_head())
    board = keras.callbacks.TensorBoard(tmp_path, write_graph=True)
    callbacks = [tfxclass.callbacks.SamplerLog(), board]
    model.fit(*data(), verbose=0, callbacks=callbacks)
    events = events_of(tmp_path)
    assert 0 <= tf.make_ndarray(events["epoch_fill_rate"]) <= 1
    graph = json.loads(events["keras"].string_val[0])
    head = graph["config"]["layers"][-1]
    assert head["registered_name"] == "tfxclass>SampledSoftmax"
    assert head["config"]["name"] == "words"


def test_ops_of_a_head_are_one_box():
    """In the graph of a step, all that the loss does has the head's name."""
    model = make_model(make_head())
    model.optimizer.build(model.trainable_variables)
    x, y = map(tf.constant, data())
    step = tf.function(lambda x, y: model.train_step((x, y)))
    graph = step.get_concrete_function(x, y).graph.as_graph_def()
    paths = [node.name.split("/") for node in graph.node]
    loss = [path for path in paths if path[0] == "compile_loss"]
    own = [path for path in loss if path[1] == "words"]
    assert any("ClusterAdvance" in path[2] for path in own)
    # The mean over the batch is Keras'.
    assert len(loss) - len(own) < 0.25 * len(loss)


def test_plot_model(tmp_path):
    """Names, kinds and shapes of a head and of its labels' input."""
    pytest.importorskip("pydot")
    x, y = keras.Input([8]), keras.Input([], dtype="int64", name="labels")
    model = keras.Model([x, y], make_head()(x, labels=y))
    shown = {"show_shapes": True, "show_layer_names": True}
    text = keras.utils.model_to_dot(model, **shown).to_string()
    assert "<b>words</b> (SampledSoftmax)" in text
    assert "<b>[(None, 8), (None,)]</b></font>" in text
    assert f"Output shape: <b>(None, {CLASSES})</b>" in text
    if shutil.which("dot") is None:
        pytest.skip("no picture: Graphviz' dot is not installed")
    keras.utils.plot_model(model, tmp_path / "model.png", **shown)
    assert (tmp_path / "model.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize("copied", [keras.models.clone_model, copy.deepcopy])
def test_a_copy_has_a_head_of_its_own(copied):
    model = keras.Sequential([keras.Input([8]), make_head()])
    again = copied(model)
    head = again.layers[-1]
    assert head is not model.layers[-1]
    assert repr(head) == repr(model.layers[-1])
    before = model.layers[-1].kernel.numpy()
    optimizer = tfxclass.optimizers.LazyAdam(0.1)
    again.compile(optimizer, loss=head.loss, run_eagerly=True)
    again.fit(*data(), verbose=0)
    np.testing.assert_array_equal(model.layers[-1].kernel, before)
    assert not np.array_equal(head.kernel, before)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_tuner(tmp_path):
    """Head and its arguments as hyperparameters; the best one is loaded."""
    keras_tuner = pytest.importorskip("keras_tuner")
    x, y = data(rows=128)

    def build(choice):
        kind = choice.Choice("head", ["SampledSoftmax", "SelectiveSoftmax"])
        num_sampled = choice.Int("num_sampled", 32, 48, step=16)
        head = getattr(tfxclass.layers, kind)(
            CLASSES, num_sampled=num_sampled, name="words"
        )
        top = tfxclass.metrics.TopKAccuracy(head, k=10, name="top10")
        return make_model(head, metrics=[top])

    tuner = keras_tuner.RandomSearch(
        build,
        keras_tuner.Objective("val_top10", "max"),
        max_trials=2,
        seed=0,
        directory=tmp_path,
    )
    # It copies callbacks, one for each trial.
    tuner.search(
        x,
        y,
        epochs=2,
        validation_data=(x, y),
        callbacks=[tfxclass.callbacks.SamplerLog()],
        verbose=0,
    )
    (trial,) = tuner.oracle.get_best_trials(1)
    assert len(tuner.oracle.trials) == 2
    (best,) = tuner.get_best_models(1)
    head = best.layers[-1]
    assert head.num_sampled == trial.hyperparameters.get("num_sampled")
    assert type(head).__name__ == trial.hyperparameters.get("head")
    top = tfxclass.metrics.TopKAccuracy(head, k=10, name="top10")
    best.compile(loss=head.loss, metrics=[top])
    found = best.evaluate(x, y, verbose=0, return_dict=True)["top10"]
    assert found == pytest.approx(trial.score)


def test_scikit_learn():
    """A head in Keras' own wrapper: pipeline, split and a search."""
    pytest.importorskip("sklearn")
    from sklearn import model_selection
    from sklearn import pipeline
    from sklearn import preprocessing

    def build(X, y, rate=1e-2):  # noqa: N803
        head = tfxclass.layers.SampledSoftmax(y.shape[1], y.shape[1])
        model = keras.Sequential([keras.Input([8]), head])
        model.compile(
            tfxclass.optimizers.LazyAdam(rate),
            loss=lambda y, y_pred: head.loss(keras.ops.argmax(y, -1), y_pred),
            run_eagerly=True,
        )
        return model

    random = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 20)
    x = random.normal(size=(6, 8))[y] + 0.1 * random.normal(size=(120, 8))
    names = np.array(list("abcdef"))[y]
    wrapper = keras.wrappers.SKLearnClassifier(build, model_kwargs={})
    estimator = pipeline.make_pipeline(preprocessing.StandardScaler(), wrapper)
    search = model_selection.GridSearchCV(
        estimator,
        {"sklearnclassifier__model_kwargs": [{"rate": 1e-6}, {"rate": 0.1}]},
        cv=model_selection.StratifiedShuffleSplit(
            1, test_size=0.5, random_state=0
        ),
    )
    search.fit(
        x, names, sklearnclassifier__epochs=3, sklearnclassifier__verbose=0
    )
    assert search.best_params_["sklearnclassifier__model_kwargs"]["rate"] == 0.1
    assert search.score(x, names) > 0.9
    assert search.predict(x[:1]).tolist() == ["a"]
