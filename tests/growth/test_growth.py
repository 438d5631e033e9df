"""New rows, slots, samplers and names of a head that grows; bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.growth_contract import BATCH
from tests.support.growth_contract import CLASSES
from tests.support.growth_contract import DIM
from tests.support.growth_contract import NEW
from tests.support.growth_contract import GrowthContract
from tests.support.growth_contract import slots_of
from tests.support.growth_contract import small_data
from tests.support.growth_contract import small_model
from tests.support.growth_contract import trained
from tests.support.lsh import lsh_sampler
from tests.support.mixing import MixingSampler
from tfxclass import layers
from tfxclass import losses
from tfxclass import samplers
from tfxclass import trees
from tfxclass.trees import growing
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import Seen
from tfxclass.trees.class_means import directions
from tfxclass.trees.class_means import new_rows

NEW_DATA = small_data((CLASSES, CLASSES + NEW), seed=1)


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(3)


class TestFull(GrowthContract):
    def make_head(self, **options):
        return layers.FullSoftmax(CLASSES, use_bias=True, **options)

    def check_old_rows(self, old, new):
        was, now = (m.layers[-1].kernel.numpy() for m in (old, new))
        np.testing.assert_array_equal(now[:CLASSES], was)


@pytest.mark.slow
class TestCosineForest(GrowthContract):
    def make_head(self, **options):
        return layers.SelectiveSoftmax(
            CLASSES,
            sampler=samplers.HashingForestSampler(
                30, num_trees=3, leaf_size=5, seed=1
            ),
            similarity="cosine",
            seed=1,
            **options,
        )


class TestAuto(GrowthContract):
    def make_head(self, **options):
        return layers.SampledSoftmax(
            CLASSES, sampler=MixingSampler(30, seed=1), **options
        )


# Slow: an index is built again by the code of all samplers with an index, as in
# TestAuto.
@pytest.mark.slow
class TestLSH(GrowthContract):
    def make_head(self, **options):
        return layers.LSHSoftmax(
            CLASSES,
            sampler=lsh_sampler(30, num_hashes=3, num_tables=4, seed=1),
            seed=1,
            **options,
        )


def rows_of_means(features, labels, others):
    """NumPy oracle: what new classes have beside the other rows of the data."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    found = []
    for c in np.unique(labels):
        apart = features[labels == c].mean(0) - features[labels != c].mean(0)
        found.append(apart / np.linalg.norm(apart))
    common = others.mean(0)
    norm = np.median(np.linalg.norm(others - common, axis=1))
    return common + norm * np.stack(found)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_new_rows_are_made_of_means(similarity):
    head = layers.FullSoftmax(
        CLASSES, similarity=similarity, use_bias=similarity == "dot"
    )
    model = trained(head)
    new_x, new_y = NEW_DATA
    # Another label, and padding, change nothing.
    labels = np.stack([new_y, np.full(BATCH, 5), np.full(BATCH, -1)], axis=1)
    grown = tfxclass.add_classes(model, NEW, (new_x, labels), batch_size=7)
    features = model.layers[0](new_x).numpy()
    others = head.kernel.numpy()
    norms = np.linalg.norm(others, axis=1, keepdims=True)
    if similarity == "cosine":
        expected = rows_of_means(features, new_y, others / norms)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        expected *= np.median(norms)
    else:
        expected = rows_of_means(features, new_y, others)
        bias = grown.layers[-1].bias.numpy()
        np.testing.assert_array_equal(bias[:CLASSES], head.bias.numpy())
        np.testing.assert_allclose(bias[CLASSES:], np.median(head.bias.numpy()))
    found = grown.layers[-1].kernel.numpy()
    np.testing.assert_allclose(found[CLASSES:], expected, rtol=1e-4, atol=1e-6)


def shown(features, labels, num_new):
    """`ClassMeans` of classes below `num_new`."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    of_class = labels == np.arange(num_new)[:, None]
    sums = (of_class @ features).astype(np.float32)
    seen = Seen(
        len(features),
        len(np.unique(labels)),
        [features.sum(0)],
        [features.T @ features],
    )
    return ClassMeans([directions(sums)], of_class.sum(1), [sums], seen)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_new_rows_are_as_strong_as_the_others(similarity):
    """Rows that point half to where no feature is."""
    random = np.random.default_rng(0)
    labels = np.arange(600) // 10
    features = 3 + random.normal(size=(60, 8))[labels]
    features += 0.1 * random.normal(size=features.shape)
    features = np.pad(features, [[0, 0], [0, 1]])
    others = random.normal(size=(200, 9))
    others[:, 8] = np.linalg.norm(others[:, :8], axis=1)
    means = shown(features, labels, 40)
    found = new_rows(others, means, 0, similarity == "cosine")
    of_others = features[labels >= 40]
    of_others /= np.linalg.norm(of_others, axis=1, keepdims=True)
    spread = [
        np.median(np.std(of_others @ rows.T, axis=0))
        for rows in (found, others)
    ]
    if similarity == "cosine":
        norms = [np.linalg.norm(rows, axis=1) for rows in (found, others)]
        np.testing.assert_allclose(norms[0], np.median(norms[1]), rtol=1e-5)
    # 20 classes are a sample.
    np.testing.assert_allclose(*spread, rtol=0.25)
    own = np.sum(found[labels[:400]] * features[:400], axis=1)
    wrong = np.sum(found[(labels[:400] + 7) % 40] * features[:400], axis=1)
    assert np.mean(own > wrong) > 0.9


@pytest.mark.parametrize("kind", ["full", "wide nodes", "plt"])
def test_old_classes_are_still_found(kind):
    """Features that are positive have much in common."""
    random = np.random.default_rng(0)
    points = random.normal(size=(60, DIM))
    y = np.arange(2400) % 60
    x = points[y] + 0.2 * random.normal(size=(len(y), DIM))
    encoder = keras.layers.Dense(24, activation="relu")
    head = layers.FullSoftmax(CLASSES - 20)
    if kind != "full":
        vectors = points[: CLASSES - 20].astype(np.float32)
        tree = trees.clustered(vectors, arity=8, leaf_size=8, seed=0)
        mode = {"multi_label": "plt"} if kind == "plt" else {}
        head = layers.HierarchicalSoftmax(CLASSES - 20, tree=tree, **mode)
    model = keras.Sequential([keras.Input([DIM], name="x"), encoder, head])
    model.compile(tfxclass.optimizers.LazyAdam(0.02), loss=head.loss)
    is_old = y < 40
    model.fit(x[is_old], y[is_old], epochs=15, verbose=0)
    model = tfxclass.add_classes(model, 20, (x[~is_old], y[~is_old]))
    ids, _ = tfxclass.top_k(model, 1).predict(x, 512, verbose=0)
    is_right = ids[:, 0] == y
    least = 0.6 if kind == "full" else 0.2
    assert np.mean(is_right[is_old]) > 0.9
    assert np.mean(is_right[~is_old]) > least, np.mean(is_right[~is_old])


def test_a_class_alone_is_told():
    model = small_model(layers.FullSoftmax(CLASSES))
    x, _ = NEW_DATA
    with pytest.warns(UserWarning, match="one class alone"):
        tfxclass.add_classes(model, 1, (x, np.full(BATCH, CLASSES)))


def test_a_new_class_without_a_row_is_told():
    model = small_model(layers.FullSoftmax(CLASSES))
    x, y = small_data((CLASSES - 1, CLASSES + 1))
    with pytest.warns(UserWarning, match=f"1 new classes .*{CLASSES + 1}"):
        tfxclass.add_classes(model, 2, (x, y))


def test_labels_may_be_a_plain_list():
    model = trained(layers.FullSoftmax(CLASSES))
    new_x, new_y = NEW_DATA
    kernels = [
        tfxclass.add_classes(model, NEW, (new_x, y)).layers[-1].kernel.numpy()
        for y in (new_y, new_y.tolist())
    ]
    np.testing.assert_array_equal(*kernels)


@pytest.mark.parametrize("options", [None, {"predict_samples": 3}])
def test_a_class_that_dropmax_removed_has_probability_0(options):
    model = trained(layers.DropMax(CLASSES, mode_options=options))
    left = tfxclass.remove_classes(model, [3]).predict(NEW_DATA[0], verbose=0)
    assert not left[:, 3].any()
    np.testing.assert_allclose(left.sum(axis=1), 1, rtol=1e-5)


def test_rows_of_parts_are_of_their_own_queries():
    head = layers.DifferentiatedSoftmax(CLASSES, blocks=[(20, 5), (40, 3)])
    model = trained(head)
    # One class of each part: the first takes the place of a removed one.
    model = tfxclass.remove_classes(model, [4])
    new_x, _ = NEW_DATA
    new_y = np.arange(BATCH) % 2 * (CLASSES - 4) + 4
    grown = tfxclass.add_classes(model, 2, (new_x, new_y)).layers[-1]
    features = model.layers[0](new_x).numpy()
    for i, (at, part) in enumerate([(4, slice(0, 5)), (40, slice(5, 8))]):
        kernel = grown.kernels[i].numpy()
        others = np.delete(kernel, at, axis=0)
        expected = rows_of_means(features[:, part], new_y, others)[i]
        np.testing.assert_allclose(kernel[at], expected, rtol=1e-4, atol=1e-6)


def test_without_data_rows_are_the_initializer_s():
    model = trained(layers.FullSoftmax(CLASSES, kernel_initializer="ones"))
    grown = tfxclass.add_classes(model, NEW)
    assert np.all(grown.layers[-1].kernel.numpy()[CLASSES:] == 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"second_moment": "row", "slot_dtype": "bfloat16"},
        pytest.param({"second_moment": "row"}, marks=pytest.mark.slow),
        {"second_moment": "matrix"},
        {"gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_training_goes_on_as_without_new_classes(options):
    """Classes that weigh nothing in the loss change nothing of the others."""

    def run(grow):
        keras.utils.set_random_seed(3)
        head = layers.FullSoftmax(CLASSES, use_bias=True)
        optimizer = tfxclass.optimizers.LazyAdam(0.05, **options)
        model = trained(head, optimizer)
        if grow:
            model = tfxclass.add_classes(model, NEW)
            bias = model.layers[-1].bias
            bias.assign(
                tf.where(np.arange(CLASSES + NEW) < CLASSES, bias, -1e9)
            )
        x, y = small_data(seed=4)
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, shuffle=False)
        return model.layers[-1].kernel.numpy()[:CLASSES]

    np.testing.assert_allclose(run(True), run(False), rtol=1e-4, atol=1e-6)


def test_the_samples_of_training_are_not_drawn_again():
    head = layers.SampledSoftmax(CLASSES, 20, "uniform", seed=1)
    model = trained(head, tfxclass.optimizers.HeadAdam())
    fresh = layers.SampledSoftmax(CLASSES + NEW, 20, "uniform", seed=1)
    fresh.build((None, head.kernel.shape[1]))
    grown = tfxclass.add_classes(model, NEW).layers[-1]
    state, first = (np.asarray(x.sampler.random.state) for x in (grown, fresh))
    np.testing.assert_array_equal(state, head.sampler.random.state)
    assert (state != first).any()


def test_keras_optimizers_and_groups_keep_their_slots():
    head = layers.FullSoftmax(CLASSES)
    encoder = keras.layers.Dense(DIM)
    optimizer = tfxclass.optimizers.MultiOptimizer(
        [
            (keras.optimizers.Adam(0.01), encoder),
            (keras.optimizers.Adagrad(0.1), head),
        ]
    )
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    model.compile(optimizer, loss=head.loss)
    model.fit(*small_data(), verbose=0)
    grown = tfxclass.add_classes(model, NEW, NEW_DATA)
    before, after = (slots_of(m, "kernel") for m in (model, grown))
    (was,), (now,) = before.values(), after.values()
    np.testing.assert_array_equal(now[:CLASSES], was)
    # As Keras begins.
    np.testing.assert_allclose(now[CLASSES:], 0.1)
    for ours, theirs in zip(
        model.optimizer.variables, grown.optimizer.variables
    ):
        if ours.shape == theirs.shape:
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    grown.fit(*NEW_DATA, verbose=0)


def test_functional_model_with_labels_as_an_input():
    features = keras.Input([DIM], name="x")
    labels = keras.Input([], dtype="int64", name="y")
    head = layers.SampledSoftmax(CLASSES, 30)
    model = keras.Model([features, labels], head(features, labels=labels))
    model.compile(tfxclass.optimizers.LazyAdam(0.05))
    model.optimizer.build(model.trainable_variables)
    new_x, new_y = NEW_DATA
    grown = tfxclass.add_classes(model, NEW, NEW_DATA)
    assert [x.name for x in grown.inputs] == ["x", "y"]
    before = grown.evaluate([new_x, new_y], verbose=0)
    grown.fit([new_x, new_y], epochs=5, verbose=0)
    assert grown.evaluate([new_x, new_y], verbose=0) < before


def test_what_has_a_number_for_each_class_grows():
    counts = np.arange(1, CLASSES + 1.0)
    head = layers.SampledSoftmax(
        CLASSES,
        sampler=samplers.FrequencySampler(30, counts),
        loss_options=losses.LossOptions(
            class_weight=counts,
            propensities=1 / counts,
            class_counts=counts,
        ),
    )
    head.thresholds = np.linspace(0, 1, CLASSES)
    model = trained(head)
    grown = tfxclass.add_classes(model, NEW, NEW_DATA).layers[-1]
    rows = np.bincount(NEW_DATA[1] - CLASSES, minlength=NEW)
    for found in (grown.sampler.counts, grown.loss_options.class_counts):
        np.testing.assert_array_equal(found, [*counts, *rows])
    np.testing.assert_allclose(grown.thresholds[CLASSES:], 0.5)
    options = grown.loss_options
    np.testing.assert_allclose(options.class_weight[CLASSES:], 30.5)
    np.testing.assert_allclose(options.propensities[CLASSES:], 1 / CLASSES)


def test_names_keep_their_ids(tmp_path):
    names = [f"class {i}" for i in range(CLASSES)]
    head = layers.FullSoftmax(CLASSES, class_names=names)
    model = trained(head)
    left = tfxclass.remove_classes(model, [3])
    grown = tfxclass.add_classes(left, 2, labels=["class 3", "gr\u00fcn"])
    expected = [*names, "gr\u00fcn"]
    assert list(grown.layers[-1].class_names) == expected
    config = keras.saving.serialize_keras_object(grown.layers[-1])
    again = keras.saving.deserialize_keras_object(config)
    assert list(again.class_names) == expected
    folder = tfxclass.export.saved_model(grown, tmp_path, top_k=2)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(x=tf.constant(small_data()[0]))
    named = [[expected[i] for i in row] for row in answers["ids"].numpy()]
    assert named == [[x.decode() for x in r] for r in answers["labels"].numpy()]


def test_metrics_of_the_classes_grow():
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.Input([DIM]), head])
    metric = tfxclass.metrics.F1Score(head, k=2, average="macro")
    model.compile("adam", loss=head.loss, metrics=[metric])
    model.evaluate(*small_data(), verbose=0)
    grown = tfxclass.add_classes(model, NEW, NEW_DATA)
    assert len(grown.evaluate(*NEW_DATA, verbose=0)) == 2


BAD_ADDITIONS = {
    "count_0": (dict(count=0), "`count` must be a positive integer"),
    "count_half": (dict(count=1.5), "`count` must be a positive integer"),
    "no_labels": (dict(count=1), "no labels"),
    "few_labels": (dict(count=2, labels=["a"]), "1 names with count=2"),
    "known": (dict(count=1, labels=["0"]), "must be distinct.*'0'"),
    "twice": (dict(count=2, labels=["a", "a"]), "must be distinct.*'a'"),
    "one_array": (
        dict(count=1, labels=["a"], data=(NEW_DATA[0],)),
        "`data`",
    ),
}


@pytest.mark.parametrize("case", BAD_ADDITIONS)
def test_bad_additions(case):
    arguments, message = BAD_ADDITIONS[case]
    head = layers.FullSoftmax(CLASSES, class_names=map(str, range(CLASSES)))
    with pytest.raises(ValueError, match=message):
        tfxclass.add_classes(small_model(head), **arguments)


@pytest.mark.parametrize("name", ["", "a\nb", "x\ud800"])
def test_names_that_cannot_be_saved(name):
    with pytest.raises(ValueError, match="must be of one line each"):
        layers.FullSoftmax(2, class_names=["a", name])


def test_names_must_be_distinct():
    message = "distinct. Received: 'a' for the classes 0 and 2"
    with pytest.raises(ValueError, match=message):
        layers.FullSoftmax(4, class_names=["a", "b", "a", "b"])
    # The name of a removed class is free.
    model = small_model(layers.FullSoftmax(3, class_names=["a", "b", "c"]))
    left = tfxclass.remove_classes(model, [0, 1])
    grown = tfxclass.add_classes(left, 1, labels=["b"]).layers[-1]
    assert list(grown.class_names) == ["b", "b", "c"]
    config = keras.saving.serialize_keras_object(grown)
    again = keras.saving.deserialize_keras_object(config)
    assert list(again.class_names) == ["b", "b", "c"]


def test_labels_need_names_of_the_others():
    model = small_model(layers.FullSoftmax(CLASSES))
    with pytest.raises(ValueError, match="without class_names"):
        tfxclass.add_classes(model, 1, labels=["a"])


def test_data_of_classes_out_of_range():
    model = small_model(layers.FullSoftmax(CLASSES))
    x, y = NEW_DATA
    with pytest.raises(tf.errors.InvalidArgumentError, match="62"):
        tfxclass.add_classes(model, 2, (x, np.full_like(y, CLASSES + 2)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "one at least"),
        ([0.5], "`ids` must be integer class ids"),
        ([[1]], "integers of shape"),
        ([CLASSES], r"Received: \[60\]"),
        ([-1], r"Received: \[-1\]"),
        ([5, 6], r"not removed before. Received: \[5\]"),
        ([x for x in range(CLASSES) if x != 5], "must leave a class"),
    ],
)
def test_bad_removals(ids, message):
    model = small_model(layers.FullSoftmax(CLASSES, removed=[5]))
    with pytest.raises(ValueError, match=message):
        tfxclass.remove_classes(model, ids)


def test_what_removed_classes_exclude():
    options = losses.LossOptions(label_smoothing=0.1)
    model = small_model(layers.FullSoftmax(CLASSES, loss_options=options))
    with pytest.raises(ValueError, match="`label_smoothing`"):
        tfxclass.remove_classes(model, [1])
    model = small_model(layers.AdaptiveSoftmax(CLASSES, cutoffs=[50]))
    with pytest.raises(ValueError, match="in each cluster"):
        tfxclass.remove_classes(model, range(50, CLASSES))


def test_gradients_that_are_being_summed():
    optimizer = tfxclass.optimizers.LazyAdam(gradient_accumulation_steps=3)
    model = trained(layers.FullSoftmax(CLASSES), optimizer)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3"):
        tfxclass.add_classes(model, 1)


DESCRIPTIONS = np.random.default_rng(8).normal(size=(CLASSES, DIM))
DESCRIPTIONS = DESCRIPTIONS.astype(np.float32)


@pytest.mark.parametrize(
    "make_head",
    [
        lambda: layers.FullSoftmax(CLASSES, similarity="cosine"),
        lambda: layers.FullSoftmax(CLASSES),
        lambda: layers.AdaptiveSoftmax(CLASSES, cutoffs=[30], div_value=1),
        lambda: layers.HierarchicalSoftmax(CLASSES, "balanced"),
        lambda: layers.HierarchicalSoftmax(
            CLASSES, "balanced", multi_label="plt"
        ),
    ],
    ids=["cosine", "dot", "adaptive", "binary", "plt"],
)
def test_classes_are_found_by_their_texts(make_head):
    model = small_model(make_head())
    best = tfxclass.top_k(model, 1)
    begin, _ = best(DESCRIPTIONS)
    assert np.mean(begin[:, 0] == np.arange(CLASSES)) < 0.1
    assert tfxclass.initialize_classes(model, DESCRIPTIONS) is model
    found, _ = best(DESCRIPTIONS)
    # Trees, and the entries of clusters, decide for many classes at once.
    is_one = isinstance(model.layers[-1], layers.FullSoftmax)
    least = 0.9 if is_one else 0.12
    assert np.mean(found[:, 0] == np.arange(CLASSES)) >= least


def test_rows_are_the_features_of_the_texts():
    head = layers.FullSoftmax(CLASSES, similarity="cosine")
    model = small_model(head)
    before = head.kernel.numpy()
    # Class 1 has two texts, one of which is class 0's, too.
    labels = np.array([[0, 1], [1, -1], [5, -1]])
    tfxclass.initialize_classes(model, DESCRIPTIONS[:3], labels)
    rows = model.layers[0](DESCRIPTIONS[:3]).numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    both = rows[0] + rows[1]
    after = head.kernel.numpy()
    expected = [rows[0], both / np.linalg.norm(both), rows[2]]
    np.testing.assert_allclose(after[[0, 1, 5]], expected, rtol=1e-5)
    others = np.delete(np.arange(CLASSES), [0, 1, 5])
    np.testing.assert_array_equal(after[others], before[others])


def test_texts_of_a_model_that_reads_text():
    words = keras.layers.TextVectorization(output_mode="count")
    words.adapt(["small bird", "large cat", "green tree"])
    head = layers.FullSoftmax(3, similarity="cosine")
    text = keras.Input((), dtype="string")
    model = keras.Model(text, head(words(text)))
    names = ["small bird", "large cat", "green tree"]
    tfxclass.initialize_classes(model, names)
    ids, _ = head.top_k(words(["a tree", "the cat", "bird"]), 1)
    assert ids.numpy().ravel().tolist() == [2, 1, 0]
    data = tf.data.Dataset.from_tensor_slices((names, [1, 2, 0])).batch(2)
    tfxclass.initialize_classes(model, data)
    ids, _ = head.top_k(words(["a tree", "the cat", "bird"]), 1)
    assert ids.numpy().ravel().tolist() == [0, 2, 1]


def test_bad_texts():
    model = small_model(layers.FullSoftmax(CLASSES))
    with pytest.raises(ValueError, match="5 with num_classes=60"):
        tfxclass.initialize_classes(model, DESCRIPTIONS[:5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="60"):
        tfxclass.initialize_classes(model, DESCRIPTIONS[:2], [0, CLASSES])


TREES = {
    "binary": {"tree": trees.balanced(CLASSES)},
    "wide": {"tree": trees.balanced(CLASSES, arity=4)},
    "plt": {"tree": trees.balanced(CLASSES), "multi_label": "plt"},
}


def tree_model(kind):
    return trained(layers.HierarchicalSoftmax(CLASSES, **TREES[kind]))


@pytest.mark.parametrize("kind", TREES)
def test_a_tree_grows_where_the_new_classes_are_near(kind):
    """What a node said of its other children, it still says."""
    model = tree_model(kind)
    grown = tfxclass.add_classes(model, NEW, NEW_DATA)
    features = model.layers[0](small_data()[0])
    head, tree = grown.layers[-1], grown.layers[-1].tree
    before = model.layers[-1](features).numpy()
    after = head(features).numpy()
    if kind == "plt":
        np.testing.assert_allclose(after[:, :CLASSES], before, rtol=1e-5)
        return
    np.testing.assert_allclose(after.sum(axis=1), 1, rtol=1e-5)
    parents = tree.parents[tree.leaves]
    new_parents = np.unique(parents[CLASSES:])
    for parent in new_parents:
        below = np.array([parent in tree.path(c) for c in range(len(parents))])
        old = np.flatnonzero(below[:CLASSES])
        # All of it is what it was; among the old ones in the same ratio.
        np.testing.assert_allclose(
            after[:, below].sum(axis=1), before[:, old].sum(axis=1), rtol=1e-4
        )
        ratio = after[:, old] / before[:, old]
        beside = parents[old] == parent
        np.testing.assert_allclose(
            ratio[:, beside],
            ratio[:, beside][:, :1] * np.ones(beside.sum()),
            rtol=1e-4,
        )
    untouched = [
        c
        for c in range(CLASSES)
        if not set(tree.path(c)) & set(new_parents.tolist())
    ]
    np.testing.assert_allclose(
        after[:, untouched], before[:, untouched], rtol=1e-4
    )


@pytest.mark.parametrize("kind", TREES)
def test_a_tree_without_a_class(kind):
    model = tree_model(kind)
    tree = model.layers[-1].tree
    features = model.layers[0](small_data()[0])
    before = model.layers[-1](features).numpy()
    # Nodes are left with two children, with one, and with none.
    gone = [0, 1, 2, 17, 30, 31]
    left = tfxclass.remove_classes(model, gone)
    after = left.layers[-1](features).numpy()
    if kind == "plt":
        assert np.all(after[:, gone] == 0) and np.all(after <= 1)
        return
    np.testing.assert_allclose(after.sum(axis=1), 1, rtol=1e-5)
    expected = _without(tree, 0, before, gone)
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-7)


def _without(tree, node, p, gone):
    """NumPy oracle: each node shares its mass among what is left below."""
    share = np.zeros_like(p)
    children = np.flatnonzero(tree.parents == node)
    if not len(children):
        (c,) = np.flatnonzero(tree.leaves == node)
        share[:, c] = c not in gone
        return share
    total = 0
    for child in children:
        classes = [c for c in range(CLASSES) if child in tree.path(c)]
        if set(classes) <= set(gone):
            continue
        mass = p[:, classes].sum(axis=1, keepdims=True)
        share += mass * _without(tree, child, p, gone)
        total = total + mass
    return share / total


def test_a_tree_without_classes_is_saved():
    tree = growing.without_classes(trees.balanced(9, arity=3), [0, 4, 5]).tree
    again = trees.Tree.from_config(tree.get_config())
    assert again == tree and again.num_classes == 9
    assert again.live.tolist() == [1, 2, 3, 6, 7, 8]
    assert np.all(again.leaves[[0, 4, 5]] == -1)
    assert again.nodes()[:, -1].max() == 5
    grown = growing.with_classes(again, np.array([4]), np.array([3]), False)
    assert grown.tree.live.tolist() == [1, 2, 3, 4, 6, 7, 8]
