"""LSHSampler and LSHSoftmax: what a batch's classes are and count for."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.ops.test_lsh import brute_force
from tests.ops.test_lsh import normal
from tests.support import reference
from tests.support.cases import quick
from tests.support.lsh import lsh_sampler
from tfxclass.layers import Cosine
from tfxclass.layers import LSHSoftmax
from tfxclass.layers import SampledSoftmax
from tfxclass.samplers import LSHSampler
from tfxclass.samplers import LSHTables
from tfxclass.samplers.schedule import FixedSchedule

CLASSES, DIM, BATCH = 60, 8, 6
# So few collisions that the union of a batch fits.
HASHING = {"num_hashes": 5, "num_tables": 4}


def lsh_head(num_classes, num_sampled, **options):
    """A head with any of the sampler's options."""
    sampler = lsh_sampler(min(num_sampled, num_classes), **options)
    return SampledSoftmax(num_classes, sampler=sampler)


def make_head(num_sampled=40, num_classes=CLASSES, ready=True, **options):
    """A head with random rows, and tables of them that all rows read."""
    options = {
        **HASHING,
        "query_fraction": 1.0,
        "bucket_size": None,
        "rebuild_interval": 50,
        "seed": 5,
        **options,
    }
    head = lsh_head(num_classes, num_sampled, **options)
    head.build((None, DIM))
    head.kernel.assign(normal(num_classes, DIM, seed=1))
    if ready:
        head.sampler.rebuild(head.kernel)
        # The refresh of step 0 would be of other functions' tables.
        head.sampler.index.advance = lambda *args, **kwargs: None
    return head


def batch(labels_wide=1, num_classes=CLASSES, rows=BATCH, seed=3):
    labels = np.random.default_rng(seed).integers(
        0 if labels_wide == 1 else -1, num_classes, (rows, labels_wide)
    )
    return normal(rows, DIM, seed=seed), labels


def sample_of(head, features, labels):
    sample = head.sampler.sample(
        head.queries(features), tf.constant(labels), head.kernel
    )
    return sample._replace(ids=sample.ids.numpy())


def buckets_of(head, features, labels):
    """What brute force finds for each row, bool `[batch, num_classes]`."""
    rows = head.kernel.numpy()
    hashing = {name: getattr(head.sampler.tables, name) for name in HASHING}
    if head.sampler.scheme == "embedding":
        shared = brute_force(rows, features, hashing, seed=5)
        return shared.any(axis=0)
    found = np.zeros((len(labels), len(rows)), bool)
    for i, row in enumerate(labels):
        ids = reference.distinct_labels(row)
        if ids:
            shared = brute_force(rows, rows[ids], hashing, seed=5)
            found[i] = shared.any(axis=(0, 1))
    return found


each_scheme = pytest.mark.parametrize("scheme", ["embedding", "label"])


@each_scheme
@pytest.mark.parametrize("labels_wide", [1, 3])
def test_labels_then_the_union_of_buckets_then_a_fill(scheme, labels_wide):
    head = make_head(CLASSES - 3, scheme=scheme, neighbor_fraction=1.0)
    features, labels = batch(labels_wide, rows=2)
    sample = sample_of(head, features, labels)
    targets = list(dict.fromkeys(labels[labels >= 0]))
    union = buckets_of(head, features, labels).any(axis=0)
    union[targets] = False
    union = set(np.flatnonzero(union))
    n = len(targets)
    assert 0 < len(union) < CLASSES - 3 - n
    assert list(sample.ids[:n]) == targets
    assert set(sample.ids[n : n + len(union)]) == union
    assert len(set(sample.ids)) == len(sample.ids) == CLASSES - 3
    filled = CLASSES - 3 - n - len(union)
    expected = np.zeros(CLASSES - 3)
    expected[n + len(union) :] = np.log(filled / (filled + 3))
    np.testing.assert_allclose(sample.log_expected_count, expected, rtol=1e-5)


def test_a_union_that_is_too_large_leaves_room_for_the_fill():
    head = make_head(30, neighbor_fraction=0.5)
    features, labels = batch()
    sample = sample_of(head, features, labels)
    assert len(sample.ids) == 30
    counts = sample.log_expected_count.numpy()
    num_labels = len(np.unique(labels))
    num_kept = num_labels + math.ceil((30 - num_labels) / 2)
    assert np.all(counts[:num_kept] == 0)
    assert np.all(counts[num_kept:] < 0)


@each_scheme
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("labels_wide", [1, 3])
def test_the_classes_that_the_batch_gives_most_probability_stay(
    scheme, similarity, labels_wide
):
    """Of all classes, where the tables give all: one bit in 20 tables."""
    head = make_head(25, scheme=scheme, num_hashes=1, num_tables=20)
    head.cosine = Cosine() if similarity == "cosine" else None
    head.sampler.normalize = similarity == "cosine"
    features, labels = batch(labels_wide)
    features *= 2
    # Rows without labels, as of a mask, have no loss and so no say.
    others = 9 * normal(BATCH, DIM, seed=7)
    features = np.concatenate([features, others])
    labels = np.concatenate([labels, np.full_like(labels, -1)])
    sample = sample_of(head, features, labels)
    rows = head.kernel.numpy().astype(np.float64)
    if similarity == "cosine":
        rows = reference.normalized(rows)
    logits = head.queries(features).numpy() @ rows.T
    negatives = np.delete(np.arange(CLASSES), np.unique(labels[labels >= 0]))
    mass = np.zeros(len(negatives))
    for of_row, given in zip(logits, labels, strict=True):
        if not (given >= 0).any():
            continue
        p = np.exp(of_row - of_row.max())
        # A label that is given twice counts twice.
        mine = p[given[given >= 0]].sum()
        mass += p[negatives] / (p[negatives].sum() + mine)
    number = len(np.unique(labels[labels >= 0]))
    best = negatives[np.argsort(-mass)[: math.ceil((25 - number) / 2)]]
    kept = sample.ids[number : number + len(best)]
    assert set(kept) == set(best)
    assert np.all(sample.log_expected_count.numpy()[: number + len(best)] == 0)


def test_votes_alone_decide_as_in_the_paper():
    """Without the fill's correction; with it, the logits decide."""
    features, labels = batch()
    chosen = [
        sample_of(make_head(20, correction=correction), features, labels).ids
        for correction in ("none", "fill")
    ]
    assert set(chosen[0]) != set(chosen[1])


def test_the_first_step_has_tables():
    head = make_head(20, ready=False, seed=0)
    features, labels = batch(rows=1)
    sample = sample_of(head, features, labels)
    assert sample.log_expected_count[1] == 0  # a candidate


@each_scheme
@pytest.mark.parametrize("labels_wide", [1, 3])
@pytest.mark.parametrize("correction", ["fill", "none"])
def test_per_sample_loss_is_the_masked_softmax(scheme, labels_wide, correction):
    """Each row's softmax covers its labels and its own buckets; one with
    empty buckets covers the batch's classes."""
    make = functools.partial(
        make_head,
        CLASSES - 2,
        scheme=scheme,
        negatives="sample",
        correction=correction,
        neighbor_fraction=1.0,
        num_hashes=12,
    )
    head = make()
    features, labels = batch(labels_wide, rows=12)
    if labels_wide > 1:
        labels[4] = -1
    sample = sample_of(head, features, labels)
    own = buckets_of(head, features, labels)
    ids = sample.ids
    logits = features.astype(np.float64) @ head.kernel.numpy()[ids].T
    logits -= sample.log_expected_count.numpy()
    columns = {c: i for i, c in enumerate(ids)}
    expected, num_empty = [], 0
    for i, row in enumerate(labels):
        targets = reference.distinct_labels(row)
        negatives = set(np.flatnonzero(own[i])) & set(ids) - set(targets)
        seen = set(targets) | (negatives or set(ids))
        num_empty += not negatives
        np.testing.assert_array_equal(sample.mask[i], np.isin(ids, list(seen)))
        if not targets:
            expected.append(0.0)
            continue
        kept = [columns[c] for c in seen]
        total = reference.logsumexp(logits[i : i + 1, kept])[0]
        expected.append(total - logits[i, [columns[c] for c in targets]].mean())
    assert 0 < num_empty < 12
    # Another head of the same seed draws the same sample.
    losses = make().compute_loss(features, labels, training=True)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("negatives", ["batch", "sample"])
@each_scheme
def test_weights_have_no_gradient(negatives, scheme):
    head = make_head(50, negatives=negatives, scheme=scheme)
    features, labels = batch()
    sample = sample_of(head, features, labels)
    again = make_head(50, negatives=negatives, scheme=scheme)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(
            again.compute_loss(features, labels, training=True)
        )
    gradient = tape.gradient(loss, again.kernel.value)
    gradient = tf.convert_to_tensor(gradient).numpy()
    logits = features @ head.kernel.numpy()[sample.ids].T
    logits -= sample.log_expected_count.numpy()
    if sample.mask is not None:
        logits = np.where(sample.mask, logits, -np.inf)
    at_logits = reference.softmax(logits) - (sample.ids == labels)
    expected = np.zeros((CLASSES, DIM))
    expected[sample.ids] = at_logits.T @ features
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.05, 0.4])
def test_the_interval_grows_exponentially(decay):
    schedule = FixedSchedule(50, decay)
    step, steps, intervals = 0, [], []
    for _ in range(12):
        steps.append(step)
        refresh = schedule.refresh(tf.constant(step, tf.int64), 1e6)
        intervals.append(int(refresh["interval"]))
        step += intervals[-1]
    # Each interval is cut to an integer.
    expected = 50 * np.exp(decay * np.arange(12))
    np.testing.assert_allclose(intervals, expected, rtol=0.02, atol=1)
    assert intervals[0] == 50
    assert np.all(np.diff(intervals) > 0) == (decay > 0)


def test_fit_refreshes_from_the_rows_it_sampled():
    """With plain `fit`, tables are those of all rows as they were when the
    last refresh began, though only sampled rows were hashed again."""
    head = lsh_head(
        CLASSES, 20, **HASHING, bucket_size=None, rebuild_interval=4,
        decay=0.0, redraw_interval=None, seed=5,
    )  # fmt: skip
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.05), loss=head.loss)
    kernels = []
    fresh = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda step, logs: kernels.append(
            head.kernel.numpy()
        )
    )
    x, y = batch(rows=8 * 14)
    model.fit(
        x, y[:, 0], batch_size=8, verbose=0, shuffle=False, callbacks=[fresh]
    )
    # 14 steps: refreshes at 0, 4, 8, 12; at 12 that of 8 is swapped in.
    other = lsh_head(CLASSES, 20, **HASHING, bucket_size=None, seed=5)
    other.build((None, DIM))
    other.kernel.assign(kernels[8])
    other.sampler.rebuild(other.kernel)
    probed = tf.range(4, dtype=tf.int64)
    queries, valid = tf.constant(x[:, None]), tf.ones([len(x), 1], tf.bool)
    ids = tf.range(CLASSES, dtype=tf.int64)
    masks = [
        h.sampler.index.members(queries, valid, probed, ids).numpy()
        for h in (head, other)
    ]
    np.testing.assert_array_equal(*masks)
    touched = head.sampler.index.state()["touched"]
    moved = np.flatnonzero((kernels[12] != head.kernel.numpy()).any(axis=1))
    assert set(moved) <= set(touched) and len(touched) < CLASSES


@pytest.mark.parametrize(
    "hash", quick(["simhash", "sparse_simhash", "dwta"], ["simhash", "dwta"])
)
@pytest.mark.parametrize("value", quick([0.0, 1.0], [0.0]))
def test_odd_rows_and_features_train(hash, value):
    """Zero vectors, rows that are all equal, few classes, one class."""
    for num_classes, num_sampled in ((30, 10), (3, 10), (1, 5)):
        options = {"num_hashes": 2, "num_tables": 3, "rebuild_interval": 1}
        head = LSHSoftmax(
            num_classes,
            sampler=lsh_sampler(num_sampled, hash_family=hash, **options),
            kernel_initializer=keras.initializers.Constant(value),
        )
        head.build((None, DIM))
        optimizer = tfxclass.optimizers.LazyAdam(0.01)
        x = np.full((4, DIM), value, np.float32)
        y = np.arange(4) % num_classes
        for _ in range(6):
            with tf.GradientTape() as tape:
                losses = head.compute_loss(x, y, training=True)
            gradient = tape.gradient(losses, head.kernel.value)
            optimizer.apply([gradient], [head.kernel])
            assert np.all(np.isfinite(losses))
        assert head.num_sampled == min(num_sampled, num_classes)


def test_ids_out_of_range_are_refused_and_nan_is_not():
    head = make_head()
    features, labels = batch()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ids from 0 to 59"
    ):
        head.compute_loss(features, labels + CLASSES, training=True)
    features[3, 3] = np.nan
    losses = head.compute_loss(features, labels, training=True).numpy()
    assert np.isnan(losses[3])
    assert np.all(np.isfinite(np.delete(losses, 3)))


BAD_ARGUMENTS = {
    "scheme": {"scheme": "features"},
    "hash": {"hash_family": "minhash"},
    "num_hashes": {"num_hashes": 0},
    "num_tables": {"num_tables": 1.5},
    "bin_size": {"bin_size": 1},
    "at most 65535": {"num_tables": 65_536},
    "bucket_size": {"bucket_size": 0},
    "measure": {"measure": "dot"},
    "rebuild_interval": {"rebuild_interval": 0},
    "decay": {"decay": -0.1},
    "redraw_interval": {"redraw_interval": -1},
    "negatives": {"negatives": "class"},
    "neighbor_fraction": {"neighbor_fraction": 0.0},
    "correction": {"correction": True},
    "30 bits": {"hash_family": "dwta", "num_hashes": 11},
    "num_sampled": {"num_sampled": 0},
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_are_refused(name):
    with pytest.raises(ValueError, match=name):
        lsh_sampler(**{"num_sampled": 5, **BAD_ARGUMENTS[name]})


def test_tables_come_back_from_a_configuration():
    tables = LSHTables(bin_size=4, decay=0.1)
    head = LSHSoftmax(10, sampler=LSHSampler(5, tables))
    again = LSHSoftmax.from_config(head.get_config())
    assert again.sampler.tables == tables
    assert again.get_config() == head.get_config()


def test_heads_of_one_description_have_tables_of_their_own():
    tables = LSHTables(**HASHING)
    heads = [LSHSoftmax(10, sampler=LSHSampler(5, tables)) for _ in range(2)]
    for head in heads:
        head.build((None, DIM))
    assert heads[0].sampler.index is not heads[1].sampler.index


def test_functions_follow_the_sizes_unless_given():
    """A query visits about twice as many ids as there are places."""
    for num_classes, num_sampled in [(31_077, 1024), (10**6, 10**4), (300, 40)]:
        sizes = num_classes, num_sampled
        num_hashes, num_tables = LSHTables().functions(*sizes)
        visits = num_tables * num_classes / 2**num_hashes
        assert 2**-0.5 < visits / (2 * num_sampled) < 2**0.5
        dwta = LSHTables(hash_family="dwta").functions(*sizes)
        assert dwta == (max(round(num_hashes / 3), 1), num_tables)
    assert LSHTables().functions(10**4, 228)[1] == 50
    assert LSHTables().functions(10, 4)[1] == 16
    given = LSHTables(num_hashes=3, num_tables=7)
    assert given.functions(10**6, 4) == (3, 7)
    tables = LSHTables(bucket_size=None, redraw_interval=None)
    config = LSHSampler(4, tables).get_config()
    assert LSHSampler.from_config(config).get_config() == config


def test_a_step_says_how_many_of_the_classes_found_it_keeps():
    head = make_head(30)
    features, labels = batch()
    sample_of(head, features, labels)
    measured = {k: float(v) for k, v in head.sampler.measured.items()}
    pool = buckets_of(head, features, labels).any(axis=0)
    pool[labels.ravel()] = False
    num_kept = math.ceil((30 - len(np.unique(labels))) / 2)
    assert pool.sum() > num_kept
    share = num_kept / pool.sum()
    np.testing.assert_allclose(measured["table_hit_rate"], share, rtol=1e-6)


def test_a_sample_sees_what_has_the_votes_to_be_kept():
    """Where the batch's union does not fit: the classes of a row are those
    of the step's that have enough votes of its own."""
    head = make_head(
        25,
        negatives="sample",
        neighbor_fraction=1.0,
        num_tables=9,
        correction="none",
    )
    features, labels = batch()
    sample = sample_of(head, features, labels)
    hashing = {"num_hashes": 5, "num_tables": 9}
    votes = brute_force(head.kernel.numpy(), features, hashing, seed=5).sum(0)
    most = votes.max(axis=0)
    most[labels.ravel()] = 0
    least = np.sort(most)[::-1][25 - len(np.unique(labels)) - 1]
    assert least > 1
    own = (votes[:, sample.ids] >= least) | (sample.ids == labels)
    empty = ~(own & (sample.ids != labels)).any(axis=1, keepdims=True)
    np.testing.assert_array_equal(sample.mask, own | empty)


def test_what_a_sampler_measures_is_in_the_logs():
    head = lsh_head(CLASSES, 20, **HASHING, rebuild_interval=1, seed=5)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile("sgd", loss=head.loss)
    x, y = batch(rows=16)
    options = {"callbacks": [tfxclass.callbacks.SamplerLog()], "verbose": 0}
    logs = model.fit(x, y, batch_size=8, epochs=2, **options).history
    assert 0 < logs["fill_rate"][1] <= 1 and 0 < logs["table_hit_rate"][1] <= 1
