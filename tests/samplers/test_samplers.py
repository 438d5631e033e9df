"""The samplers: what they choose, against brute force, and what they keep."""

import itertools
import json
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.test_hashing_forest import clustered
from tests.ops.test_row_groups import pca_codes
from tests.support import reference
from tests.support.cases import check_refused
from tests.support.cases import quick
from tests.support.lsh import lsh_sampler
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.indexed import candidate_count
from tfxclass.samplers.indexed import neighbors_a_row
from tfxclass.samplers.replicas import ShardSamplers
from tfxclass.samplers.sampler import finite

CLASSES, DIM = 120, 6


def head_of(sampler, num_classes=CLASSES, similarity="dot", rows=None):
    """A built head whose rows are clustered, unless given."""
    head = layers.SampledSoftmax(
        num_classes, sampler=sampler, similarity=similarity
    )
    head.build((None, DIM))
    rows = clustered(num_classes, DIM, clusters=12) if rows is None else rows
    head.kernel.assign(rows)
    return head


def sample(head, labels, features=None):
    """Ids, counts and positions; one row of features a label by default."""
    labels = np.atleast_2d(np.asarray(labels, np.int64))
    if features is None:
        features = clustered(len(labels), DIM, seed=5)
    queries = head.queries(tf.constant(features))
    result = head.sampler.sample(queries, tf.constant(labels), head.kernel)
    return [np.asarray(part) for part in result[:3]]


def samples(times, head, labels, features):
    """As `sample`, so many times, by a graph."""
    labels = tf.constant(labels, tf.int64)
    queries = head.queries(tf.constant(features))
    step = tf.function(
        lambda: head.sampler.sample(queries, labels, head.kernel)[:3],
        autograph=False,
    )
    return [[part.numpy() for part in step()] for _ in range(times)]


def check_sample(parts, labels, num_sampled, num_classes=CLASSES):
    """What every sampler promises."""
    ids, log_count, positions = parts
    labels = np.atleast_2d(labels)
    assert len(ids) == len(log_count) == num_sampled
    assert len(set(ids.tolist())) == num_sampled
    assert np.all((ids >= 0) & (ids < num_classes))
    assert np.all(positions[labels < 0] == -1)
    np.testing.assert_array_equal(
        ids[positions[labels >= 0]], labels[labels >= 0]
    )
    assert np.all(np.isfinite(log_count)) and np.all(log_count <= 0)


COUNTS = np.arange(CLASSES) % 9


def make(kind, num_sampled=40, **changes):
    arguments = {
        "frequency": {"counts": COUNTS},
        "pca_hash": {"num_bits": 3},
        "kmeans": {"num_groups": 10},
        "top_k": {},
    }[kind]
    cls = {
        "frequency": samplers.FrequencySampler,
        "pca_hash": samplers.PCAHashSampler,
        "kmeans": samplers.KMeansSampler,
        "top_k": samplers.TopKSampler,
    }[kind]
    return cls(num_sampled, **{**arguments, "seed": 3, **changes})


KINDS = ["frequency", "pca_hash", "kmeans", "top_k"]
INDEXED = ["pca_hash", "kmeans"]
each_kind = pytest.mark.parametrize("kind", KINDS)
each_indexed = pytest.mark.parametrize("kind", INDEXED)


@each_kind
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_contract(kind, similarity):
    head = head_of(make(kind), similarity=similarity)
    if kind in INDEXED:
        head.sampler.rebuild(head.kernel)
    labels = [[7, -1], [3, 9], [7, 7], [-1, -1]]
    for _ in range(5):
        check_sample(sample(head, labels), labels, 40)


@each_kind
def test_config_round_trip_through_json(kind):
    sampler = make(kind)
    config = json.loads(
        json.dumps(keras.saving.serialize_keras_object(sampler))
    )
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(sampler)
    for name, value in sampler.get_config().items():
        np.testing.assert_array_equal(again.get_config()[name], value)


class Noisy(samplers.UniformSampler):
    """A sampler of a user, with the arguments of all kinds."""

    def __init__(self, num_sampled=None, noise=0.5, dtype=None, **options):
        super().__init__(num_sampled, dtype=dtype, **options)
        self.noise = noise


def test_config_of_a_sampler_of_a_user():
    sampler = Noisy(8, noise=0.25, dtype="float64", seed=3, name="mine")
    again = Noisy.from_config(json.loads(json.dumps(sampler.get_config())))
    assert (again.num_sampled, again.noise, again.seed) == (8, 0.25, 3)
    assert (again.name, again.dtype) == ("mine", "float64")
    assert again.get_config() == sampler.get_config()


@each_kind
@pytest.mark.parametrize("num_classes", [1, 2, 5])
def test_fewer_classes_than_places(kind, num_classes):
    """And than groups: everything is sampled, so all counts are 1."""
    changes = {"counts": COUNTS[1 : num_classes + 1]}
    changes = changes if kind == "frequency" else {}
    head = head_of(make(kind, **changes), num_classes)
    if kind in INDEXED:
        head.sampler.rebuild(head.kernel)
    parts = sample(head, [[0]])
    check_sample(parts, [[0]], num_classes, num_classes)
    assert np.all(parts[1] == 0)


@each_kind
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_rows(kind, value):
    rows = np.full((CLASSES, DIM), value, np.float32)
    head = head_of(make(kind), rows=rows)
    if kind in INDEXED:
        head.sampler.rebuild(head.kernel)
    check_sample(sample(head, [[4], [9]]), [[4], [9]], 40)


@each_kind
def test_more_labels_than_places(kind):
    head = head_of(make(kind, 3))
    for step, labels in enumerate(([[4], [9], [2], [7], [0]], [[1], [1]])):
        parts = sample(head, labels)
        check_sample(parts, labels, (5, 3)[step])
        if step == 0:
            np.testing.assert_array_equal(parts[0], np.ravel(labels))
    gauges = head.sampler.gauges
    assert float(gauges["overflow_steps"]) == 1
    assert float(gauges["overflow_labels"]) == 5


@each_indexed
def test_nan_rows_are_an_error_that_names_them(kind):
    rows = clustered(CLASSES, DIM)
    rows[3] = np.nan
    head = head_of(make(kind), rows=rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        sample(head, [[0]])


def test_products_of_huge_features_are_finite():
    """An index searches them as ever; rows with NaN or infinity become 0."""
    largest = np.finfo(np.float32).max
    queries = tf.constant(
        [[largest, -largest], [1e20, 1e20], [np.inf, 1], [np.nan, 1], [2, -3]],
        tf.float32,
    )
    found = finite(queries)
    products = tf.matmul(found, found, transpose_b=True).numpy()
    assert np.isfinite(products).all() and (np.diag(products)[:2] > 0).all()
    np.testing.assert_array_equal(found[2:], [[0, 0], [0, 0], [2, -3]])


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.99, 1.0])
def test_candidates_leave_one_class_for_the_fill(fraction):
    """The number of classes may be known in a step only."""
    for count in range(30):
        part = int(candidate_count(count, fraction))
        in_step = candidate_count(
            tf.constant(count, tf.int64), tf.constant(fraction)
        )
        assert part == in_step
        assert part == min(np.ceil(fraction * count), max(count - 1, 0)) or (
            fraction == 1 and part == count
        )


def test_neighbors_for_each_row():
    """A part of the budget, and as many as rows have labels, rounded up."""
    queries = tf.zeros([4, DIM])
    labels = tf.constant([[1, 2], [3, -1], [4, -1], [5, -1]], tf.int64)
    budget = tf.constant(8, tf.int64)

    def wanted(given=None, num_classes=100):
        return int(neighbors_a_row(queries, labels, budget, given, num_classes))

    assert wanted() == 8 // 4 + 2
    assert wanted(num_classes=3) == 3
    assert (wanted(given=9), wanted(given=9, num_classes=5)) == (9, 5)


def test_without_correction_all_classes_of_the_sample_count_alike():
    """The softmax is then restricted to the sample."""
    counts = [
        sample(head_of(make("top_k", correct_fill=correct)), [[0], [1]])[1]
        for correct in (False, True)
    ]
    assert (counts[0] == 0).all() and (counts[1] < 0).any()


def test_nan_features():
    """Where features do not count, or logits rank, the fill takes the
    places."""
    features = np.full((1, DIM), np.nan, np.float32)
    for kind in KINDS:
        head = head_of(make(kind))
        check_sample(sample(head, [[0]], features), [[0]], 40)


@each_indexed
def test_the_first_step_has_an_index(kind):
    head = head_of(make(kind, rebuild_interval=8))
    _, log_count, _ = sample(head, [[0]])
    assert log_count[1] == 0 and log_count[-1] < 0  # a candidate, the fill


@pytest.mark.parametrize("kind", quick(KINDS, ["frequency", "kmeans"]))
def test_sum_of_exponentials_is_unbiased(kind):
    """Given the index, over the draws; also where the candidates do not
    fit."""
    sampler = make(kind, 24, **({} if kind == "frequency" else SMALL))
    head = head_of(sampler)
    if kind in INDEXED:
        sampler.rebuild(head.kernel)
    features = clustered(1, DIM, seed=5)
    logits = (features @ head.kernel.numpy().T)[0] / 4
    estimates = [
        np.exp(logits[ids] - log_count).sum()
        for ids, log_count, _ in samples(600, head, [[5]], features)
    ]
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - np.exp(logits).sum()) < 4 * error
    assert error < 0.05 * np.exp(logits).sum()


SMALL = {"neighbor_fraction": 0.25}


@pytest.mark.slow
def test_frequency_follows_the_power_of_the_counts():
    counts = np.array([0, 1, 16, 81, 0, 256.0])
    for power, least in ((0.75, None), (0.0, None), (0.5, 9.0)):
        relative = np.maximum(counts, least or 1.0) ** power
        sampler = samplers.FrequencySampler(
            2, counts, power=power, min_count=least, seed=0
        )
        head = head_of(sampler, num_classes=6)
        hits = np.zeros(6)
        for ids, _, _ in samples(2000, head, [[0]], np.zeros((1, DIM), "f")):
            hits[ids] += 1
        # Class 0 is the label, and drawn for no other place.
        chance = relative / relative[1:].sum()
        error = 5 * np.sqrt(chance * (1 - chance) / 2000) + 1e-9
        assert np.all(np.abs(hits / 2000 - chance)[1:] <= error[1:])


@pytest.mark.parametrize("power", quick([0.0, 0.75, 1.0], [0.75]))
@pytest.mark.parametrize("min_count", [None, 0.3])
def test_classes_without_a_count_are_in_the_estimate(power, min_count):
    """Of 20 classes with logit 0, 10 of them without a count: Z is 20."""
    counts = np.array([5.0, 50.0] * 5 + [0.0] * 10)
    sampler = samplers.FrequencySampler(
        8, counts, power=power, min_count=min_count, seed=3
    )
    head = head_of(sampler, num_classes=20)
    features = np.zeros((2, DIM), np.float32)
    found = samples(1000, head, [[2], [11]], features)
    z = np.array([np.exp(-log_count).sum() for _, log_count, _ in found])
    error = 4 * z.std() / np.sqrt(len(z))
    assert abs(z.mean() - 20) < error < 5


def test_frequency_draws_do_not_grow_with_the_classes():
    """A draw reads some twenty of 3 million sums: far below a pass."""
    counts = np.random.default_rng(0).pareto(1.2, 3_000_000)
    sampler = samplers.FrequencySampler(500, counts, seed=0)
    sampler.num_classes = len(counts)
    targets = tf.zeros([1, 1], tf.int64)
    sums = np.cumsum(counts)
    seconds = {"pass": [], "draw": []}
    for _ in range(7):
        for name, call in (
            ("pass", lambda: np.cumsum(counts, out=sums)),
            ("draw", lambda: sampler.sample(None, targets, None)),
        ):
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    assert min(seconds["draw"]) < 0.5 * min(seconds["pass"]), seconds


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_top_k_takes_the_greatest_logits(similarity):
    head = head_of(
        make("top_k", 14, neighbor_fraction=1.0, num_neighbors=6),
        similarity=similarity,
    )
    features = clustered(2, DIM, seed=8)
    ids, log_count, _ = sample(head, [[1], [2]], features)
    logits = reference.head_logits(
        features, head.kernel.numpy(), similarity=similarity
    )
    best = set(np.argsort(-logits, axis=1)[:, :6].ravel())
    assert best <= set(ids)
    assert np.all(log_count[np.isin(ids, list(best))] == 0)


def test_top_k_keeps_the_greatest_of_the_batch():
    """More found than places: the best stay, none is drawn."""
    head = head_of(make("top_k", 8, neighbor_fraction=0.5, num_neighbors=9))
    features = clustered(3, DIM, seed=8)
    labels = [[1], [1], [1]]
    best = (features @ head.kernel.numpy().T).max(axis=0)
    best[1] = -np.inf
    for ids, _, _ in samples(5, head, labels, features):
        assert set(ids[1:5]) == set(np.argsort(-best)[:4])


@pytest.mark.parametrize("labels_wide", [1, 2])
def test_a_row_that_finds_its_own_labels_looks_on(labels_wide):
    """Places for as many classes a row as it has labels, two of them free:
    the nearest that are no labels."""
    number = 3 * labels_wide
    head = head_of(make("top_k", number + 2, neighbor_fraction=1.0))
    labels = np.arange(number).reshape(3, labels_wide)
    rows = np.eye(DIM, dtype=np.float32)[np.arange(CLASSES) % DIM]
    rows *= np.linspace(2, 1, CLASSES)[:, np.newaxis]
    head.kernel.assign(rows)
    features = rows[labels].sum(axis=1)
    ids, log_count, _ = sample(head, labels, features)
    logits = (features @ rows.T).max(axis=0)
    logits[labels] = -np.inf
    assert set(ids[number:]) == set(np.argsort(-logits)[:2])
    assert not log_count.any()


@pytest.mark.parametrize("kind", ["kmeans", "pca_hash"])
def test_negatives_share_a_group_with_a_label(kind):
    head = head_of(make(kind, neighbor_fraction=0.5))
    head.sampler.rebuild(head.kernel)
    labels = np.array([[5], [77]])
    ids, log_count, _ = sample(head, labels)
    index = head.sampler.index
    seed = tf.constant([0, 0], tf.int64)
    group = set(index.members(labels, CLASSES, seed).numpy())
    chosen = ids[2:][log_count[2:] == 0]
    assert (
        set(chosen) == group - {5, 77}
        if len(group) <= 21
        else (len(chosen) == 19 and set(chosen) <= group)
    )
    if kind == "pca_hash":
        codes, _ = pca_codes(head.kernel.numpy(), 3)
        assert group == set(np.flatnonzero(np.isin(codes, codes[labels])))


@pytest.mark.parametrize("kind", INDEXED)
def test_class_vectors_of_nan_do_not_end_a_run(kind):
    """The index stays as it was; Keras' TerminateOnNaN is for the rest."""
    sampler = make(kind, rebuild_interval=4)
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizers.LazySGD(0.5), loss=head.loss)
    x, y = clustered(64, DIM), np.arange(64)
    x[30, 2] = np.nan
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert np.isnan(head.kernel.numpy()).any()
    assert model.optimizer.iterations == 16


@pytest.mark.parametrize("kind", quick(INDEXED, []))
def test_resumed_in_the_middle_goes_on_bit_for_bit(kind, tmp_path):
    changes = {"rebuild_interval": 8}
    x, y = clustered(64, DIM), np.arange(64)

    def fit(model, steps):
        history = model.fit(
            x[: 8 * steps],
            y[: 8 * steps],
            batch_size=8,
            shuffle=False,
            verbose=0,
        )
        return history.history["loss"]

    for before in (1, 5, 8):  # a build is under way, or has just swapped
        keras.utils.set_random_seed(2)
        head = layers.SampledSoftmax(CLASSES, sampler=make(kind, **changes))
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(keras.optimizers.SGD(0.5), loss=head.loss)
        fit(model, before)
        path = str(tmp_path / f"{kind}_{before}.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
        for _ in range(2):
            assert fit(model, 8) == fit(loaded, 8)
        states = [m.layers[-1].sampler.index.state() for m in (model, loaded)]
        assert states[0]["ready"].size > 0
        for name in states[0]:
            np.testing.assert_array_equal(states[0][name], states[1][name])


@pytest.mark.parametrize(
    "name", ["top_k", "pca_hash", "kmeans", "hashing_forest", "auto"]
)
def test_short_names(name):
    head = layers.SampledSoftmax(CLASSES, 40, sampler=name, seed=4)
    head.build((None, DIM))
    x, y = clustered(16, DIM), np.arange(16)
    assert np.all(np.isfinite(head.compute_loss(x, y, training=True)))
    assert head.sampler.num_sampled == 40 and head.sampler.seed == 4


WHOLE = {
    "forest": (
        samplers.HashingForestSampler,
        ("num_trees", "leaf_size", "num_candidates", "rebuild_interval"),
    ),
    "lsh": (
        lsh_sampler,
        (
            "num_hashes",
            "num_tables",
            "bin_size",
            "bucket_size",
            "redraw_interval",
            "rebuild_interval",
        ),
    ),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_floats_are_ints(kind):
    """As 1e2 is in a file of settings."""
    make, names = WHOLE[kind]
    sampler = make(40.0, **dict.fromkeys(names, 4.0))
    config = sampler.get_config()
    config.update(config.get("tables", {"config": {}})["config"])
    for name in ("num_sampled", *names):
        assert type(config[name]) is int
    sample(head_of(sampler), np.arange(9))


@pytest.mark.parametrize("name", [["uniform"], "forest", 3])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="`sampler` must be one of"):
        layers.SampledSoftmax(CLASSES, 40, sampler=name)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (layers.SampledSoftmax, samplers.AutoSampler),
        (layers.SelectiveSoftmax, samplers.HashingForestSampler),
        (layers.LSHSoftmax, samplers.LSHSampler),
        (layers.NoiseContrastive, samplers.UniformSampler),
        (layers.NegativeSampling, samplers.UniformSampler),
    ],
)
def test_no_sampler_is_the_default_of_the_head(kind, expected):
    sampler = kind(CLASSES, 40, sampler=None).sampler
    assert type(sampler) is expected and sampler.num_sampled == 40


def test_replicas_that_draw_alone_never_repeat_a_seed(monkeypatch):
    """Nor one that another had, or will have, in another step."""
    seeds = []
    for number in range(3):
        context = types.SimpleNamespace(
            num_replicas_in_sync=3, replica_id_in_sync_group=number
        )
        monkeypatch.setattr(
            tf.distribute, "get_replica_context", lambda c=context: c
        )
        sampler = samplers.UniformSampler(40, seed=5)
        seeds += [tuple(sampler.next_seed().numpy()) for _ in range(5)]
    assert len(set(seeds)) == 15


def shards_of(sampler, num_classes, count):
    """`ShardSamplers` of equal shards, in this process."""
    size = -(-num_classes // count)
    starts = list(range(0, num_classes, size))
    rows = {
        i: ClassRows(
            keras.Variable(np.zeros((size, DIM))),
            first=starts[i],
            size=min(size, num_classes - starts[i]),
        )
        for i in range(count)
    }
    head = types.SimpleNamespace(
        name="head",
        num_classes=num_classes,
        num_negatives=0,
        shards=types.SimpleNamespace(count=count, starts=starts),
        class_matrix=types.SimpleNamespace(rows_by_shard=lambda: rows),
    )
    return ShardSamplers(sampler, head)


def sample_of_shard(shard_samplers, number):
    batch = types.SimpleNamespace(shard=None)
    none = tf.constant([[-1]], tf.int64)
    return shard_samplers.sample(batch, tf.zeros([1, DIM]), none, number)


def test_shards_draw_by_themselves():
    shards = shards_of(samplers.UniformSampler(400, seed=5), 2000, 4)
    drawn = [set(sample_of_shard(shards, i).ids.numpy()) for i in range(4)]
    assert [len(ids) for ids in drawn] == [100] * 4
    # Of 100 and 100 of 500 rows 20 are the same, by chance, give or take 3.6.
    for a, b in itertools.combinations(drawn, 2):
        assert 2 < len(a & b) < 38


@pytest.mark.parametrize("kind", ["frequency", "log_uniform"])
def test_shards_draw_by_the_law_of_all(kind):
    """Of 25 classes in shards of 9, the last one with padding."""
    counts = np.random.default_rng(0).permutation(25) / 2.0
    sampler, law = {
        "frequency": (
            samplers.FrequencySampler(12, counts, power=0.5, seed=1),
            np.maximum(counts, 0.5) ** 0.5,
        ),
        "log_uniform": (
            samplers.LogUniformSampler(12, seed=1),
            np.log1p(1 / np.arange(1, 26)),
        ),
    }[kind]
    shards = shards_of(sampler, 25, 3)
    for number in range(3):
        own = law[9 * number : 9 * number + 9]
        if number:  # the first one's log-uniform law is that of all
            sums = shards._samplers[number]._cumulative
            found = np.diff(sums, prepend=0.0)[: len(own)]
            np.testing.assert_allclose(found / found[0], own / own[0])
        z = []
        for _ in range(60):
            sample = sample_of_shard(shards, number)
            assert len(sample.ids) == 4
            inside = sample.ids.numpy() < len(own)
            z.append(np.sum(np.exp(-sample.log_expected_count)[inside]))
        # The estimate of how many classes there are; padding counts nothing.
        assert abs(np.mean(z) - len(own)) < 5 * np.std(z) / np.sqrt(60)


def test_counts_are_of_all_shards_together():
    sampler = samplers.FrequencySampler(12, np.ones(26))
    with pytest.raises(ValueError, match="26 numbers with num_classes=25"):
        shards_of(sampler, 25, 3)


INVALID = {
    "counts_rank": (
        lambda: samplers.FrequencySampler(3, [[1, 2]]),
        ["`counts` must have shape [num_classes]", "(1, 2)"],
    ),
    "counts_negative": (
        lambda: samplers.FrequencySampler(3, [1, -2.5]),
        ["`counts` must be finite and >= 0", "-2.5 for class 1"],
    ),
    "counts_nan": (
        lambda: samplers.FrequencySampler(3, [float("nan"), 1]),
        ["`counts` must be finite", "nan for class 0"],
    ),
    "counts_zero": (
        lambda: samplers.FrequencySampler(3, [0, 0]),
        ["`counts` must not all be zero", "2 counts"],
    ),
    "counts_none": (
        lambda: samplers.FrequencySampler(3, []),
        ["`counts` must not all be zero", "0 counts"],
    ),
    "counts_length": (
        lambda: head_of(samplers.FrequencySampler(3, [1, 2])),
        ["`counts`", "2 numbers with num_classes=120"],
    ),
    "power": (
        lambda: samplers.FrequencySampler(3, [1], power=-1),
        ["`power` must be finite and >= 0", "-1"],
    ),
    "min_count": (
        lambda: samplers.FrequencySampler(3, [1], min_count=0.0),
        ["`min_count` must be finite and > 0", "0.0"],
    ),
    "num_bits": (
        lambda: samplers.PCAHashSampler(3, num_bits=31),
        ["`num_bits` must be at most 30", "31"],
    ),
    "num_bits_zero": (
        lambda: samplers.PCAHashSampler(3, num_bits=0),
        ["`num_bits` must be a positive integer"],
    ),
    "num_groups": (
        lambda: samplers.KMeansSampler(3, num_groups=0),
        ["`num_groups` must be a positive integer"],
    ),
    "kmeans_interval": (
        lambda: samplers.KMeansSampler(3, rebuild_interval=0),
        ["`rebuild_interval` must be a positive integer"],
    ),
    "num_neighbors": (
        lambda: samplers.TopKSampler(3, num_neighbors=0),
        ["`num_neighbors` must be a positive integer"],
    ),
    "neighbor_fraction": (
        lambda: samplers.TopKSampler(3, neighbor_fraction=0.0),
        ["`neighbor_fraction` must be in (0, 1]", "0.0"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    check_refused(*INVALID[name])
