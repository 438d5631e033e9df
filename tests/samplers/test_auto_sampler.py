"""AutoSampler: what it measures, when it switches, and back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.ops.test_hashing_forest import clustered
from tests.support import gpu
from tests.support import reference
from tfxclass import layers
from tfxclass import samplers
from tfxclass.rows import blocks
from tfxclass.rows.blocks import effective_classes
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers import sampler as sampler_lib

CLASSES, DIM, SAMPLED = 400, 8, 60


def built(rows=None, sampled=SAMPLED, similarity="dot", **options):
    sampler = samplers.AutoSampler(sampled, seed=3, **options)
    head = layers.SampledSoftmax(
        CLASSES, sampler=sampler, similarity=similarity
    )
    head.build((None, DIM))
    head.kernel.assign(clustered(CLASSES, DIM) if rows is None else rows)
    return head


def step(head, features, labels):
    sample = head.sampler.sample(
        tf.constant(features), tf.constant(labels)[:, None], head.kernel
    )
    head.sampler.update(head.kernel, sample.ids)
    return sample


def measured(head):
    return {name: float(v) for name, v in head.sampler.measured.items()}


@pytest.fixture
def probe_each_step(monkeypatch):
    monkeypatch.setattr(sampler_lib, "PROBE_SHARE", 1.0)


@pytest.mark.parametrize("least_block", [7, 1024])
@pytest.mark.parametrize("normalize", [False, True])
def test_effective_classes_equal_numpy(normalize, least_block, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 1)
    monkeypatch.setattr(blocks, "LEAST_BLOCK", least_block)
    rows, queries = clustered(50, DIM), 3 * clustered(5, DIM, seed=4)
    labels = np.array([[3, -1], [7, 8], [-1, -1], [0, 49], [4, -1]])
    found = effective_classes(
        tf.constant(queries),
        tf.constant(labels),
        ClassRows(tf.constant(rows), normalize=normalize),
        num_best=3,
    )
    unit = reference.normalized(rows) if normalize else rows
    p = reference.softmax(queries.astype(np.float64) @ unit.T)
    k_eff, missed, counts, best = (part.numpy() for part in found)
    assert counts.tolist() == [True, True, False, True, True]
    for i, row in enumerate(labels):
        others = np.delete(p[i], row[row >= 0])
        if counts[i]:
            np.testing.assert_allclose(
                k_eff[i], others.sum() ** 2 / (others**2).sum(), rtol=1e-4
            )
            np.testing.assert_allclose(missed[i], others.sum(), rtol=1e-4)
    assert (k_eff[2], missed[2]) == (1.0, 0.0)
    assert best.tolist() == np.argsort(-p, axis=1)[:, :3].tolist()


@pytest.mark.parametrize("classes", [500, 2000])
def test_one_block_needs_no_loop(classes, monkeypatch):
    """Where no more queries than so many are known to be there."""
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 1)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2]),
            tf.TensorSpec([None, 1], tf.int64),
        ]
    )
    def measured(queries, labels):
        rows = ClassRows(tf.ones([classes, 2]))
        return effective_classes(queries, labels, rows, max_queries=4).k_eff

    found = measured(tf.ones([3, 2]), tf.constant([[0], [1], [-1]], tf.int64))
    np.testing.assert_allclose(found, [classes - 1] * 2 + [1], rtol=1e-5)
    ops = {
        op.type
        for op in measured.get_concrete_function().graph.get_operations()
    }
    is_one = classes <= blocks.LEAST_BLOCK
    assert ops.isdisjoint({"While", "StatelessWhile"}) == is_one


def test_a_class_alone_has_no_negatives():
    _, missed, counts, _ = effective_classes(
        tf.ones([1, 2]),
        tf.constant([[0]], tf.int64),
        ClassRows(tf.ones([1, 2])),
    )
    assert not counts[0] and missed[0] == 0


def test_v_is_the_variance_of_the_estimate_of_the_mass(probe_each_step):
    """Over uniform draws with replacement, of the negatives' mass."""
    head = built()
    features = clustered(1, DIM, seed=6)
    step(head, features, np.array([5]))
    mass = np.exp((features @ head.kernel.numpy().T)[0].astype(np.float64))
    mass[5] = 0
    m = SAMPLED - 1
    relative = CLASSES * (mass**2).sum() / mass.sum() ** 2 / m
    np.testing.assert_allclose(measured(head)["v"], relative, rtol=1e-4)
    draws = np.random.default_rng(0).integers(0, CLASSES, (20_000, m))
    estimates = CLASSES * mass[draws].mean(axis=1)
    variance = estimates.var() / mass.sum() ** 2
    # v counts the square of the mean, too, a 1 / m.
    np.testing.assert_allclose(variance, relative - 1 / m, rtol=0.06)


def test_v_is_of_the_places_that_all_labels_of_a_batch_leave(
    probe_each_step,
):
    """Also of those rows that are not probed."""
    head = built(sampled=50)
    step(head, clustered(40, DIM, seed=6), np.arange(40))
    found = measured(head)
    few = built(sampled=26)
    step(few, clustered(40, DIM, seed=6)[:16], np.arange(16))
    # Ten classes are left in either; k_eff leaves the row's own label out.
    np.testing.assert_allclose(found["v"], measured(few)["v"], rtol=1e-5)


def test_uniform_while_that_is_nearly_exact(probe_each_step):
    """And then it is a UniformSampler, without an index."""
    rows = np.random.default_rng(0).normal(size=(CLASSES, DIM)) * 0.1
    head = built(rows.astype(np.float32))
    uniform = layers.SampledSoftmax(
        CLASSES, sampler=samplers.UniformSampler(SAMPLED, seed=3)
    )
    uniform.build((None, DIM))
    for n in range(6):
        features, labels = clustered(12, DIM, seed=n), np.arange(12)
        ours = step(head, features, labels)
        theirs = step(uniform, features, labels)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(
            ours.log_expected_count, theirs.log_expected_count
        )
    found = measured(head)
    assert found["choice"] == 0 and found["k_eff"] > 0.5 * CLASSES
    assert head.sampler.index.state()["ready"].size == 0


def test_neighbours_while_a_model_knows_nothing(probe_each_step):
    """Labels far from their features: other classes have all of the mass."""
    head = built(sampled=36)
    step(head, 8 * head.kernel.numpy()[100:112], np.arange(12))
    assert measured(head)["noise"] > 5 and measured(head)["choice"] == 1


def test_probes_come_sooner_at_first(monkeypatch):
    """At a half of the interval, a quarter, ... and then one in each."""
    monkeypatch.setattr(sampler_lib, "PROBE_SHARE", 0.0069)
    head = built(sampled=36)
    probed = []

    def note(*_):
        tf.py_function(lambda now: probed.append(int(now)), [step_number], [])

    step_number = head.sampler.step.value
    head.sampler._probe = note
    features = head.kernel.numpy()[100:112]
    next_step = tf.function(
        lambda: step(head, features, np.arange(12)), autograph=False
    )
    for _ in range(330):
        next_step()
    assert probed == [0, 3, 6, 12, 25, 50, 100, 200, 300]


def test_a_forest_where_there_is_no_cache(probe_each_step, monkeypatch):
    """As on a GPU or in a shard."""
    monkeypatch.setattr(samplers.AutoSampler, "may_cache", False)
    head = built(sampled=36)
    for _ in range(3):
        step(head, 8 * head.kernel.numpy()[100:112], np.arange(12))
    assert measured(head)["choice"] == 1 and measured(head)["recall"] > 0
    assert head.sampler.index.state()["ready"].size > 0


def test_neighbours_where_few_classes_have_the_mass_and_back(probe_each_step):
    """Each label has a twin, which is a label at other steps. Once labels have
    the mass: uniform again."""
    rows = reference.normalized(clustered(CLASSES, DIM)).astype(np.float32)
    rows[:12] = rows[100:112]
    head = built(rows, sampled=48)
    labels, twins = np.arange(12), np.arange(100, 112)
    choices, recalls = [], []
    for n in range(8):
        order = np.roll(np.arange(12), n)
        batch = (labels, twins)[n % 2][order]
        sample = step(head, 150 * rows[batch], batch)
        choices.append(measured(head)["choice"])
        recalls.append(measured(head)["recall"])
    assert set(choices) == {1}, measured(head)
    assert head.sampler.index.state()["ready"].size == 0
    counts = sample.log_expected_count.numpy()
    found = sample.ids.numpy()[counts == 0]
    # Rows that are equal have a bucket in common.
    assert np.isin(labels, found).all()
    assert recalls[0] == 0 and 0.1 < recalls[-1] <= 1
    certain = 3000 * rows[200:212]
    labels = np.argmax(certain @ rows.T, axis=1)
    for _ in range(12):
        step(head, certain, labels)
        choices.append(measured(head)["choice"])
    later = choices[8:]
    assert later[-1] == 0 and sorted(later, reverse=True) == later


@gpu.skip('"auto" has no memory of neighbors')
@pytest.mark.parametrize(("label", "expected"), [(5, 0.5), (300, 1.0)])
def test_the_cached_neighbors_of_all_labels_of_a_row_count(
    probe_each_step, label, expected
):
    """Of eight best classes half are of one label's, half of the other's."""
    head = built()
    rows = head.kernel.numpy()
    query = 3 * rows[7:8]
    labels = np.array([[7, label]])
    order = np.argsort(-(query @ rows.T)[0])
    best = [c for c in order.tolist() if c not in labels][:8]
    memory = np.full((CLASSES, 10), -1)
    memory[7] = [7, 0, *best[:4], *[-1] * 4]
    memory[300] = [300, 0, *best[4:], *[-1] * 4]
    head.sampler.neighbor_cache.weight.assign(memory)
    head.sampler.sample(tf.constant(query), tf.constant(labels), head.kernel)
    assert measured(head)["recall"] == expected


@gpu.skip('"auto" has no memory of neighbors')
def test_neighbors_of_given_negatives_are_not_cached(probe_each_step):
    """The recall is of what the labels of a sample are known to be near."""
    head = built()
    rows = head.kernel.numpy()
    query = 3 * rows[7:8]
    negative, label = 300, 7
    order = np.argsort(-(query @ rows.T)[0])
    best = [c for c in order.tolist() if c not in (negative, label)][:8]
    memory = np.full((CLASSES, 10), -1)
    memory[label] = [label, 0, *best[:4], *[-1] * 4]
    memory[negative] = [negative, 0, *best[4:], *[-1] * 4]
    head.sampler.neighbor_cache.weight.assign(memory)
    head.sampler.num_negatives = 1
    ids = tf.constant([[negative, label]], tf.int64)
    head.sampler.sample(tf.constant(query), ids, head.kernel)
    assert measured(head)["recall"] == 0.5


def test_lengths_of_class_vectors_do_not_count_under_cosine(probe_each_step):
    rows = clustered(CLASSES, DIM)
    lengths = np.random.default_rng(0).uniform(0.1, 10.0, (CLASSES, 1))
    features, labels = clustered(12, DIM, seed=5), np.arange(12)
    found = []
    for matrix in (rows, rows * lengths):
        head = built(matrix, similarity="cosine")
        step(head, head.queries(tf.constant(features)), labels)
        found.append(measured(head)["k_eff"])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_a_shard_asks_a_forest():
    sampler = samplers.AutoSampler(9, seed=1).for_rows(
        0, 50, num_sampled=9, seed=1
    )
    assert sampler.searched_fraction() == 1


def test_no_noise_where_all_classes_are_computed(probe_each_step):
    head = layers.SampledSoftmax(30, 30, sampler="auto", seed=1)
    head.build((None, DIM))
    head.kernel.assign(9 * clustered(30, DIM))
    step(head, clustered(4, DIM), np.arange(4))
    assert measured(head)["v"] == measured(head)["choice"] == 0


def test_the_choice_rises_at_a_threshold_and_falls_below_half_of_it():
    sampler = built().sampler
    for now, level, expected in [
        (0, 0.9, 0), (0, 1.0, 1), (0, 9.0, 1), (1, 0.6, 1), (1, 0.4, 0),
    ]:  # fmt: skip
        sampler.measured["choice"].assign(float(now))
        level = tf.constant(level, tf.float64)
        assert float(sampler._choose(level)) == expected, (now, level)


@pytest.mark.parametrize("fraction", [0.5, 0.9])
def test_the_part_of_the_places(fraction):
    head = built(neighbor_fraction=fraction)
    for choice in (0, 1):
        head.sampler.measured["choice"].assign(float(choice))
        budget = head.sampler.candidate_budget(tf.constant(SAMPLED))
        assert int(budget) == int(choice * fraction * SAMPLED)
        share = float(head.sampler.candidate_share())
        assert share == pytest.approx(choice * fraction)


def test_resumed_goes_on_bit_for_bit(tmp_path, probe_each_step):
    # Pairs of classes that nothing tells apart.
    random = np.random.default_rng(0)
    pairs = np.arange(40 * 8) % 10
    x = 2 * random.normal(size=(10, DIM))[pairs]
    y = 2 * pairs + random.integers(0, 2, len(pairs))

    def fit(model, first, last):
        part = slice(8 * first, 8 * last)
        log = tfxclass.callbacks.SamplerLog()
        history = model.fit(
            x[part], y[part], 8, shuffle=False, verbose=0, callbacks=[log]
        )
        return history.history["loss"], history.history["choice"]

    keras.utils.set_random_seed(2)
    sampler = samplers.AutoSampler(SAMPLED, seed=3)
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(keras.optimizers.SGD(0.5), loss=head.loss)
    fit(model, 0, 1)
    model.save(tmp_path / "1.keras")
    before = fit(model, 1, 9)
    model.save(tmp_path / "9.keras")
    after = fit(model, 9, 40)
    assert after[1][0] > 0  # it switched
    early = keras.saving.load_model(tmp_path / "1.keras")
    assert fit(early, 1, 9) == before
    late = keras.saving.load_model(tmp_path / "9.keras")
    for loaded in (early, late):
        assert fit(loaded, 9, 40) == after
        assert measured(loaded.layers[-1]) == measured(head)


def test_config_round_trip():
    sampler = samplers.AutoSampler(9, neighbor_fraction=0.25, seed=1)
    config = sampler.get_config()
    again = samplers.AutoSampler.from_config(config)
    assert again.get_config() == config
    assert (again.num_sampled, again.neighbor_fraction) == (9, 0.25)
