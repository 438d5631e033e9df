"""What every head promises: contract, exactness, saving, errors."""

import functools
import itertools
import json
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tests.support.cases import check_refused
from tests.support.cases import quick
from tests.support.contract import check_nothing_is_left
from tests.support.contract import fit_again
from tests.support.lsh import lsh_sampler
from tests.support.mixing import MixingSampler
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import samplers

CLASSES, DIM, BATCH, SAMPLED = 60, 8, 16, 30
# float32 logits and sums over some dozen classes.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def forest_sampler(**options):
    """What makes the sampler of a size and a seed."""
    return functools.partial(samplers.HashingForestSampler, **options)


KINDS = {
    "full": (layers.FullSoftmax, {}),
    "uniform": (layers.SampledSoftmax, {"num_sampled": SAMPLED}),
    "log_uniform": (
        layers.SampledSoftmax,
        {"num_sampled": SAMPLED, "sampler": "log_uniform"},
    ),
    "selective": (
        layers.SelectiveSoftmax,
        {
            "num_sampled": SAMPLED,
            "sampler": forest_sampler(
                num_trees=3, leaf_size=5, rebuild_interval=2
            ),
        },
    ),
    "auto": (
        layers.SampledSoftmax,
        {"num_sampled": SAMPLED, "sampler": MixingSampler},
    ),
    "frequency": (
        layers.SampledSoftmax,
        {
            "num_sampled": SAMPLED,
            "sampler": lambda n, seed: samplers.FrequencySampler(
                n, counts=np.arange(CLASSES) % 7, power=0.75, seed=seed
            ),
        },
    ),
    "kmeans": (
        layers.SampledSoftmax,
        {
            "num_sampled": SAMPLED,
            "sampler": lambda n, seed: samplers.KMeansSampler(
                n, num_groups=8, rebuild_interval=6, seed=seed
            ),
        },
    ),
    "lsh": (
        layers.LSHSoftmax,
        {
            "num_sampled": SAMPLED,
            "sampler": functools.partial(
                lsh_sampler,
                scheme="label",
                num_hashes=3,
                num_tables=4,
                rebuild_interval=2,
            ),
        },
    ),
}
SIMILARITIES = {
    "dot": {},
    "cosine": {"similarity": layers.Cosine(scale=16.0, margin=0.2)},
}
# For what heads share; the others are slow cases.
FEW = quick(KINDS, ["full", "selective"])
SAMPLED_KINDS = [kind for kind in KINDS if kind != "full"]


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(3)
    yield
    keras.config.set_dtype_policy("float32")


def make_head(kind, similarity="dot", **changes):
    cls, arguments = KINDS[kind]
    arguments = {**arguments, **SIMILARITIES[similarity], "seed": 7, **changes}
    if callable(arguments.get("sampler")):
        arguments["sampler"] = arguments["sampler"](
            arguments.pop("num_sampled"), seed=arguments["seed"]
        )
    return cls(CLASSES, **arguments)


def data(seed=0, rows=BATCH, labels_wide=None):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    shape = rows if labels_wide is None else (rows, labels_wide)
    y = random.integers(0 if labels_wide is None else -1, CLASSES, shape)
    return x, y


def make_model(head, optimizer=None, compiled=True, use_bias=True, **options):
    """For equal runs without a bias: GPUs sum its gradient in any order."""
    encoder = keras.layers.Dense(DIM, use_bias=use_bias, name="encoder")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    if compiled:
        optimizer = optimizer or tfxclass.optimizers.LazyAdam(0.01)
        model.compile(optimizer=optimizer, loss=head.loss, **options)
    return model


def exact_loss(model, x, y):
    """Evaluation's loss in NumPy: no margin, all classes."""
    head = model.layers[-1]
    logits = reference.head_logits(
        model.layers[0](x).numpy(),
        head.kernel.numpy(),
        None if head.bias is None else head.bias.numpy(),
        head.similarity,
        head.logit_scale,
    )
    return logits, reference.cross_entropy(logits, np.asarray(y))


each_head = pytest.mark.parametrize(
    ("kind", "similarity"), [(k, s) for k in KINDS for s in SIMILARITIES]
)


def in_turn(kinds, number, *options):
    """Each of `kinds` with so many `(similarity, option, ...)`.

    The next kind has the next ones. All other combinations are slow cases.
    """
    choices = list(itertools.product(SIMILARITIES, *options))
    every = len(choices) // number
    return [
        pytest.param(
            kind, *choice, marks=[pytest.mark.slow] if (i - j) % every else []
        )
        for i, kind in enumerate(kinds)
        for j, choice in enumerate(choices)
    ]


class Trained(NamedTuple):
    """A model that learned a batch, and what it should say of other rows.

    `before` and `after` are exact losses of that batch.
    """

    model: keras.Model
    before: float
    after: float
    x: np.ndarray
    y: np.ndarray
    logits: np.ndarray
    losses: np.ndarray


# The activation and the labels of a row; None is one label, without an axis.
FORMS = [("softmax", None), (None, 2)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            case.values, marks=case.marks, id="-".join(map(str, case.values))
        )
        for case in in_turn(KINDS, 1, FORMS)
    ],
)
def trained(request):
    """Tests of a trained model only read it: tracing a `fit` takes seconds."""
    kind, similarity, (activation, labels_wide) = request.param
    keras.utils.set_random_seed(3)
    head = make_head(kind, similarity, activation=activation)
    model = make_model(head, tfxclass.optimizers.LazyAdam(0.05))
    batch = data(labels_wide=labels_wide)
    _, before = exact_loss(model, *batch)
    fit_again(model, 20, *batch)
    _, after = exact_loss(model, *batch)
    others = data(seed=1, labels_wide=labels_wide)
    logits, losses = exact_loss(model, *others)
    return Trained(model, before.mean(), after.mean(), *others, logits, losses)


@each_head
def test_config_round_trip_through_json(kind, similarity):
    head = make_head(
        kind, similarity, activation=None, kernel_initializer="he_normal"
    )
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(head)))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(head)
    assert again.get_config() == head.get_config()
    for name in ("num_classes", "similarity", "cosine", "seed"):
        assert getattr(again, name) == getattr(head, name)
    if kind == "selective":
        assert again.sampler.num_trees == 3
        assert again.sampler.rebuild_interval == 2


@each_head
def test_build_and_symbolic_call(kind, similarity):
    head = make_head(kind, similarity)
    output = head(keras.KerasTensor([None, DIM]))
    assert output.shape == (None, CLASSES) and output.dtype == "float32"
    assert head.kernel.shape == (CLASSES, DIM)
    assert head.kernel.dtype == "float32"
    trainable = [v.name for v in head.trainable_variables]
    assert trainable == ["kernel"]


def test_output_is_all_classes(trained):
    head = trained.model.layers[-1]
    expected = trained.logits
    if head.activation is not None:
        expected = reference.softmax(expected)
    output = trained.model.predict(trained.x, verbose=0)
    np.testing.assert_allclose(output, expected, **TOLERANCE)


def test_evaluate_equals_numpy(trained):
    found = trained.model.evaluate(
        trained.x, trained.y, batch_size=5, verbose=0
    )
    np.testing.assert_allclose(found, trained.losses.mean(), rtol=1e-5)


def test_training_lowers_the_exact_loss(trained):
    assert trained.after < 0.3 * trained.before


def test_top_k_model_is_the_argsort_of_the_output(trained):
    output = trained.model(trained.x).numpy()
    best = tfxclass.top_k(trained.model, k=7)
    ids, scores = best.predict(trained.x, verbose=0)
    assert ids.dtype == np.int64
    assert ids.shape == scores.shape == (BATCH, 7)
    np.testing.assert_array_equal(ids, np.argsort(-output, axis=1)[:, :7])
    np.testing.assert_allclose(
        scores, np.take_along_axis(output, ids, axis=1), **TOLERANCE
    )


def step_on_all_classes(kind, similarity, loss):
    """Losses and gradients of a step whose sample has all classes."""
    sampled = {} if kind == "full" else {"num_sampled": CLASSES}
    head = make_head(kind, similarity, loss=loss, **sampled)
    head.build((None, DIM))
    head.kernel.assign(data(seed=1, rows=CLASSES)[0])
    x, y = data(labels_wide=2)
    features = tf.constant(x)
    upstream = tf.constant(data(seed=2)[0][:, 0])
    with tf.GradientTape() as tape:
        tape.watch(features)
        losses = head.compute_loss(features, y, training=True)
    by_x, by_kernel = tape.gradient(
        losses, [features, head.kernel.value], output_gradients=upstream
    )
    return losses, by_x, tf.convert_to_tensor(by_kernel)


@functools.cache
def step_of_the_full_softmax(similarity, loss):
    return step_on_all_classes("full", similarity, loss)


@pytest.mark.parametrize(
    ("kind", "similarity", "loss"),
    in_turn(SAMPLED_KINDS, 3, ["softmax", "sigmoid", "squared_hinge"]),
)
def test_all_classes_sampled_is_the_exact_loss(kind, similarity, loss):
    """The exactness anchor: loss and gradients."""
    # Squared hinges of cosines are some 17^2 each.
    rough = {"rtol": 1e-5, "atol": 1e-3} if loss != "softmax" else TOLERANCE
    for ours, theirs in zip(
        step_on_all_classes(kind, similarity, loss),
        step_of_the_full_softmax(similarity, loss),
    ):
        np.testing.assert_allclose(ours, theirs, **rough)


@pytest.mark.parametrize(("kind", "similarity"), in_turn(SAMPLED_KINDS, 1))
def test_gradient_names_the_sampled_rows_alone(kind, similarity):
    head = make_head(kind, similarity)
    head.build((None, DIM))
    x, y = data()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = head.compute_loss(x, y, training=True)
        gradient = tape.gradient(loss, head.kernel.value)
        assert isinstance(gradient, tf.IndexedSlices)
        assert gradient.values.shape.as_list() == [SAMPLED, DIM]
        return gradient.indices

    indices = step().numpy()
    assert len(set(indices)) == SAMPLED and set(y) <= set(indices)


@pytest.mark.parametrize("kind", FEW)
def test_endpoint_with_labels(kind):
    """The functional model whose head adds its loss by itself."""
    features = keras.Input([DIM])
    labels = keras.Input([], dtype="int64")
    head = make_head(kind)
    model = keras.Model([features, labels], head(features, labels=labels))
    model.compile(optimizer=tfxclass.optimizers.LazyAdam(0.05))
    x, y = data()
    first = model.fit([x, y], batch_size=BATCH, verbose=0).history["loss"]
    fit_again(model, 20, [x, y])
    logits = reference.head_logits(x, head.kernel.numpy())
    expected = reference.cross_entropy(logits, y).mean()
    result = model.evaluate([x, y], batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert result < 0.5 * first[0]


@pytest.mark.parametrize("kind", FEW)
def test_custom_loop(kind):
    head = make_head(kind)
    head.build((None, DIM))
    optimizer = tfxclass.optimizers.LazyAdam(0.05)
    optimizer.build(head.trainable_variables)
    x, y = data()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(head.compute_loss(x, y, training=True))
        gradients = tape.gradient(loss, [head.kernel.value])
        optimizer.apply(gradients, head.trainable_variables)

    def exact():
        return float(tf.reduce_mean(head.compute_loss(x, y)))

    before = exact()
    for _ in range(20):
        step()
    assert exact() < 0.5 * before


@pytest.mark.parametrize(
    "case",
    quick(
        list(itertools.product(KINDS, ["mixed_bfloat16", "mixed_float16"])),
        [("selective", "mixed_bfloat16"), ("full", "mixed_float16")],
    ),
    ids="-".join,
)
def test_mixed_precision(case):
    kind, policy = case
    keras.config.set_dtype_policy(policy)
    # Once as a graph.
    model = make_model(make_head(kind), run_eagerly=kind != "full")
    x, y = data()
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    head = model.layers[-1]
    assert head.kernel.dtype == "float32"
    assert model(x).dtype == np.float32
    # The encoder's own product is in 8 or 11 bits, once more in its copy here.
    _, losses = exact_loss(model, x, y)
    np.testing.assert_allclose(
        model.evaluate(x, y, verbose=0), losses.mean(), rtol=2e-2
    )
    assert head.compute_loss(tf.cast(x, tf.float16), y).dtype == tf.float32


@pytest.mark.parametrize("kind", quick(["full", "selective"], ["selective"]))
def test_a_deleted_model_leaves_nothing(kind):
    """Of the other heads: their contracts, which are slow tests."""
    check_nothing_is_left(lambda: make_head(kind))


# Other samplers of these kinds are in the quick tests of shards and samplers,
# and the full softmax is a head of the contracts.
@pytest.mark.parametrize(
    "case",
    quick(
        list(itertools.product(KINDS, SIMILARITIES)),
        [("selective", "dot"), ("auto", "cosine"), ("lsh", "dot")],
    ),
    ids="-".join,
)
def test_saved_model_goes_on_bit_for_bit(case, tmp_path):
    kind, similarity = case
    x, y = data(rows=4 * BATCH)
    fit = functools.partial(
        keras.Model.fit, x=x, y=y, batch_size=BATCH, verbose=0, shuffle=False
    )
    model = make_model(
        make_head(kind, similarity), use_bias=False, run_eagerly=True
    )
    # 8 steps: past some refreshes, one is under way.
    sampler = getattr(model.layers[-1], "sampler", None)
    fit(model, epochs=2 if hasattr(sampler, "index") else 1)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(model(x), loaded(x))
    histories = [fit(m).history["loss"] for m in (model, loaded)]
    assert histories[0] == histories[1]
    for ours, theirs in zip(model.variables, loaded.variables):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    if kind in ("selective", "lsh"):
        states = [m.layers[-1].sampler.index.state() for m in (model, loaded)]
        assert states[0]["ready"].size > 0
        for name in states[0]:
            np.testing.assert_array_equal(states[0][name], states[1][name])


@pytest.mark.parametrize("kind", quick(KINDS, ["selective"]))
def test_same_seed_same_run(kind):
    def run(seed):
        keras.utils.set_random_seed(5)
        model = make_model(
            make_head(kind, seed=seed), use_bias=False, run_eagerly=True
        )
        x, y = data(rows=4 * BATCH)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
        return model.layers[-1].kernel.numpy()

    first = run(1)
    np.testing.assert_array_equal(first, run(1))
    if kind != "full":
        assert not np.array_equal(first, run(2))


@pytest.mark.parametrize("kind", quick(KINDS, ["selective"]))
def test_sample_weight_is_a_weighted_mean(kind):
    head = make_head(kind)
    model = make_model(head)
    x, y = data()
    weights = np.random.default_rng(0).random(BATCH).astype(np.float32)
    _, losses = exact_loss(model, x, y)
    result = model.evaluate(
        x, y, sample_weight=weights, batch_size=BATCH, verbose=0
    )
    # Keras' own reduction: the mean over rows of weight times loss, and
    # `evaluate` weighs its batches by the number of rows.
    direct = head.loss(y, model(x), sample_weight=weights)
    expected = (weights * losses).sum() / BATCH
    np.testing.assert_allclose(direct, expected, rtol=1e-5)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("batch", [4, 6])
def test_weight_of_a_sequence_is_one_of_all_its_positions(batch, recwarn):
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 6, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, (6, 6))
    weights = np.array([0, 0, 0, 1, 1, 2], np.float32)
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.Input([None, DIM]), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)

    def loss(weights):
        return model.evaluate(
            x, y, sample_weight=weights, batch_size=batch, verbose=0
        )

    expected = loss(np.tile(weights[:, np.newaxis], 6))
    np.testing.assert_allclose(loss(weights), expected, rtol=1e-6)
    model.fit(x, y, sample_weight=weights, batch_size=batch, verbose=0)
    assert not [x for x in recwarn if "class_weight" in str(x.message)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_rows_without_a_column_of_labels(kind):
    """As ragged labels have it whose rows have none: [n, 0]."""
    head = make_head(kind)
    model = make_model(head, use_bias=False)
    x, y = data()
    labels = tf.RaggedTensor.from_row_lengths(
        y.reshape(-1), [1] * BATCH + [0] * 2
    )
    rows = np.concatenate([x, x[:2]])
    dataset = tf.data.Dataset.from_tensor_slices((rows, labels))
    model.fit(dataset.batch(BATCH), verbose=0, shuffle=False)
    padded = np.full((2, 1), -1)
    none = head.loss(np.zeros((2, 0), np.int64), model(x[:2]))
    assert float(none) == float(head.loss(padded, model(x[:2]))) == 0


@pytest.mark.parametrize("kind", ["uniform", "selective"])
def test_full_output_is_pruned_from_a_training_step(kind):
    """2 million classes, batch 512: the [batch, num_classes] output would be
    4 GB and some 8 GFLOP; a step without it is a matter of milliseconds."""
    num_classes, batch = 2_000_000, 512
    cls, arguments = KINDS[kind]
    make_sampler = arguments.get("sampler", samplers.AutoSampler)
    head = cls(
        num_classes,
        sampler=make_sampler(600, seed=7),
        kernel_initializer="zeros",
    )
    model = keras.Sequential([keras.Input([2]), head])
    if kind == "selective":
        # No forest of two million rows here.
        head.sampler.index.advance = lambda *args, **kwargs: None
    model.compile(optimizer=tfxclass.optimizers.LazySGD(0.1), loss=head.loss)
    x = np.ones((batch, 2), np.float32)
    y = np.arange(batch)

    def peak_mib():
        with open("/proc/self/status") as f:
            line = next(line for line in f if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    before = peak_mib()
    model.train_on_batch(x, y)
    assert peak_mib() - before < 1000, peak_mib() - before


def test_more_labels_than_places():
    head = make_head("uniform", num_sampled=3)
    model = make_model(head)
    x, rows = data()[0][:BATCH], np.arange(BATCH)
    kernel = head.kernel.numpy()[rows]
    features = model.layers[-2](x) if len(model.layers) > 1 else x
    logits = np.asarray(head.queries(tf.convert_to_tensor(features))) @ kernel.T
    expected = np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)
    loss = head.compute_loss(features, rows, training=True)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_many_and_few_labels_warn_once(capfd):
    head = make_head("uniform", num_sampled=3)
    model = make_model(head)
    labels = np.concatenate([np.arange(BATCH), np.zeros(BATCH, int)] * 2)
    x = np.concatenate([data()[0][:BATCH]] * 4)
    model.fit(x, labels, batch_size=BATCH, shuffle=False, verbose=0)
    told = capfd.readouterr().err
    assert told.count("WARNING") == told.count(f"{2 * BATCH} or more") == 1
    assert float(head.measured["overflow_steps"]) == 2


@pytest.mark.parametrize(
    "name",
    [
        "SampledSoftmax",
        "SelectiveSoftmax",
        "LSHSoftmax",
        "NoiseContrastive",
        "NegativeSampling",
    ],
)
def test_num_sampled_by_default(name):
    head = getattr(layers, name)(400)
    assert head.num_sampled == head.sampler.num_sampled == 4
    assert head.sampler.size_for(50) == 100
    assert head.sampler.size_for(500) == 400
    config = head.get_config()
    assert config["num_sampled"] is None
    again = type(head).from_config(config)
    assert again.sampler.follows_batch and again.sampler.num_sampled == 4


def two_heads_of_one_sampler():
    sampler = samplers.UniformSampler(5)
    for name in ("first", "second"):
        layers.SampledSoftmax(9, sampler=sampler, name=name).build((None, 2))


def loss_without_a_forward_pass():
    head = make_head("full")
    head.build((None, DIM))
    head.loss(np.zeros(2, int), None)


def loss_of_another_head():
    head, other = make_head("full"), make_head("full", name="other")
    model = make_model(head, compiled=False)
    model.compile(loss=other.loss)
    model.fit(*data(), verbose=0)


INVALID = {
    "classes_zero": (
        lambda: layers.FullSoftmax(0),
        ["`num_classes` must be a positive integer", "0"],
    ),
    "classes_fraction": (
        lambda: layers.FullSoftmax(2.5),
        ["num_classes", "2.5"],
    ),
    "classes_bool": (lambda: layers.FullSoftmax(True), ["num_classes", "True"]),
    "similarity": (
        lambda: layers.FullSoftmax(9, similarity="l2"),
        ["`similarity`", '"cosine"', "layers.Cosine(scale=", "'l2'"],
    ),
    "swapped_margin": (
        lambda: layers.Cosine(scale=0.5, margin=64.0),
        ["`margin`", "below 2", "swapped: Cosine(scale=64.0, margin=0.5)?"],
    ),
    "large_angle": (
        lambda: layers.Cosine(margin=3.2, margin_type="arcface"),
        ["`margin`", "an angle below pi", "margin=3.2"],
    ),
    "margin_type": (
        lambda: layers.Cosine(margin_type="sphereface"),
        ["`margin_type`", "'sphereface'"],
    ),
    "activation": (
        lambda: layers.FullSoftmax(9, activation="relu"),
        ["`activation` must be one of ('softmax', None)"],
    ),
    "scale_with_dot": (
        lambda: layers.FullSoftmax(9, scale=3.0),
        ["`scale` belongs in `similarity`", "Cosine(scale=3.0)"],
    ),
    "margin_with_dot": (
        lambda: layers.FullSoftmax(9, margin=0.1),
        ["`margin` belongs in `similarity`", "Cosine(margin=0.1)"],
    ),
    "bias_with_cosine": (
        lambda: layers.FullSoftmax(9, similarity="cosine", use_bias=True),
        ["`use_bias=True` needs"],
    ),
    "scale_zero": (
        lambda: layers.Cosine(scale=0.0),
        ["`scale` must be finite and > 0"],
    ),
    "scale_infinite": (
        lambda: layers.Cosine(scale=np.inf),
        ["`scale` must be finite and > 0. Received: inf"],
    ),
    "margin_text": (
        lambda: layers.Cosine(margin="big"),
        ["`margin` must be finite and >= 0. Received: 'big'"],
    ),
    "margin_infinite": (
        lambda: layers.Cosine(margin=np.inf),
        ["`margin` must be finite and >= 0. Received: inf"],
    ),
    "decay_infinite": (
        lambda: samplers.LSHTables(decay=np.inf),
        ["`decay` must be finite and >= 0. Received: inf"],
    ),
    "margin_negative": (
        lambda: layers.Cosine(margin=-0.1),
        ["`margin` must be finite and >= 0", "-0.1"],
    ),
    "features_rank": (
        lambda: layers.FullSoftmax(9)(np.zeros(4, np.float32)),
        ["[batch, dim]", "[batch, time, dim]", "(4,)"],
    ),
    "features_dim_unknown": (
        lambda: layers.FullSoftmax(9).build((None, None)),
        ["known dim"],
    ),
    "sampler_name": (
        lambda: layers.SampledSoftmax(9, 3, sampler="best"),
        ["`sampler` must be one of", "'best'"],
    ),
    "num_sampled_zero": (
        lambda: layers.SampledSoftmax(9, 0),
        ["`num_sampled` must be a positive integer"],
    ),
    "num_sampled_twice": (
        lambda: layers.SampledSoftmax(9, 4, sampler=samplers.UniformSampler(5)),
        ["num_sampled=4", "sampler of 5"],
    ),
    "selective_num_sampled": (
        lambda: layers.SelectiveSoftmax(9, 0),
        ["`num_sampled`", "positive integer"],
    ),
    "num_trees": (
        lambda: samplers.HashingForestSampler(num_trees=0),
        ["`num_trees` must be a positive integer. Received: 0"],
    ),
    "leaf_size": (
        lambda: samplers.HashingForestSampler(leaf_size=-1),
        ["`leaf_size` must be a positive integer. Received: -1"],
    ),
    "num_neighbors": (
        lambda: samplers.HashingForestSampler(num_neighbors=0),
        ["`num_neighbors` must be a positive integer"],
    ),
    "rebuild_interval": (
        lambda: samplers.HashingForestSampler(rebuild_interval=0),
        ["`rebuild_interval` must be a positive integer"],
    ),
    "neighbor_fraction": (
        lambda: samplers.HashingForestSampler(neighbor_fraction=1.5),
        ["`neighbor_fraction` must be in (0, 1]", "1.5"],
    ),
    "sampler_kind": (
        lambda: layers.SelectiveSoftmax(9, 3, "uniform"),
        [
            "`sampler` of SelectiveSoftmax must be of the class HashingForest",
            "UniformSampler",
        ],
    ),
    "tables": (
        lambda: samplers.LSHSampler(3, 20),
        ["`tables` must be a tfxclass.samplers.LSHTables", "20"],
    ),
    "mode_options": (
        lambda: layers.DropMax(9, mode_options="adaptive"),
        ["`mode_options` of DropMax must be a dict", "'adaptive'"],
    ),
    "sampler_twice": (
        two_heads_of_one_sampler,
        ["A sampler belongs to one head", "'first'", "'second'"],
    ),
    "loss_without_forward": (
        loss_without_a_forward_pass,
        ["full_softmax", "is not a head's output"],
    ),
    "loss_of_another_head": (
        loss_of_another_head,
        ["is of the head 'other'", "another head", "the model's last layer"],
    ),
    "loss_called": (
        lambda: make_head("full").loss(),
        ["loss=head.loss, without parentheses"],
    ),
    "top_k_zero": (
        lambda: tfxclass.top_k(make_model(make_head("full")), 0),
        ["`k` must be a positive integer"],
    ),
    "top_k_too_many": (
        lambda: tfxclass.top_k(make_model(make_head("full")), CLASSES + 1),
        ["k=61 with num_classes=60"],
    ),
    "top_k_no_head": (
        lambda: tfxclass.top_k(
            keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
        ),
        ["exactly one head", "[]"],
    ),
    "top_k_unbuilt": (
        lambda: tfxclass.top_k(keras.Sequential([make_head("full")]), 2),
        ["must be built"],
    ),
    "top_k_of_a_file": (
        lambda: tfxclass.top_k("model.keras"),
        ["`model` must be a keras.Model. Received: 'model.keras'"],
    ),
    "top_k_thresholds": (
        lambda: tfxclass.top_k(make_model(make_head("full")), 2, [0.1, 0.2]),
        ["`threshold` must be None", "Received: [0.1, 0.2]"],
    ),
    "top_k_layer_behind": (
        lambda: tfxclass.top_k(
            keras.Sequential(
                [make_model(make_head("full")), keras.layers.Rescaling(-1)]
            ),
            2,
        ),
        ["The head must end the model", "no layer behind the head"],
    ),
    "allocation_thresholds": (
        lambda: samplers.AdaptiveAllocation(cumulative_probability=(0.9, 0.5)),
        ["two rising thresholds", "(0.9, 0.5)"],
    ),
    "allocation_steps": (
        lambda: samplers.AdaptiveAllocation(phase_steps=[3, 4]),
        ["`phase_steps` must be a positive integer", "[3, 4]"],
    ),
    "allocation_trees": (
        lambda: samplers.AdaptiveAllocation(num_trees=(0, 5)),
        ["`num_trees` must be a positive integer"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])


@pytest.mark.parametrize("kind", quick(KINDS, ["full"]))
def test_a_bias_learns_and_counts_and_top_k_shares_the_weights(kind):
    model = make_model(make_head(kind, use_bias=True))
    x, y = data()
    best = tfxclass.top_k(model, k=CLASSES)
    model.fit(x, y, epochs=3, verbose=0)
    assert np.any(model.layers[-1].bias.numpy())
    _, losses = exact_loss(model, x, y)
    np.testing.assert_allclose(
        model.evaluate(x, y, verbose=0), losses.mean(), rtol=1e-5
    )
    ids, scores = best.predict(x, verbose=0)
    output = model(x).numpy()
    assert np.all(np.sort(ids, axis=1) == np.arange(CLASSES))
    np.testing.assert_allclose(scores, -np.sort(-output, axis=1), **TOLERANCE)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0, rtol=1e-5)


def test_num_sampled_is_at_most_the_classes():
    for kind in SAMPLED_KINDS:
        head = make_head(kind, num_sampled=10 * CLASSES)
        head.build((None, DIM))
        assert head.num_sampled == head.sampler.num_sampled == CLASSES


def test_selective_softmax_takes_the_nearest_classes():
    """The paper's own method: nothing but labels and nearest classes."""
    head = make_head(
        "selective",
        num_sampled=20,
        sampler=forest_sampler(
            num_trees=3,
            neighbor_fraction=1.0,
            correct_fill=False,
            num_candidates=None,
            num_neighbors=30,
            leaf_size=CLASSES,  # one cell: the search is exact
        ),
    )
    head.build((None, DIM))
    head.kernel.assign(data(seed=1, rows=CLASSES)[0])
    head.sampler.rebuild(head.kernel)
    x, _ = data()
    targets = tf.constant([[3]], tf.int64)
    sample = head.sampler.sample(tf.constant(x[:1]), targets, head.kernel)
    assert np.all(sample.log_expected_count.numpy() == 0)
    scores = head.kernel.numpy() @ x[0]
    best30 = np.argsort(-scores)[:30]
    assert set(sample.ids.numpy()[1:]) <= set(best30)
    assert sample.positions.numpy().tolist() == [[0]]


def allocation(**changes):
    return samplers.AdaptiveAllocation(
        **{
            "phase_steps": 4,
            "cumulative_probability": (0.3, 0.8),
            "ramp_steps": 10,
            "num_trees": (2, 6),
            "rebuild_interval": (2, 10),
            **changes,
        }
    )


def test_allocation_schedule():
    rule = allocation()
    for step in range(12):
        refresh = rule.refresh(tf.constant(step, tf.int64), 1e6)
        # Of the training, at the start of the phase.
        done = step // 4 * 4 / 10
        assert int(refresh["num_trees"]) == round(2 + 4 * done)
        assert int(refresh["interval"]) == round(2 + 8 * done)
        threshold = float(rule.threshold(tf.constant(step, tf.int64)))
        expected = 0.3 + 0.5 * min(step / 10, 1.0)
        np.testing.assert_allclose(threshold, expected, rtol=1e-6)


@pytest.mark.parametrize("step", [0, 4, 8, 100])
def test_allocation_takes_the_least_number_that_passes(step):
    rule = allocation()
    logits = 2 * np.random.default_rng(step).normal(size=(9, 40))
    falling = -np.sort(-reference.softmax(logits), axis=1)
    threshold = 0.3 + 0.5 * min(step / 10, 1.0)
    cumulated = falling.mean(axis=0).cumsum()
    expected = np.flatnonzero(cumulated >= threshold)[0] + 1
    result = rule.num_classes_for(
        tf.constant(step, tf.int64), tf.constant(falling, tf.float32)
    )
    assert int(result) == expected
    # Where none passes, all.
    few = tf.constant(falling[:, :1] * 0.01, tf.float32)
    assert int(rule.num_classes_for(tf.constant(step, tf.int64), few)) == 1


@pytest.mark.parametrize("include_labels", [False, True])
def test_allocation_shrinks_samples_of_padded_labels(include_labels):
    """Padding of rows with several labels takes no place in the sample."""
    rule = allocation(num_trees=(2, 2), include_labels=include_labels)
    head = make_head("selective", sampler=forest_sampler(allocation=rule))
    head.build((None, DIM))
    head.kernel.assign(data(seed=1, rows=CLASSES)[0])
    head.sampler.rebuild(head.kernel)
    labels = np.full((8, 6), -1)
    labels[:, 0] = np.arange(8) % 2
    x, _ = data(rows=8)
    # Great logits: a class or two have the probability of a row.
    queries = tf.constant(50 * x[:8])
    sample = head.sampler.sample(queries, tf.constant(labels), head.kernel)
    active = head.sampler.num_allocated.numpy()
    assert active < 5
    # The paper's M counts labels, and no label is left out.
    expected = max(2, active) if include_labels else 2 + active
    assert len(sample.ids) == expected
    assert set(sample.ids.numpy()) >= {0, 1}


@pytest.mark.parametrize("include_labels", [False, True])
def test_allocation_counts_labels_where_it_is_told_to(include_labels):
    """Flat probabilities need nearly all classes, more than the labels."""
    rule = allocation(
        num_trees=(2, 2),
        cumulative_probability=(0.3, 0.3),
        include_labels=include_labels,
    )
    head = make_head("selective", sampler=forest_sampler(allocation=rule))
    head.build((None, DIM))
    head.sampler.rebuild(head.kernel)
    labels = tf.constant([[0], [1], [2]], tf.int64)
    sample = head.sampler.sample(tf.zeros((3, DIM)), labels, head.kernel)
    active = int(head.sampler.num_allocated.numpy())
    assert active == int(np.ceil(0.3 * CLASSES))
    assert len(sample.ids) == (active if include_labels else active + 3)


def test_allocation_in_training_saves_and_goes_on(tmp_path):
    head = make_head(
        "selective",
        sampler=forest_sampler(
            num_trees=3,
            leaf_size=5,
            rebuild_interval=2,
            allocation=allocation(),
        ),
    )
    model = make_model(head, tfxclass.optimizers.LazyAdam(0.05), use_bias=False)
    x, y = data(rows=8)
    model.fit(x, y, batch_size=4, epochs=6, shuffle=False, verbose=0)
    active = int(head.sampler.num_allocated.numpy())
    assert 1 <= active < SAMPLED
    model.save(str(tmp_path / "m.keras"))
    loaded = keras.saving.load_model(str(tmp_path / "m.keras"))
    rule = loaded.layers[-1].sampler.allocation
    assert rule.get_config() == allocation().get_config()
    histories = [
        m.fit(x, y, batch_size=4, epochs=4, shuffle=False, verbose=0).history
        for m in (model, loaded)
    ]
    assert histories[0] == histories[1]


TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf
import tfxclass
from tests.layers.test_heads import data

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)

def run(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        head = tfxclass.layers.FullSoftmax(60)
        model = keras.Sequential([keras.layers.Dense(8), head])
        model.compile(
            optimizer=keras.optimizers.SGD(0.5),
            loss=head.loss,
            metrics=[tfxclass.metrics.TopKAccuracy(head, 3)],
        )
    x, y = data()
    model.fit(x, y, batch_size=16, verbose=0)
    results = model.evaluate(x, y, batch_size=16, verbose=0)
    return [*model.get_weights(), np.array(results)]

one = run(tf.distribute.OneDeviceStrategy("CPU:0"))
two = run(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
for ours, theirs in zip(one, two):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
print("the same", len(one))
"""


def test_two_devices_equal_one():
    assert "the same 4" in run_code(TWO_DEVICES)


def test_a_foreign_loss_on_a_sampled_head_is_refused():
    head = tfxclass.layers.SampledSoftmax(20, num_sampled=10, name="picky")
    model = keras.Sequential([keras.Input([4]), head])
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="loss=head.loss: 'picky'"):
        model.fit(np.zeros([8, 4]), np.zeros([8], int), verbose=0)


def test_whole_numbers_may_be_floats():
    """1e6 is how many write a million: kept as an int."""
    head = layers.SampledSoftmax(6e1, 2e1, seed=1)
    head.build((None, 4))
    assert type(head.num_classes) is type(head.num_sampled) is int
    x = np.ones((2, 4), "f")
    for found in (
        head.top_k(x, 3.0),
        head.top_k(x, 3.0, weights=head.export_weights()),
    ):
        assert found[0].shape == (2, 3)
    stages = tfxclass.optimizers.growing_stages(0.1, 10.0, 2.0, 3.0)
    assert [stage.steps for stage in stages] == [10, 20, 40]
    with pytest.raises(ValueError, match="positive integer. Received: 2.5"):
        head.top_k(x, 2.5)
