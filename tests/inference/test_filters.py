"""Questions that name the classes that are no answers, or that may be."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass import layers

CLASSES, DIM, BATCH, K = 60, 8, 9, 4
HEADS = {
    "full": lambda: layers.FullSoftmax(CLASSES, use_bias=True),
    "cosine": lambda: layers.FullSoftmax(CLASSES, similarity="cosine"),
    "sigmoid": lambda: layers.FullSoftmax(CLASSES, loss="sigmoid"),
    "removed": lambda: layers.FullSoftmax(CLASSES, removed=[0, 3, 59]),
    "sharded": lambda: layers.ShardedSoftmax(CLASSES),
    "adaptive": lambda: layers.AdaptiveSoftmax(
        CLASSES, cutoffs=[20, 40], removed=[8, 30]
    ),
    "blocks": lambda: layers.DifferentiatedSoftmax(
        CLASSES, blocks=[(20, 5), (40, 3)]
    ),
    "dropmax": lambda: layers.DropMax(CLASSES),
    "samples": lambda: layers.DropMax(
        CLASSES, mode_options={"predict_samples": 3}
    ),
    "sparsemax": lambda: layers.Sparsemax(CLASSES, activation=None),
    "tree": lambda: layers.HierarchicalSoftmax(CLASSES, "balanced"),
    "logits": lambda: layers.FullSoftmax(CLASSES, activation=None),
    "sampled": lambda: layers.SampledSoftmax(CLASSES, 9, removed=[8]),
    "projected": lambda: layers.ProjectedSoftmax(CLASSES, 5),
    "groups": lambda: layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[20, 40], projection_dims=[5, 3]
    ),
}


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(3)


def make_model(kind="full"):
    head = HEADS[kind]()
    model = keras.Sequential([keras.Input([DIM], name="x"), head])
    model.run_eagerly = True
    random = np.random.default_rng(1)
    for variable in head.trainable_variables:
        variable.assign(random.normal(size=variable.shape))
    return model


def questions(width=5, seed=2):
    random = np.random.default_rng(seed)
    x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    ids = random.integers(-1, CLASSES, (BATCH, width))
    ids[0] = -1
    ids[1] = ids[1, 0]
    return x, ids


def best_of(scores, is_allowed, k):
    """NumPy oracle: `(ids, scores)` of the allowed classes, best first."""
    ids = np.full((len(scores), k), -1)
    found = np.zeros((len(scores), k), np.float32)
    for i, row in enumerate(is_allowed):
        classes = np.flatnonzero(row)
        best = classes[np.argsort(-scores[i, classes], kind="stable")][:k]
        ids[i, : len(best)], found[i, : len(best)] = best, scores[i, best]
    return ids, found


def allowed(head, ids, is_only):
    named = np.zeros((len(ids), CLASSES), bool)
    for row, classes in zip(named, ids):
        row[classes[classes >= 0]] = True
    is_allowed = named if is_only else ~named
    is_allowed[:, head.removed] = False
    return is_allowed


@pytest.mark.parametrize("kind", HEADS)
def test_excluded_classes_are_no_answers(kind):
    model = make_model(kind)
    x, ids = questions()
    scores = model(x).numpy()
    # The best ones of a row are among those that it excludes.
    ids[2] = np.argsort(-scores[2])[:5]
    best = tfxclass.top_k(model, K, exclude=True)
    assert [i.name for i in best.inputs] == ["x", "exclude_ids"]
    everything = np.tile(np.arange(CLASSES), (BATCH, 1))
    for named in (ids, ids[:, :0], everything, everything[:, 2:]):
        found = best([x, named])
        is_allowed = allowed(model.layers[-1], named, False)
        expected = best_of(scores, is_allowed, K)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)
    check_ids_out_of_range(best, x)


def check_ids_out_of_range(best, x):
    for bad in (CLASSES, -2):
        ids = np.full((BATCH, 2), bad)
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(bad)):
            best([x, ids])


@pytest.mark.parametrize("kind", HEADS)
def test_only_the_given_classes_are_answers(kind):
    model = make_model(kind)
    head = model.layers[-1]
    x, ids = questions(width=12)
    ids[3, 3:] = -1
    best = tfxclass.top_k(model, K, only=True)
    check_ids_out_of_range(best, x)
    assert np.all(best([x, ids[:, :0]])[0].numpy() == -1)
    found = best([x, ids])
    scores = model(x).numpy()
    is_allowed = allowed(head, ids, True)
    if kind not in ("sigmoid", "sparsemax", "tree", "logits"):
        scores = np.where(is_allowed, scores, 0)
        total = scores.sum(axis=1, keepdims=True)
        scores = scores / np.maximum(total, 1e-30)
    expected = best_of(scores, is_allowed, K)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)


BOOSTED = ["full", "cosine", "sigmoid", "removed", "logits", "sampled"]


def boosted(model, x, ids, boost):
    """NumPy oracle: scores of all classes if those of `ids` were raised."""
    head = model.layers[-1]
    logits = head.logits(x).numpy().astype(np.float64)
    raised = allowed(head, ids, True)
    logits = head.answer_scale * (logits + boost * raised)
    if head.activation == "sigmoid":
        return 1 / (1 + np.exp(-logits))
    if head.activation is None:
        return logits
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", BOOSTED)
def test_logits_of_named_classes_are_raised(kind):
    model = make_model(kind)
    x, ids = questions(width=12)
    best = tfxclass.top_k(model, K, boost=2.5)
    assert [i.name for i in best.inputs] == ["x", "boost_ids"]
    everything = np.tile(np.arange(CLASSES), (BATCH, 1))
    is_answer = allowed(model.layers[-1], everything, True)
    for named in (ids, ids[:, :0], everything):
        found = best([x, named])
        expected = best_of(boosted(model, x, named, 2.5), is_answer, K)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)
    check_ids_out_of_range(best, x)


def test_a_file_and_an_export_that_boost(tmp_path):
    model, signatures = exported("removed", tmp_path, boost=3.0)
    x, ids = questions()
    answers = signatures["boost"](x=tf.constant(x), boost_ids=ids)
    best = tfxclass.top_k(model, K, boost=3.0)
    expected = best([x, ids])
    np.testing.assert_array_equal(answers["ids"], expected[0])
    np.testing.assert_allclose(answers["scores"], expected[1], rtol=1e-4)
    path = str(tmp_path / "best.keras")
    best.save(path)
    again, _ = keras.saving.load_model(path)([x, ids])
    np.testing.assert_array_equal(again, expected[0])


def test_bad_boosts():
    model = make_model()
    with pytest.raises(ValueError, match="Give one of"):
        tfxclass.top_k(model, K, exclude=True, boost=1.0)
    for bad in (0, -1.0, float("nan"), True, "a"):
        with pytest.raises(ValueError, match="finite number > 0"):
            tfxclass.top_k(model, K, boost=bad)
    with pytest.raises(ValueError, match="HierarchicalSoftmax"):
        tfxclass.top_k(make_model("tree"), K, boost=1.0)


def test_predict_of_arrays_of_several_widths_and_of_a_dict():
    model = make_model()
    model.run_eagerly = False
    best = tfxclass.top_k(model, K, exclude=True)
    for width in (0, 1, 70):
        x, ids = questions(max(width, 1))
        ids = ids[:, :width]
        found, _ = best.predict([x, ids], batch_size=3, verbose=0)
        is_allowed = allowed(model.layers[-1], ids, False)
        expected, _ = best_of(model(x).numpy(), is_allowed, K)
        np.testing.assert_array_equal(found, expected)
    inputs = {"x": keras.Input([DIM], name="x")}
    named = keras.Model(inputs, HEADS["full"]()(inputs["x"]))
    best = tfxclass.top_k(named, K, exclude=3)
    x, ids = questions(3)
    found, _ = best.predict({"x": x, "exclude_ids": ids}, verbose=0)
    assert found.shape == (BATCH, K)


def test_a_row_without_ids_has_no_answer_among_them():
    x, ids = questions()
    found, scores = tfxclass.top_k(make_model(), K, only=True)(
        [x, np.full_like(ids, -1)]
    )
    assert np.all(found.numpy() == -1) and np.all(scores.numpy() == 0)


def test_positions_share_the_ids_of_their_row():
    head = HEADS["full"]()
    sequences = keras.Input([3, DIM], name="x")
    model = keras.Model(sequences, head(sequences))
    x = np.random.default_rng(1).normal(size=(2, 3, DIM)).astype(np.float32)
    ids = np.array([[1, 2, 3], [4, 5, -1]])
    for arguments in ({"exclude": True}, {"only": True}):
        found, _ = tfxclass.top_k(model, 2, **arguments)([x, ids])
        is_allowed = allowed(head, ids, "only" in arguments)
        for t in range(3):
            expected, _ = best_of(head(x[:, t]).numpy(), is_allowed, 2)
            np.testing.assert_array_equal(found[:, t], expected)


def test_a_threshold_and_a_file(tmp_path):
    model = make_model()
    x, ids = questions()
    best = tfxclass.top_k(model, K, threshold=0.2, exclude=True)
    found, scores = best([x, ids])
    assert np.all((scores.numpy() >= 0.2) == (found.numpy() >= 0))
    path = str(tmp_path / "best.keras")
    best.save(path)
    again, _ = keras.saving.load_model(path)([x, ids])
    np.testing.assert_array_equal(again, found)


def test_bad_filters():
    model = make_model()
    with pytest.raises(ValueError, match="Give one of `exclude`"):
        tfxclass.top_k(model, K, exclude=True, only=True)
    with pytest.raises(ValueError, match="`exclude` must be a positive"):
        tfxclass.top_k(model, K, exclude=0)
    with pytest.raises(ValueError, match=r"`only` must be.*Received: \[3, 5\]"):
        tfxclass.top_k(model, K, only=[3, 5])
    named = keras.Sequential(
        [keras.Input([DIM], name="only_ids"), HEADS["full"]()]
    )
    with pytest.raises(ValueError, match="only_ids"):
        tfxclass.top_k(named, K, only=True)


def test_widths_that_vary_have_a_limit():
    head = layers.FullSoftmax(100, use_bias=True)
    model = keras.Sequential([keras.Input([DIM], name="x"), head])
    best = tfxclass.top_k(model, K, exclude=True)
    spec = tf.TensorSpec([None, None], tf.int64)
    answer = tf.function(
        lambda x, ids: best([x, ids]),
        input_signature=[tf.TensorSpec([None, DIM]), spec],
    )
    x, ids = questions(64)
    found, _ = answer(x, ids)
    np.testing.assert_array_equal(found, best([x, ids])[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="exclude=p"):
        answer(x, questions(65)[1])


@pytest.mark.parametrize("width", [10, 80])
def test_a_given_width_is_the_limit(width):
    model = keras.Sequential([keras.Input([DIM]), layers.FullSoftmax(200)])
    best = tfxclass.top_k(model, K, exclude=width)
    best = keras.models.clone_model(best)
    # From the second width on, Keras traces a function for any width.
    for columns in (width, width - 1, width - 2):
        x, ids = questions(columns)
        found, _ = best.predict([x, ids], verbose=0)
        assert not np.any(found[:, :, None] == ids[:, None])
    message = f"(?s)at most {width} ids.*exclude=p.*{width + 1}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        best.predict([x, questions(width + 1)[1]], verbose=0)


def exported(kind, tmp_path, **options):
    model = make_model(kind)
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=K, **options)
    return model, tf.saved_model.load(folder).signatures


def check_exported(signatures, filter_name, x, ids, best):
    """That a signature answers as a model that `top_k` made."""
    inputs = {"x": tf.constant(x), f"{filter_name}_ids": ids}
    answers, expected = signatures[filter_name](**inputs), best([x, ids])
    np.testing.assert_array_equal(answers["ids"], expected[0])
    np.testing.assert_allclose(answers["scores"], expected[1], rtol=1e-5)


# "full" and "removed" have the same search; a tree has no `only`.
@pytest.mark.parametrize(
    "kind",
    quick(
        ["full", "removed", "cosine", "adaptive", "blocks", "dropmax"],
        ["removed", "adaptive", "blocks"],
    ),
)
def test_an_export_excludes_and_answers_among_given_classes(kind, tmp_path):
    """Proven through TensorFlow's C API; here asked once more."""
    model, signatures = exported(
        kind,
        tmp_path,
        exclude=7,
        only=True,
        threshold=1e-4,
        warmup_batch_sizes=[2],
    )
    x, ids = questions()
    for name in ("exclude", "only"):
        best = tfxclass.top_k(model, K, threshold=1e-4, **{name: True})
        check_exported(signatures, name, x, ids, best)
    with pytest.raises(tf.errors.InvalidArgumentError, match="7 ids a row"):
        signatures["exclude"](x=tf.constant(x), exclude_ids=questions(8)[1])


@pytest.mark.parametrize(
    ("kind", "name"), [("tree", "exclude"), ("samples", "only")]
)
def test_an_export_with_one_filter(kind, name, tmp_path):
    model, signatures = exported(kind, tmp_path, **{name: True})
    best = tfxclass.top_k(model, K, **{name: True})
    check_exported(signatures, name, *questions(), best)


@pytest.fixture(scope="module", params=quick(["removed", "full"], ["removed"]))
def lists(request, tmp_path_factory):
    """A model, and the signatures of its export with inverted lists."""
    keras.utils.set_random_seed(3)
    search = tfxclass.export.InvertedLists(num_lists=6, min_recall=0.5)
    return exported(
        request.param,
        tmp_path_factory.mktemp("lists"),
        search=search,
        exclude=True,
        only=True,
        full_scores=True,
    )


def test_lists_exclude(lists):
    model, signatures = lists
    x, ids = questions(20)
    answers = signatures["exclude"](x=tf.constant(x), exclude_ids=ids)
    found = answers["ids"].numpy()
    is_allowed = allowed(model.layers[-1], ids, False)
    assert np.all(is_allowed[np.arange(BATCH)[:, None], found])
    # So few classes are all read.
    expected, _ = best_of(model(x).numpy(), is_allowed, K)
    np.testing.assert_array_equal(found, expected)
    scores = signatures["full_scores"](x=tf.constant(x))["scores"]
    np.testing.assert_allclose(scores, model(x), rtol=1e-5, atol=1e-7)


def test_lists_answer_among_given_classes(lists):
    """With the scores that they have in an exact search."""
    model, signatures = lists
    best = tfxclass.top_k(model, K, only=True)
    for width in (5, 0, 70):
        x, ids = questions(max(width, 1))
        check_exported(signatures, "only", x, ids[:, :width], best)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{CLASSES}"):
        signatures["only"](x=tf.constant(x), only_ids=ids + CLASSES)


@pytest.mark.parametrize("kind", ["removed", "logits", "sigmoid"])
def test_onnx_excludes(kind, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = make_model(kind)
    path = tfxclass.export.onnx(model, tmp_path / "onnx", top_k=K, exclude=True)
    session = runtime.InferenceSession(path)
    best = tfxclass.top_k(model, K, exclude=True)
    check_onnx(session, best, "exclude_ids")


def check_onnx(session, best, name):
    for width in (0, 1, 5, 70):
        x, ids = questions(max(width, 1))
        ids = ids[:, :width]
        found = session.run(["ids", "scores"], {"x": x, name: ids})
        expected = best([x, ids])
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    quick(["removed", "logits", "sigmoid", "cosine"], ["removed"]),
)
def test_onnx_answers_among_given_classes(kind, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = make_model(kind)
    path = tfxclass.export.onnx(model, tmp_path / "onnx", top_k=K, only=True)
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(path)
    best = tfxclass.top_k(model, K, only=True)
    check_onnx(session, best, "only_ids")
    x, ids = questions()
    for bad in (CLASSES, -2):
        ids[1, 2] = bad
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(["ids"], {"x": x, "only_ids": ids})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("full", {"exclude": -1}, "`exclude` must be a positive"),
        ("tree", {"only": True}, "answers with a beam"),
    ],
)
def test_bad_filters_of_an_export(kind, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        exported(kind, tmp_path, **options)


def sequence_model():
    """Answers to the mean of items `[batch, 5]`; 0 is padding."""
    seen = keras.Input([5], dtype="int64", name="seen")
    items = keras.layers.Embedding(CLASSES, DIM)(seen)
    features = keras.layers.GlobalAveragePooling1D()(items)
    head = layers.FullSoftmax(CLASSES, removed=[0])
    model = keras.Model(seen, head(features))
    head.kernel.assign(np.random.default_rng(0).normal(size=(CLASSES, DIM)))
    return model


def test_what_an_input_names_is_no_answer():
    model = sequence_model()
    seen = np.random.default_rng(1).integers(0, CLASSES, (BATCH, 5))
    named = tfxclass.top_k(model, K, exclude=True).predict([seen, seen])
    best = tfxclass.top_k(model, K, exclude=model.inputs[0])
    assert len(best.inputs) == 1
    for expected, found in zip(named, best.predict(seen)):
        np.testing.assert_array_equal(found, expected)


def test_what_is_computed_from_an_input_is_no_answer():
    model = sequence_model()
    seen = np.random.default_rng(1).integers(0, CLASSES, (BATCH, 5))
    latest = model.inputs[0][:, -2:]
    named, _ = tfxclass.top_k(model, K, exclude=2)([seen, seen[:, -2:]])
    best = tfxclass.top_k(model, K, exclude=latest)
    np.testing.assert_array_equal(best(seen)[0], named)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (lambda x: x[:, 0], "shape"),
        (lambda x: keras.ops.cast(x, "float32"), "dtype=float32"),
        (lambda x: keras.Input([5], dtype="int64"), "inputs of the model"),
    ],
)
def test_a_tensor_of_ids_must_fit(ids, message, tmp_path):
    model = sequence_model()
    exclude = ids(model.inputs[0])
    with pytest.raises(ValueError, match=message):
        tfxclass.top_k(model, K, exclude=exclude)
    with pytest.raises(ValueError, match=message):
        tfxclass.export.saved_model(model, tmp_path, exclude=exclude)


def test_an_export_leaves_out_what_an_input_names(tmp_path):
    model = sequence_model()
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=K, exclude=model.inputs[0]
    )
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    seen = np.random.default_rng(1).integers(0, CLASSES, (BATCH, 5))
    best = tfxclass.top_k(model, K, exclude=True)([seen, seen])
    found = serve(seen=tf.constant(seen))
    np.testing.assert_array_equal(found["ids"], best[0])
    np.testing.assert_allclose(found["scores"], best[1], rtol=1e-5)
