"""Signatures, warm-up and approximate search of exports."""

import json
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass.export import checks
from tfxclass.rows import stock_search

NUM_CLASSES = 120
DIM = 8
NAMES = [f"name {i}" for i in range(NUM_CLASSES)]
HEADS = {
    "full": (tfxclass.layers.FullSoftmax, {"use_bias": True}),
    "logits": (tfxclass.layers.FullSoftmax, {"activation": None}),
    "cosine": (tfxclass.layers.FullSoftmax, {"similarity": "cosine"}),
    "sparsemax": (tfxclass.layers.Sparsemax, {}),
    "adaptive": (tfxclass.layers.AdaptiveSoftmax, {"cutoffs": [20, 50]}),
    "differentiated": (
        tfxclass.layers.DifferentiatedSoftmax,
        {"blocks": [(20, 5), (100, 3)]},
    ),
    "projected": (tfxclass.layers.ProjectedSoftmax, {"projection_dim": 4}),
    "sampled": (tfxclass.layers.SampledSoftmax, {"num_sampled": 5}),
    "dropmax": (tfxclass.layers.DropMax, {}),
    "tree": (
        tfxclass.layers.HierarchicalSoftmax,
        {"tree": "balanced", "beam_width": 3},
    ),
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def make_model(name="full", num_classes=NUM_CLASSES, dim=DIM):
    layer, arguments = HEADS[name]
    layers = [keras.Input((5,), name="x"), keras.layers.Dense(dim)]
    return keras.Sequential([*layers, layer(num_classes, **arguments)])


def ask(folder, signature, **inputs):
    """Answers of a loaded SavedModel, arrays by name."""
    served = tf.saved_model.load(folder).signatures[signature]
    answers = served(**{k: tf.constant(v) for k, v in inputs.items()})
    return {key: value.numpy() for key, value in answers.items()}


@pytest.mark.parametrize(
    "name", quick(HEADS, ["full", "tree", "logits", "sparsemax"])
)
def test_all_signatures_of_all_heads(name, tmp_path):
    # The proof itself compares each signature with the model.
    model = make_model(name)
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=4, labels=NAMES, full_scores=True
    )
    signatures = checks.meta_graph(folder).signature_def
    assert {"serving_default", "embed", "full_scores"} < set(signatures)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    answers = ask(folder, "full_scores", x=x)
    np.testing.assert_allclose(
        answers["scores"], model(x), rtol=1e-4, atol=1e-6
    )


def test_embed(tmp_path):
    model = make_model()
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=4)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    features = ask(folder, "embed", x=x)["features"]
    np.testing.assert_allclose(features, model.layers[0](x), rtol=1e-5)
    signatures = checks.meta_graph(folder).signature_def
    keys = {"serving_default", "embed", "__saved_model_init_op"}
    assert set(signatures) == keys


@pytest.mark.parametrize("labels", [None, NAMES])
def test_threshold(labels, tmp_path):
    # The proof compares; most classes are below.
    model = make_model()
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=9, threshold=0.012, labels=labels
    )
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    answers = ask(folder, "serving_default", x=x)
    is_none = answers["ids"] == -1
    assert is_none.any() and not is_none.all()
    np.testing.assert_array_equal(is_none, answers["scores"] == 0)
    if labels is not None:
        np.testing.assert_array_equal(is_none, answers["labels"] == b"")


def test_types_that_json_has_not(tmp_path):
    x = keras.Input((3,), dtype="float16", name="x")
    n = keras.Input((2,), dtype="int32", name="a")
    features = keras.layers.Concatenate(dtype="float32")(
        [keras.ops.cast(x, "float32"), keras.ops.cast(n, "float32")]
    )
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    model = keras.Model([x, n], head(features))
    folder = tfxclass.export.saved_model(model, tmp_path)
    for signature in checks.meta_graph(folder).signature_def.values():
        for tensor in [*signature.inputs.values(), *signature.outputs.values()]:
            assert tensor.dtype not in (tf.float16, tf.bfloat16)
            # Dimension 0 is the batch. ("__saved_model_init_op" has none.)
            dims = tensor.tensor_shape.dim
            assert not dims or dims[0].size == -1


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_a_model_of_a_keras_file(similarity, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        head = tfxclass.layers.SampledSoftmax(
            NUM_CLASSES, num_sampled=5, similarity=similarity
        )
        layers = [keras.Input((5,), name="x"), keras.layers.Dense(DIM), head]
        model = keras.Sequential(layers)
    path = tmp_path / "model.keras"
    model.save(path)
    folders = [
        tfxclass.export.saved_model(source, tmp_path / "m", top_k=3)
        for source in (model, keras.saving.load_model(path))
    ]
    x = np.ones((2, 5), "float32")
    one, two = (ask(folder, "serving_default", x=x) for folder in folders)
    np.testing.assert_array_equal(one["ids"], two["ids"])
    np.testing.assert_allclose(one["scores"], two["scores"], rtol=1e-6)


def test_graph_of_many_classes_is_small(tmp_path):
    """Class vectors of 800 kB, and names of 590 kB, are in other files."""
    model = make_model(num_classes=100_000, dim=2)
    folder = tfxclass.export.saved_model(
        model,
        tmp_path,
        verify=False,
        full_scores=True,
        labels=list(map(str, range(100_000))),
    )
    size = os.path.getsize(os.path.join(folder, "saved_model.pb"))
    assert size < 200_000, size


FEW = quick(["full", "cosine", "logits", "sampled"], ["cosine"])


class TestInvertedLists:
    @staticmethod
    def clustered(name="full", num_classes=3_000):
        model = make_model(name, num_classes)
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(60, DIM))
        rows = centres[rng.integers(60, size=num_classes)]
        rows = rows + 0.3 * rng.normal(size=rows.shape)
        head = model.layers[-1]
        head.kernel.assign(rows.astype("float32"))
        if head.bias is not None:
            bias = rng.normal(size=num_classes).astype("float32")
            bias[:7] = -np.inf
            head.bias.assign(bias)
        return model

    @pytest.mark.parametrize("name", FEW)
    def test_recall_and_scores(self, name, tmp_path):
        model = self.clustered(name)
        x = np.random.default_rng(1).normal(size=(64, 5)).astype("float32")
        folder = tfxclass.export.saved_model(
            model,
            tmp_path,
            search=tfxclass.export.InvertedLists(num_lists=60),
            example_inputs=x,
            full_scores=True,
        )
        with open(os.path.join(folder, "assets.extra", "search.json")) as f:
            report = json.load(f)
        answers = ask(folder, "serving_default", x=x)
        head, features = model.layers[-1], model.layers[0](x)
        logits = head.logits(features).numpy()
        exact, _ = head.top_k(features, 10)
        shared = [
            len(set(a) & set(b))
            for a, b in zip(answers["ids"], exact.numpy().tolist())
        ]
        assert sum(shared) / 640 == pytest.approx(report["recall"])
        assert report["recall"] >= 0.95
        assert report["num_probes"] < report["num_lists"] <= 60
        assert report["measured_on"] == "examples"
        np.testing.assert_allclose(
            answers["scores"],
            np.take_along_axis(logits, answers["ids"], axis=1),
            rtol=1e-5,
            atol=1e-5,
        )
        assert np.all(np.diff(answers["scores"]) <= 0)

    def test_all_lists_are_exact(self):
        model = self.clustered(num_classes=300)
        head = model.layers[-1]
        lists = tfxclass.export.InvertedLists(20, num_probes=20, min_recall=1.0)
        search = lists.build(head, 5)
        features = np.random.default_rng(2).normal(size=(9, DIM))
        ids, scores = search.top_k(features.astype("float32"), 5)
        queries = head.queries(features)
        exact = stock_search.best(queries, head.rows, 5)
        np.testing.assert_array_equal(ids, exact[0])
        np.testing.assert_allclose(scores, exact[1], rtol=1e-5)

    @pytest.mark.slow
    def test_same_seed_same_lists(self):
        head = self.clustered().layers[-1]
        settings = tfxclass.export.InvertedLists(num_lists=30)
        one, two = (settings.build(head, 5) for _ in range(2))
        np.testing.assert_array_equal(one.order, two.order)
        assert one.measured == two.measured
        assert one.measured["measured_on"] == "class rows"

    def test_low_recall_is_refused(self, tmp_path):
        model = make_model("logits", 3_000)  # Isotropic: no lists help.
        search = tfxclass.export.InvertedLists(100, num_probes=2)
        x = np.random.default_rng(0).normal(size=(50, 5))
        with pytest.raises(ValueError, match="min_recall=0.95. Received: 0."):
            tfxclass.export.saved_model(
                model, tmp_path, search=search, example_inputs=x
            )
        assert os.listdir(tmp_path) == []

    @pytest.mark.slow
    def test_rows_are_in_the_file_once(self, tmp_path):
        model = self.clustered()
        search = tfxclass.export.InvertedLists(20)
        folder = tfxclass.export.saved_model(model, tmp_path, search=search)
        path = os.path.join(folder, "variables", "variables")
        shapes = [tuple(s) for _, s in tf.train.list_variables(path)]
        assert shapes.count((3_000, DIM)) == 1
        assert shapes.count((3_000,)) == 3  # Bias, order, places.

    @pytest.mark.parametrize(
        "arguments, message",
        [
            ({"num_lists": 0}, "`num_lists` must be a positive integer"),
            ({"num_probes": 1.5}, "`num_probes` must be a positive integer"),
            ({"min_recall": 1.5}, "`min_recall` must be in .0, 1.*: 1.5"),
        ],
    )
    def test_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            tfxclass.export.InvertedLists(**arguments)

    def test_probes_that_cannot_do(self):
        head = self.clustered().layers[-1]
        search = tfxclass.export.InvertedLists(20, num_probes=21)
        with pytest.raises(ValueError, match="`num_probes` must be .*20.*: 21"):
            search.build(head, 5)

    def test_other_heads_are_refused(self):
        head = make_model("adaptive").layers[-1]
        with pytest.raises(ValueError, match="Received: AdaptiveSoftmax"):
            tfxclass.export.InvertedLists().build(head, 5)


class TestWarmup:
    def test_records_are_written_and_replayed(self, tmp_path, monkeypatch):
        pytest.importorskip("tensorflow_serving")
        replayed = []
        answers_of = checks.answers_of

        def note(folder, asked):
            replayed.extend(asked)
            return answers_of(folder, asked)

        monkeypatch.setattr(checks, "answers_of", note)
        folder = tfxclass.export.saved_model(
            make_model(), tmp_path, warmup_batch_sizes=[1, 4]
        )
        signatures = {"serving_default", "embed"}
        assert {x.signature for x in replayed} == signatures
        # The examples, then the warm-up.
        sizes = [len(next(iter(x.inputs.values()))) for x in replayed]
        assert sizes == [3] * 2 + [1] * 2 + [4] * 2
        assert os.path.exists(os.path.join(folder, checks.WARMUP))

    def test_a_bad_record_is_told(self, tmp_path):
        pytest.importorskip("tensorflow_serving")
        folder = tfxclass.export.saved_model(make_model(), tmp_path)
        bad = {"x": np.ones((2, 3), "float32")}
        with pytest.raises(RuntimeError, match="does not load or run"):
            checks.answers_of(folder, [checks.Request("serving_default", bad)])

    def test_too_many(self, tmp_path):
        pytest.importorskip("tensorflow_serving")
        with pytest.raises(ValueError, match="at most 1000 requests"):
            tfxclass.export.saved_model(
                make_model(), tmp_path, warmup_batch_sizes=range(1, 600)
            )
        assert os.listdir(tmp_path) == []

    def test_bad_size(self, tmp_path):
        with pytest.raises(ValueError, match="`warmup_batch_sizes` must be"):
            tfxclass.export.saved_model(
                make_model(), tmp_path, warmup_batch_sizes=[0]
            )

    def test_without_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
        monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
        with pytest.raises(
            ImportError, match="pip install --no-deps 'tensorflow-serving-api"
        ):
            tfxclass.export.saved_model(
                make_model(), tmp_path, warmup_batch_sizes=[1]
            )
