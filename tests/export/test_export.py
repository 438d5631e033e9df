"""The exported model equals the live one, without tfxclass."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.error_bounds import assert_within
from tests.support.error_bounds import product_error_bound
from tests.support.error_bounds import score_error_bound
from tests.support.helpers import make_text_model
from tfxclass.core import softmax
from tfxclass.export import checks
from tfxclass.export import compare
from tfxclass.export import searches
from tfxclass.export import signatures
from tfxclass.inference.graph import encoder_of
from tfxclass.ops import library
from tfxclass.rows import blocks
from tfxclass.rows import stock_search

NUM_CLASSES = 300
DIM = 8
HEADS = {
    "full-dot": (tfxclass.layers.FullSoftmax, {}),
    "full-bias": (tfxclass.layers.FullSoftmax, {"use_bias": True}),
    "full-logits": (tfxclass.layers.FullSoftmax, {"activation": None}),
    "full-cosine": (tfxclass.layers.FullSoftmax, {"similarity": "cosine"}),
    "sampled-dot": (tfxclass.layers.SampledSoftmax, {"num_sampled": 20}),
    "sampled-cosine": (
        tfxclass.layers.SampledSoftmax,
        {"num_sampled": 20, "similarity": tfxclass.layers.Cosine(scale=9.0)},
    ),
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def make_head(name, num_classes=NUM_CLASSES):
    layer, arguments = HEADS[name]
    return layer(num_classes, **arguments)


def randomize(head, seed=0):
    """Random weights; rows 40..59 repeat rows 0..19, for ties."""
    rng = np.random.default_rng(seed)
    kernel = rng.normal(size=head.kernel.shape).astype("float32")
    kernel[40:60] = kernel[:20]
    head.kernel.assign(kernel)
    if head.bias is not None:
        bias = rng.normal(size=head.bias.shape).astype("float32")
        bias[40:60] = bias[:20]
        # Masked classes: more than a block of them, and the last one.
        bias[100:200] = bias[-1] = -np.inf
        head.bias.assign(bias)


def make_model(name="full-dot", num_classes=NUM_CLASSES):
    head = make_head(name, num_classes)
    layers = [keras.Input((5,), name="x"), keras.layers.Dense(DIM), head]
    model = keras.Sequential(layers)
    randomize(head)
    return model


def ask(folder, **inputs):
    """Answers of a loaded SavedModel, arrays by name."""
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(**{k: tf.constant(v) for k, v in inputs.items()})
    return {key: value.numpy() for key, value in answers.items()}


def assert_equals_live(answers, model, inputs, k):
    ids, scores = map(np.asarray, tfxclass.top_k(model, k)(inputs))
    np.testing.assert_array_equal(answers["ids"], ids)
    head, error = model.layers[-1], None
    features = np.asarray(keras.Model(model.inputs[0], head.input)(inputs))
    encoder = model.layers[-2]
    if isinstance(encoder, keras.layers.Dense):
        weights, bias = (np.asarray(w) for w in encoder.weights)
        error = product_error_bound(inputs, weights.T, bias)
    bound = score_error_bound(head, features, error)
    assert_within(
        answers["scores"], scores, np.take_along_axis(bound, ids, axis=1)
    )


@pytest.fixture(params=["one-block", "blocks"])
def block_path(request, monkeypatch):
    if request.param == "blocks":
        monkeypatch.setattr(stock_search, "ONE_BLOCK_CLASSES", 100)
        monkeypatch.setattr(
            stock_search, "block_size", lambda batch: tf.constant(48)
        )


@pytest.mark.parametrize("n", [1, 128, 3_000, 6_000, 6_144])
@pytest.mark.parametrize("is_known", [True, False])
def test_top_k_of_groups_is_top_k(n, is_known):
    """Of equals the first, in one group or several; all of them may be -inf."""
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 400, (4, n)).astype("float32")
    logits[1], logits[2] = 1.0, -np.inf
    logits[3, : n // 2] = -np.inf
    spec = tf.TensorSpec([None, n if is_known else None])
    find = tf.function(lambda x: stock_search.top_k(x, 11), [spec])
    expected = tf.math.top_k(logits, min(n, 11))
    for found, expected in zip(find(logits), expected):
        np.testing.assert_array_equal(found, expected)


# A block has 48 classes: fewer answers, more, and all.
COUNTS = [1, 7, 70, NUM_CLASSES]


@pytest.mark.parametrize(
    "case",
    quick(
        [(name, k) for name in HEADS for k in COUNTS],
        [
            ("full-dot", 7),
            ("full-bias", 70),
            ("full-bias", NUM_CLASSES),
            ("full-logits", 70),
            ("full-cosine", 70),
            ("sampled-cosine", NUM_CLASSES),
        ],
    ),
    ids=str,
)
def test_export_top_k_equals_top_k(case, block_path):
    name, k = case
    head = make_head(name)
    head.build((None, DIM))
    randomize(head)
    features = np.random.default_rng(1).normal(size=(4, DIM))
    features[0] = 0.0  # Ties everywhere.
    weights = head.export_weights()
    export_top_k = tf.function(lambda x: head.top_k(x, k, weights=weights))
    ids, scores = export_top_k(features.astype("float32"))
    live_ids, live_scores = map(np.asarray, head.top_k(features, k))
    np.testing.assert_array_equal(ids, live_ids)
    bound = score_error_bound(head, features)
    assert_within(scores, live_scores, np.take_along_axis(bound, live_ids, 1))


@pytest.mark.parametrize("name", HEADS)
def test_export_top_k_has_stock_ops_only(name, block_path):
    head = make_head(name)
    head.build((None, DIM))
    weights = head.export_weights()
    graph = (
        tf.function(
            lambda x: head.top_k(x, 3, weights=weights),
            [tf.TensorSpec([None, DIM])],
        )
        .get_concrete_function()
        .graph
    )
    ops = {op.type for op in graph.get_operations()}
    assert not [op for op in ops if "fxclass" in op], ops
    assert ("StatelessWhile" in ops) == (stock_search.ONE_BLOCK_CLASSES == 100)


@pytest.mark.parametrize("name", ["full-bias", "full-cosine"])
def test_saved_model_in_blocks_equals_model(name, tmp_path, monkeypatch):
    monkeypatch.setattr(stock_search, "ONE_BLOCK_CLASSES", 100)
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 100)
    model = make_model(name, num_classes=2_500)
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=7)
    x = np.random.default_rng(2).normal(size=(6, 5)).astype("float32")
    assert_equals_live(ask(folder, x=x), model, x, 7)


@pytest.mark.parametrize("name", quick(HEADS, ["full-bias", "sampled-cosine"]))
def test_saved_model_equals_model(name, tmp_path):
    model = make_model(name)
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=7)
    x = np.random.default_rng(2).normal(size=(6, 5)).astype("float32")
    answers = ask(folder, x=x)
    assert set(answers) == {"ids", "scores"}
    assert answers["ids"].dtype == np.int64
    assert answers["scores"].dtype == np.float32
    assert_equals_live(answers, model, x, 7)


@pytest.mark.parametrize("name", HEADS)
def test_a_query_of_nan_has_no_answer(name, block_path):
    head = make_head(name)
    head.build((None, DIM))
    randomize(head)
    features = np.random.default_rng(1).normal(size=(3, DIM))
    features[1] = np.nan
    weights = head.export_weights()
    for ids, scores in (
        head.top_k(features, 7),
        head.top_k(features, 7, weights=weights),
    ):
        assert np.all(ids[1] == -1) and np.all(scores[1] == 0)
        assert np.all(ids[0] >= 0) and np.all(ids[2] >= 0)


def make_pooling_model(num_classes=NUM_CLASSES, **kwargs):
    """Rows of padding alone have a mean of nothing: NaN."""
    x = keras.Input((None,), dtype="int32", name="x")
    vectors = keras.layers.Embedding(30, DIM, mask_zero=True)(x)
    features = keras.layers.GlobalAveragePooling1D()(vectors)
    head = tfxclass.layers.SampledSoftmax(num_classes, 40, **kwargs)
    return keras.Model(x, head(features))


def test_examples_of_padding_are_no_misses():
    """Their features are NaN: a search of all lists finds all there is."""
    head = make_pooling_model(100, activation=None).layers[-1]
    features = np.random.default_rng(0).normal(size=(9, head.kernel.shape[1]))
    features[::2] = np.nan
    lists = tfxclass.export.InvertedLists(9, num_probes=9, min_recall=1.0)
    search = lists.build(head, 3, features.astype("float32"))
    assert search.measured["recall"] == 1.0


@pytest.mark.parametrize("lists", [False, True])
def test_rows_of_padding_are_exported_and_answered(lists, tmp_path):
    model = make_pooling_model(100, activation=None if lists else "auto")
    search = tfxclass.export.InvertedLists(9, num_probes=9) if lists else None
    names = [f"name {i}" for i in range(100)]
    # The made-up rows have one of padding.
    folder = tfxclass.export.saved_model(
        model, tmp_path, labels=names, search=search, exclude=True, only=True
    )
    x = np.array([[0, 0], [3, 4]], "int32")
    found = [ask(folder, x=x)]
    served = tf.saved_model.load(folder).signatures
    for kind in ("exclude", "only"):
        ids = {f"{kind}_ids": tf.constant([[3, 4, 5]] * 2, tf.int64)}
        found.append(served[kind](x=tf.constant(x), **ids))
    for answers in found:
        assert np.all(answers["ids"][0] == -1)
        assert np.all(answers["scores"][0] == 0)
        assert np.all(np.asarray(answers["labels"])[0] == b"")
        assert answers["ids"][1][0] >= 0


def test_examples_without_any_features_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`example_inputs`"):
        tfxclass.export.saved_model(
            make_pooling_model(), tmp_path, example_inputs=[[0, 0], [0, 0]]
        )
    assert os.listdir(tmp_path) == []


LOW = ["mixed_bfloat16", "mixed_float16", "bfloat16"]


def make_low_model(policy):
    layers = [keras.layers.Dense(16, "relu", dtype=policy) for _ in range(3)]
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES, dtype=policy)
    model = keras.Sequential([keras.Input((5,), name="x"), *layers, head])
    rows = np.random.default_rng(0).normal(size=(NUM_CLASSES, 16))
    head.kernel.assign(3 * rows)
    return model


@pytest.mark.parametrize("policy", LOW)
def test_model_of_16_bits(policy, tmp_path):
    """The proof compares each signature; the last policy has all of them."""
    x = np.random.default_rng(1).normal(size=(9, 5)).astype("float32")
    options = {"exclude": True, "only": True, "full_scores": True}
    tfxclass.export.saved_model(
        make_low_model(policy),
        tmp_path,
        example_inputs=x,
        threshold=0.1,
        **(options if policy == "bfloat16" else {}),
    )


@pytest.mark.parametrize("policy", LOW)
@pytest.mark.parametrize("key", ["ids", "scores", "features", "labels"])
def test_wrong_answers_of_16_bits_are_refused(policy, key):
    """Off by more than rounding: 1.5 times, or another class."""
    model = make_low_model(policy)
    x = np.random.default_rng(1).normal(size=(9, 5)).astype("float32")
    encoder, head = encoder_of(model)
    encoder = keras.Model(encoder.inputs, encoder.output)
    names = [str(i) for i in range(NUM_CLASSES)]
    reference = compare.Reference(
        encoder, searches.ModelSearch(head), [x], names
    )
    signature = signatures.signatures_of(5)[0]
    # As near as another program may round them.
    features = (1 + 1e-3) * reference.features()
    ids, scores = (y.numpy() for y in head.top_k(features, 5))
    labels = np.array([[names[i].encode() for i in row] for row in ids], object)
    answers = {"ids": ids, "scores": scores, "labels": labels}
    answers["features"] = features

    def check(answers):
        reference.check_features(answers["features"])
        reference.check(signature, answers, features)

    check(answers)
    wrong = answers[key].copy()
    wrong[2] = wrong[2][::-1] if key in ("ids", "labels") else 1.5 * wrong[2]
    with pytest.raises(RuntimeError, match=f"`{key}` of the export differ"):
        check({**answers, key: wrong})


def test_exports_load_without_tfxclass(tmp_path):
    """Keras' own export of six kinds of heads, after training; and ours."""
    heads = [
        tfxclass.layers.FullSoftmax(50),
        tfxclass.layers.SampledSoftmax(50, 9, similarity="cosine"),
        tfxclass.layers.Sparsemax(50),
        tfxclass.layers.AdaptiveSoftmax(50, cutoffs=[20]),
        tfxclass.layers.DropMax(50),
        tfxclass.layers.HierarchicalSoftmax(50, tree="balanced"),
    ]
    features = keras.Input((5,), name="x")
    model = keras.Model(features, [head(features) for head in heads])
    optimizer = tfxclass.optimizers.LazyAdam(1e-2)
    losses = [head.loss for head in heads]
    model.compile(optimizer, loss=losses, run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    model.fit(x, [np.arange(4)] * len(heads), verbose=0)
    model.export(tmp_path / "keras", verbose=False)
    own = make_model("sampled-cosine")
    folder = tfxclass.export.saved_model(own, tmp_path / "own", top_k=4)
    code = """if True:
        import json, sys
        sys.modules["tfxclass"] = None
        import tensorflow as tf
        x = tf.constant(json.loads(sys.argv[1]))
        keras_model, own = map(tf.saved_model.load, ["keras", sys.argv[2]])
        of_heads = keras_model.serve(x)
        best = own.signatures["serving_default"](x=x)
        print(json.dumps([
            [scores.numpy().tolist() for scores in of_heads],
            {key: value.numpy().tolist() for key, value in best.items()},
        ]))
    """
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(x.tolist()), folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    of_heads, best = json.loads(done.stdout)
    assert len(of_heads) == len(heads)
    for scores, expected in zip(of_heads, model(x)):
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
    assert_equals_live(best, own, x, 4)


@pytest.mark.parametrize("logit", [-0.1, -0.3, -2.7])
def test_sums_of_many_blocks_keep_what_they_lose(logit):
    """A float32 sum of 2,000 blocks is off by 1e-5; this one is not."""
    size, count = 16, 2_000
    logits = np.full([1, size * count], logit, "float32")
    logits[0, 0] = 0.0  # Exponentials are of differences to the greatest.
    exact = np.log(np.sum(np.exp(logits.astype("float64"))))
    logits = tf.constant(logits)

    @tf.function
    def best():
        return stock_search.best_of_blocks(
            lambda start, size: logits[:, start : start + size],
            tf.constant(1),
            size * count,
            1,
            block=size,
        )

    assert abs(best().logsumexp[0, 0] - exact) < 2e-6


def test_batch_of_any_size(tmp_path):
    folder = tfxclass.export.saved_model(make_model(), tmp_path, top_k=3)
    for batch in (0, 1, 17):
        answers = ask(folder, x=np.ones((batch, 5), "float32"))
        assert answers["ids"].shape == (batch, 3)
        assert answers["scores"].shape == (batch, 3)


def test_functional_model_with_several_inputs_and_labels_input(tmp_path):
    a = keras.Input((2,), name="a-first")
    b = keras.Input((3,), name="B", dtype="int32")
    y = keras.Input((), dtype="int64", name="y")
    features = keras.layers.Concatenate()([keras.ops.cast(b, "float32"), a])
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    model = keras.Model([a, b, y], head(features, labels=y))
    examples = {"B": [[1, 2, 3]], "a-first": [[4.0, 5.0]]}
    folder = tfxclass.export.saved_model(
        model, tmp_path, example_inputs=examples
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    assert set(served.structured_input_signature[1]) == {"a_first", "B"}
    graph = checks.meta_graph(folder)
    assert set(graph.signature_def["serving_default"].inputs) == {
        "a-first",
        "B",
    }


def test_text_in_labels_out(tmp_path):
    model = make_text_model(NUM_CLASSES, ["sample", "text", "zwei"])
    names = [f"name {i} \u00e9" for i in range(NUM_CLASSES)]
    folder = tfxclass.export.saved_model(model, tmp_path, labels=names)
    texts = tf.constant(["text zwei", "unseen", ""])
    answers = ask(folder, text=texts)
    assert_equals_live(answers, model, texts, 10)
    assert answers["labels"].shape == (3, 10)
    wanted = [[names[i].encode() for i in row] for row in answers["ids"]]
    assert answers["labels"].tolist() == wanted


def test_labels_are_an_asset_and_no_constant(tmp_path):
    source = tmp_path / "names.txt"
    names = [f"a rather long name {i}" for i in range(20_000)]
    source.write_text("\n".join(names), encoding="utf-8")
    model = make_model(num_classes=20_000)
    folder = tfxclass.export.saved_model(model, tmp_path, labels=source)
    asset = os.path.join(folder, "assets", "labels.txt")
    with open(asset, encoding="utf-8") as f:
        assert f.read().splitlines() == names
    # 20,000 names are 490 kB, 20,000 rows 640 kB.
    size = os.path.getsize(os.path.join(folder, "saved_model.pb"))
    assert size < 100_000, size


def test_table_and_module_of_a_layer_are_found():
    class Lookup(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            values = tf.lookup.KeyValueTensorInitializer(["a"], [1.0])
            self.table = tf.lookup.StaticHashTable(values, 0.0)
            self.module = tf.Module()
            self.module.factor = tf.Variable(2.0)

        def call(self, x):
            return self.table.lookup(x) * self.module.factor

    layer = Lookup()
    x = keras.Input((2,), dtype="string")
    found = signatures.resources_of(keras.Model(x, layer(x)))
    assert any(thing is layer.table for thing in found)
    assert any(thing is layer.module.factor for thing in found)


@pytest.mark.parametrize("name", ["full-dot", "full-cosine"])
def test_weights_are_in_the_file_once(name, tmp_path):
    model = make_model(name, num_classes=5_000)
    # Optimizer slots stay behind.
    model.compile("adam", loss=model.layers[-1].loss)
    model.optimizer.build(model.trainable_variables)
    folder = tfxclass.export.saved_model(model, tmp_path)
    variables = tf.train.list_variables(
        os.path.join(folder, "variables", "variables")
    )
    shapes = sorted(tuple(shape) for _, shape in variables if shape)
    assert shapes == [(1, DIM, 5_000), (5, DIM), (DIM,)]
    size = os.path.getsize(
        os.path.join(folder, "variables", "variables.data-00000-of-00001")
    )
    weights = 4 * (5_000 * DIM + 5 * DIM + DIM)
    assert weights <= size < weights + 5_000
    pb = os.path.getsize(os.path.join(folder, "saved_model.pb"))
    assert pb < 100_000, pb


def test_cosine_export_does_not_normalize_rows(tmp_path):
    model = make_model("full-cosine")
    folder = tfxclass.export.saved_model(model, tmp_path)
    path = os.path.join(folder, "variables", "variables")
    shapes = dict(tf.train.list_variables(path))
    (name,) = [n for n, s in shapes.items() if s == [1, DIM, NUM_CLASSES]]
    (columns,) = tf.train.load_variable(path, name)
    np.testing.assert_allclose(np.linalg.norm(columns, axis=0), 1.0, rtol=1e-6)


def test_versions_count_up(tmp_path):
    (tmp_path / "not-a-version").mkdir()
    (tmp_path / "7").mkdir()
    model = make_model()
    export = tfxclass.export.saved_model
    assert export(model, tmp_path, verify=False) == str(tmp_path / "8")
    assert export(model, str(tmp_path), verify=False) == str(tmp_path / "9")
    assert sorted(os.listdir(tmp_path)) == ["7", "8", "9", "not-a-version"]
    umask = os.umask(0)
    os.umask(umask)
    # A server of another user reads it.
    assert os.stat(tmp_path / "8").st_mode & 0o777 == 0o777 & ~umask


def test_first_version_in_a_new_folder(tmp_path):
    path = tmp_path / "models" / "products"
    folder = tfxclass.export.saved_model(make_model(), path, verify=False)
    assert folder == str(path / "1")


def test_a_folder_of_another_export_is_refused(tmp_path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ValueError, match="'model.onnx', an ONNX model"):
        tfxclass.export.saved_model(make_model(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_folder_is_refused_before_the_search_is_made(tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("made")

    monkeypatch.setattr(tfxclass.export.InvertedLists, "build", never)
    (tmp_path / "tagger.json").touch()
    with pytest.raises(ValueError, match="'tagger.json', a saved Tagger"):
        tfxclass.export.saved_model(
            make_model(),
            tmp_path,
            search=tfxclass.export.InvertedLists(4, 2, 0.1),
        )


def test_arrays_of_ones_own_beside_versions_are_let_be(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros(3))
    folder = tfxclass.export.saved_model(make_model(), tmp_path, verify=False)
    assert folder == str(tmp_path / "1")
    vectors = tmp_path / "vectors"
    tfxclass.export.vectors(make_model(), vectors)
    with pytest.raises(ValueError, match="'vectors.json', exported class"):
        tfxclass.export.saved_model(make_model(), vectors, verify=False)


def test_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args):
        raise RuntimeError("no")

    monkeypatch.setattr(checks, "check_ops", fail)
    with pytest.raises(RuntimeError, match="no"):
        tfxclass.export.saved_model(make_model(), tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []


class CustomOp(keras.layers.Layer):
    """A layer of an op that TensorFlow does not have."""

    def call(self, x):
        empty = softmax.empty_stats(tf.shape(x)[0])
        top, _ = softmax.library.ops.tfxclass_softmax_block_stats(
            x,
            tf.fill([tf.shape(x)[0], 1], tf.constant(-1, tf.int64)),
            tf.zeros([tf.shape(x)[0], 1]),
            tf.zeros([], tf.int64),
            *empty,
        )
        return x + top[:, tf.newaxis]

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("verify", [True, False])
def test_custom_op_is_refused_by_name(tmp_path, verify):
    head = make_head("full-dot")
    model = keras.Sequential([keras.Input((5,)), CustomOp(), head])
    with pytest.raises(ValueError, match="Tfxclass>SoftmaxBlockStats"):
        tfxclass.export.saved_model(model, tmp_path / "m", verify=verify)
    assert os.listdir(tmp_path) == []


def test_an_op_that_calls_python_is_refused(tmp_path):
    """It runs in this process, and in no server."""

    class Doubled(keras.layers.Layer):
        def call(self, x):
            y = tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
            return tf.ensure_shape(y, x.shape)

    head = make_head("full-dot")
    model = keras.Sequential([keras.Input((5,)), Doubled(), head])
    with pytest.raises(ValueError, match="graph with: .*PyFunc"):
        tfxclass.export.saved_model(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_all_ops_of_a_library_are_known_by_name():
    """As the ops of TensorFlow Text are, some of which have a namespace."""
    names = dir(tf.load_op_library(library.LIBRARY))
    assert "Tfxclass_SoftmaxBlockStats" in names


def test_ops_of_tensorflow_text_are_exported_and_served(tmp_path):
    text = pytest.importorskip("tensorflow_text")

    @keras.saving.register_keras_serializable("tests")
    class Lengths(keras.layers.Layer):
        """How long the first words are, float32 [batch, 2]."""

        def call(self, texts):
            words = text.WhitespaceTokenizer().tokenize(texts)
            lengths = tf.strings.length(words).to_tensor(shape=[None, 2])
            return tf.cast(lengths, tf.float32)

        def compute_output_shape(self, shape):
            return (shape[0], 2)

    x = keras.Input((), dtype="string", name="text")
    model = keras.Model(x, make_head("full-dot")(Lengths()(x)))
    folder = tfxclass.export.saved_model(
        model, tmp_path / "m", example_inputs=np.array(["a bird", "of prey"])
    )
    # The development server has them without any import of them.
    code = """if True:
        import sys
        from tfxclass_serve.server import Server
        server = Server(sys.argv[1])
        server.load()
        assert "tensorflow_text" not in sys.modules
        print([v.state for v in server.models._versions["m"].values()])
    """
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(folder)],
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[30]", done.stderr


def test_failure_of_the_loader_is_told(tmp_path):
    # Out of range for the embedding, at run time.
    x = keras.Input((3,), dtype="int32", name="x")
    features = keras.layers.Flatten()(keras.layers.Embedding(1, DIM)(x))
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    model = keras.Model(x, head(features))
    with pytest.raises(RuntimeError, match="(?s)not in .0, 1.*example_inputs"):
        tfxclass.export.saved_model(model, tmp_path)
    assert os.listdir(tmp_path) == []
    tfxclass.export.saved_model(model, tmp_path, example_inputs=[[0, 0, 0]])


@pytest.mark.parametrize("key", ["ids", "scores", "labels"])
def test_other_answers_are_refused(key, tmp_path, monkeypatch):
    model = make_model()
    names = [str(i) for i in range(NUM_CLASSES)]
    run = tf.compat.v1.Session.run

    def tampered(*args, **options):
        answers = run(*args, **options)
        if not isinstance(answers, dict) or key not in answers:
            return answers
        changed = answers[key].copy()
        changed[1, 2] = {"ids": -1, "scores": 0.5, "labels": b"?"}[key]
        return {**answers, key: changed}

    monkeypatch.setattr(tf.compat.v1.Session, "run", tampered)
    with pytest.raises(RuntimeError, match=f"`{key}` of the export differ"):
        tfxclass.export.saved_model(model, tmp_path, labels=names)


@pytest.mark.parametrize(
    "ids, is_same",
    [
        ([1, 2, 3, 4], True),
        ([2, 1, 3, 4], True),  # 1 and 2 are tied.
        ([9, 2, 3, 4], False),
        ([1, 3, 2, 4], False),
        ([1, 2, 3, 9], True),  # May be tied with one left out.
        ([1, 2, 9, 4], False),
    ],
)
def test_only_tied_classes_may_change_places(ids, is_same):
    scores = np.array([[0.4, 0.4, 0.1, 0.05]], "float32")
    expected = {"ids": np.array([[1, 2, 3, 4]]), "scores": scores}
    answers = {"ids": np.array([ids]), "scores": scores}
    if is_same:
        compare.check(answers, expected, "softmax")
        return
    with pytest.raises(RuntimeError, match="`ids`"):
        compare.check(answers, expected, "softmax")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"top_k": 0}, "`top_k` must be a positive integer. Received: 0"),
        (
            {"top_k": NUM_CLASSES + 1},
            "`top_k` must.* top_k=301 with num_classes=300",
        ),
        ({"labels": True}, "`labels` must be a list of names.* True"),
        ({"labels": ["a"]}, "1 names with num_classes=300"),
        ({"labels": ["a\nb"] * NUM_CLASSES}, "one line.*'a.nb' for class 0"),
        ({"labels": ["a\r"] * NUM_CLASSES}, "one line.*'a.r' for class 0"),
        ({"labels": ["a\0"] * NUM_CLASSES}, "without NUL.*a.x00' for class 0"),
        ({"labels": ["\ud800"] * NUM_CLASSES}, "lone.*ud800' for class 0"),
        ({"labels": ["a", ""] * 150}, "not empty, .* Received: '' for class 1"),
        (
            {"labels": ["a", "x\ud800"] * 150},
            r"lone surrogates .* Received: 'x.ud800' for class 1",
        ),
        ({"labels": range(NUM_CLASSES)}, "must be strings. Received: 0 .int"),
        ({"example_inputs": {"z": 1}}, r"inputs \['x'\]. Received: \['z'\]"),
        ({"example_inputs": ["a"]}, "must be float32 for input 'x'"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tfxclass.export.saved_model(make_model(), tmp_path / "m", **arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("as_dict", [False, True])
def test_top_k_takes_the_inputs_of_the_model(as_dict):
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    features = keras.layers.Concatenate()([a, b])
    inputs = {"a": a, "b": b} if as_dict else [a, b]
    model = keras.Model(inputs, make_head("full-dot")(features))
    x = [np.ones((2, 2), "float32"), np.ones((2, 3), "float32")]
    x = dict(zip("ab", x)) if as_dict else x
    # Warnings are errors here.
    ids, _ = tfxclass.top_k(model, 3).predict(x, verbose=0)
    assert ids.shape == (2, 3)


def test_path_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="`path` must be a folder"):
        tfxclass.export.saved_model(make_model(), path)


def test_bad_models(tmp_path):
    export = tfxclass.export.saved_model
    with pytest.raises(ValueError, match="exactly one head"):
        export(keras.Sequential([keras.layers.Dense(3)]), tmp_path)
    with pytest.raises(ValueError, match="must be built"):
        export(keras.Sequential([make_head("full-dot")]), tmp_path)
    x = keras.Input((5,), name="a name")
    model = keras.Model(x, make_head("full-dot")(x))
    with pytest.raises(ValueError, match="letters, digits.*'a name'"):
        export(model, tmp_path)


@pytest.mark.parametrize(
    ("export", "options"),
    [("saved_model", {"top_k": 3}), ("onnx", {"top_k": 3}), ("vectors", {})],
)
def test_a_name_of_two_classes_is_refused(tmp_path, export, options):
    names = ["a", "same", "same"]
    head = tfxclass.layers.FullSoftmax(3)
    model = keras.Sequential([keras.Input([4]), head])
    with pytest.raises(ValueError, match="`labels` must be distinct"):
        getattr(tfxclass.export, export)(
            model, tmp_path / "m", labels=names, **options
        )
    with pytest.raises(ValueError, match="`class_names` must be distinct"):
        head.class_names = names
    # The name of a removed class may be given to another one.
    model = tfxclass.remove_classes(model, [1])
    tfxclass.export.vectors(model, tmp_path / "m", names)
    assert (tmp_path / "m/labels.txt").read_text() == "a\nsame\n"
