"""Class rows in bfloat16, and slots of half the size and less."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.lsh import lsh_sampler
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import row_update
from tfxclass.ops.index import ClusterIndex
from tfxclass.ops.index import HashingForest
from tfxclass.ops.index import PCAHash
from tfxclass.ops.lsh import LSHIndex

ROWS, DIM = 40, 8
# Half of a last bit, of 8 bits.
HALF_BIT = 2.0**-9


def storage(dtype="bfloat16", **options):
    return row_update.RowStorage(tf.as_dtype(dtype), tf.float32, **options)


def sgd(variable, ids, grads, rate, **options):
    row_update.update(
        "sgd",
        variable.handle,
        [],
        ids,
        grads,
        learning_rate=tf.constant(rate, tf.float64),
        decay=tf.constant(0.0, tf.float64),
        momentum=0.0,
        nesterov=False,
        storage=storage(**options),
    )


def ones(dtype="bfloat16"):
    return tf.Variable(tf.ones([ROWS, DIM], dtype))


def test_steps_below_the_last_bit_add_up():
    """400 steps of 1e-3 from 1, whose last bits are 2^-7 and 2^-8."""
    variable = ones()
    for step in range(400):
        sgd(variable, [3, 7], tf.ones([2, DIM]), 1e-3, step=step, seed=5)
    moved = tf.cast(variable, tf.float32).numpy()
    # A step is off by a random bit: variance of at most 1e-3 * 2^-8 each.
    deviation = np.sqrt(400 * 1e-3 * 2.0**-8)
    for row in (3, 7):
        assert np.abs(moved[row] - 0.6).max() < 5 * deviation
        assert abs(moved[row].mean() - 0.6) < 5 * deviation / np.sqrt(DIM)
    assert (moved[3] != moved[7]).any()
    np.testing.assert_array_equal(np.delete(moved, [3, 7], 0), 1.0)


def test_rounding_depends_on_seed_step_and_row_alone():
    def once(ids, **options):
        variable = ones()
        sgd(variable, ids, tf.ones([len(ids), DIM]), 1e-3, **options)
        return tf.cast(variable, tf.float32).numpy()

    everything = np.arange(ROWS)
    whole = once(everything, seed=1, step=2)
    np.testing.assert_array_equal(whole, once(everything, seed=1, step=2))
    np.testing.assert_array_equal(
        whole[5], once(np.array([9, 5]), seed=1, step=2)[5]
    )
    for other in ({"seed": 2, "step": 2}, {"seed": 1, "step": 3}):
        assert (whole != once(everything, **other)).any()


def test_what_is_not_finite_stays_so():
    variable = tf.Variable(tf.constant([[np.nan, 3e38, 1.0]], tf.bfloat16))
    largest = tf.cast(variable, tf.float32)[0, 1]
    sgd(variable, [0], tf.constant([[0.0, 0.0, np.inf]]), 1.0)
    np.testing.assert_array_equal(
        tf.cast(variable, tf.float32), [[np.nan, largest, -np.inf]]
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compact_adam_in_numpy(dtype):
    random = np.random.default_rng(0)
    w = tf.Variable(tf.cast(random.normal(size=(ROWS, DIM)), dtype))
    m = tf.Variable(tf.zeros([ROWS, DIM], tf.bfloat16))
    v = tf.Variable(tf.zeros([ROWS]))
    wide_w = tf.cast(w, tf.float64).numpy()
    start = wide_w.copy()
    wide_m, wide_v = np.zeros((ROWS, DIM)), np.zeros(ROWS)
    off_m, off_w, var_m, var_w = np.zeros((4, ROWS, DIM))
    for step in range(20):
        ids = random.permutation(ROWS)[:10]
        grads = random.normal(1.0, size=(10, DIM)).astype(np.float32)
        row_update.update(
            "adam",
            w.handle,
            [m.handle, v.handle],
            ids,
            grads,
            alpha=tf.constant(0.03, tf.float64),
            decay=tf.constant(0.0, tf.float64),
            beta_1=0.9,
            beta_2=0.99,
            epsilon=1e-7,
            storage=storage(
                dtype, row_moments=True, bfloat16_moments=True, step=step
            ),
        )
        wide_m[ids] += (grads - wide_m[ids]) * 0.1
        wide_v[ids] += ((grads**2).mean(axis=1) - wide_v[ids]) * 0.01
        root = np.sqrt(wide_v[ids])[:, None] + 1e-7
        wide_w[ids] -= 0.03 * wide_m[ids] / root
        # A rounding has a variance of at most (bit / 2)^2, bit <= |x| 2^-7.
        var_m[ids] *= 0.81
        var_m[ids] += ((np.abs(wide_m) + off_m)[ids] * HALF_BIT * 2) ** 2
        off_m[ids] = 6 * np.sqrt(var_m[ids])
        off_w[ids] += 0.03 * off_m[ids] / root
        var_w[ids] += ((np.abs(wide_w) + off_w)[ids] * HALF_BIT * 2) ** 2
    np.testing.assert_allclose(v, wide_v, rtol=1e-5)
    assert np.all(np.abs(tf.cast(m, tf.float64) - wide_m) <= off_m + 1e-6)
    if dtype == "bfloat16":
        off_w += 6 * np.sqrt(var_w)
    off_w += 1e-5
    assert np.all(np.abs(tf.cast(w, tf.float64) - wide_w) <= off_w)
    # What moved by less would not be told from what did not.
    assert np.median(np.abs(wide_w - start) / off_w) > 1


def test_gradients_are_float32_and_row_sparse():
    variable = ones()
    with tf.GradientTape() as tape:
        rows = bfloat16_rows.gather(
            tf.convert_to_tensor(variable), tf.constant([[3, 1], [3, 0]])
        )
        loss = tf.reduce_sum(rows * 1.001)
    grad = tape.gradient(loss, variable)
    assert isinstance(grad, tf.IndexedSlices)
    assert grad.values.dtype == tf.float32
    assert grad.indices.numpy().tolist() == [3, 1, 3, 0]
    np.testing.assert_array_equal(grad.values, np.full((4, DIM), 1.001, "f"))


HEADS = {
    "full": lambda **o: layers.FullSoftmax(ROWS, **o),
    "sampled": lambda **o: layers.SampledSoftmax(ROWS, 30, **o),
    "cosine": lambda **o: layers.SampledSoftmax(
        ROWS, 30, similarity="cosine", **o
    ),
    "bias": lambda **o: layers.SampledSoftmax(
        ROWS, 30, sampler="log_uniform", use_bias=True, **o
    ),
    "top_k": lambda **o: layers.SampledSoftmax(ROWS, 30, "top_k", **o),
    "selective": lambda **o: layers.SelectiveSoftmax(
        ROWS,
        sampler=samplers.HashingForestSampler(
            30, num_trees=4, leaf_size=5, rebuild_interval=4
        ),
        **o,
    ),
    "lsh": lambda **o: layers.LSHSoftmax(
        ROWS, sampler=lsh_sampler(30, rebuild_interval=4), **o
    ),
    "auto": lambda **o: layers.SampledSoftmax(ROWS, 30, "auto", **o),
    "nce": lambda **o: layers.NoiseContrastive(ROWS, 30, **o),
    "kmeans": lambda **o: layers.SampledSoftmax(ROWS, 30, "kmeans", **o),
    "projected": lambda **o: layers.ProjectedSoftmax(ROWS, DIM, **o),
    "projected_sampled": lambda **o: layers.ProjectedSoftmax(
        ROWS, DIM, 30, "uniform", l2=1e-4, **o
    ),
    "sharded": lambda **o: layers.ShardedSoftmax(ROWS, use_bias=True, **o),
    "sharded_sampled": lambda **o: layers.ShardedSoftmax(
        ROWS, num_sampled=30, correct_fill=True, **o
    ),
    "sparsemax": lambda **o: layers.Sparsemax(ROWS, **o),
    "adaptive": lambda **o: layers.AdaptiveSoftmax(
        ROWS, [30], div_value=1.0, **o
    ),
    "differentiated": lambda **o: layers.DifferentiatedSoftmax(
        ROWS, [(ROWS - 1, DIM - 1), (1, 1)], **o
    ),
    "adaptive_projected": lambda **o: layers.AdaptiveProjectedSoftmax(
        ROWS, group_sizes=[20, 20], projection_dims=[8, 6], l2=1e-4, **o
    ),
    "dropmax": lambda **o: layers.DropMax(ROWS, **o),
    "dropmax_posterior": lambda **o: layers.DropMax(ROWS, "posterior", **o),
}
OPTIMIZERS = {
    "adam": lambda: optimizers.LazyAdam(0.05),
    "compact": lambda: optimizers.LazyAdam(
        0.05, second_moment="row", slot_dtype="bfloat16"
    ),
    "row": lambda: optimizers.LazyAdam(0.05, second_moment="row"),
    "decay": lambda: optimizers.LazyAdamW(
        0.05, weight_decay=0.01, second_moment="row", slot_dtype="bfloat16"
    ),
    "shared": lambda: optimizers.LazyAdam(
        0.05, second_moment="matrix", slot_dtype="bfloat16"
    ),
    "sgd": lambda: optimizers.LazySGD(0.5, momentum=0.9, slot_dtype="bfloat16"),
    "adagrad": lambda: optimizers.LazyAdagrad(0.3, second_moment="row"),
    "accumulated": lambda: optimizers.LazyAdam(
        0.05, gradient_accumulation_steps=2
    ),
    "local": lambda: optimizers.LocalSGD(stages=[(0.5, 20, 2)], gamma=10.0),
}


def data():
    random = np.random.default_rng(0)
    y = random.integers(0, ROWS, 256)
    centres = random.normal(size=(ROWS, DIM)) * 3
    return (centres[y] + random.normal(size=(256, DIM))).astype("f"), y


def trained(head, optimizer, epochs=6, dtype="bfloat16"):
    keras.utils.set_random_seed(0)
    head = HEADS[head](kernel_dtype=dtype, seed=3)
    model = keras.Sequential([keras.Input((DIM,)), head])
    model.compile(OPTIMIZERS[optimizer](), loss=head.loss)
    x, y = data()
    model.fit(x, y, batch_size=16, epochs=epochs, verbose=0)
    return model, head


PAIRS = [
    *[(head, "compact") for head in HEADS],
    *[("sampled", optimizer) for optimizer in OPTIMIZERS],
    ("full", "adam"),
    ("full", "decay"),
]
USUAL = [("full", "adam"), ("selective", "compact"), ("bias", "compact")]
USUAL += [("sampled", "decay"), ("sampled", "sgd")]


@pytest.mark.parametrize("pair", quick(PAIRS, USUAL), ids="-".join)
def test_a_head_learns_and_answers(pair):
    model, layer = trained(*pair)
    kernels = getattr(layer, "kernels", None) or [layer.kernel]
    assert {kernel.dtype for kernel in kernels} == {"bfloat16"}
    x, y = data()
    ids, scores = layer.top_k(x, 3)
    assert (ids[:, 0].numpy() == y).mean() > 0.8
    best = np.take_along_axis(model(x).numpy(), ids.numpy(), axis=1)
    np.testing.assert_allclose(scores, best, rtol=1e-5, atol=1e-6)
    ids, stock = layer.top_k(x, 3, weights=layer.export_weights())
    np.testing.assert_allclose(stock, scores, rtol=1e-5, atol=1e-6)


def test_slots_are_as_small_as_said():
    model, head = trained("bias", "compact", epochs=1)
    of_kernel, of_bias = model.optimizer._states
    momentum, velocity = of_kernel["momentum"], of_kernel["velocity"]
    assert momentum.dtype == "bfloat16" and momentum.shape == (ROWS, DIM)
    assert velocity.dtype == "float32" and velocity.shape == (ROWS,)
    # Not those of the bias.
    assert [s.dtype for s in of_bias.values()] == ["float32"] * 2


@pytest.mark.parametrize(
    "head, optimizer",
    [
        pytest.param("bias", "compact", marks=pytest.mark.slow),
        ("bias", "decay"),
        ("selective", "compact"),
        pytest.param("lsh", "compact", marks=pytest.mark.slow),
    ],
)
def test_resumed_model_continues_bit_for_bit(head, optimizer, tmp_path):
    model, _ = trained(head, optimizer, epochs=1)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    x, y = data()
    for one in (model, resumed):
        one.fit(x, y, batch_size=16, verbose=0, shuffle=False)
    pairs = zip(
        [*model.weights, *model.optimizer.variables],
        [*resumed.weights, *resumed.optimizer.variables],
        strict=True,
    )
    for a, b in pairs:
        np.testing.assert_array_equal(
            np.asarray(a, np.float32), np.asarray(b, np.float32)
        )


def test_export(tmp_path):
    model, _ = trained("cosine", "compact", epochs=1)
    tfxclass.export.saved_model(model, tmp_path / "served", top_k=3)


@pytest.mark.slow
def test_an_approximate_export_keeps_them(tmp_path):
    model, _ = trained("sampled", "compact", epochs=2)
    folder = tfxclass.export.saved_model(
        model,
        tmp_path,
        top_k=3,
        search=tfxclass.export.InvertedLists(num_lists=6),
        example_inputs=data()[0],
        full_scores=True,
    )
    saved = tf.train.load_checkpoint(f"{folder}/variables/variables")
    types = saved.get_variable_to_dtype_map()
    shapes = saved.get_variable_to_shape_map()
    kept = {types[n] for n, shape in shapes.items() if shape == [ROWS, DIM]}
    assert kept == {tf.bfloat16}


def test_estimate_knows_both():
    def of(dtype="float32", **options):
        head = layers.SampledSoftmax(1000, 50, kernel_dtype=dtype)
        optimizer = optimizers.LazyAdam(**options)
        return tfxclass.estimate(head, 64, 32, optimizer)

    plain, half = (
        of(),
        of("bfloat16", second_moment="row", slot_dtype="bfloat16"),
    )
    assert plain.weight_bytes == 2 * half.weight_bytes == 4 * 64000
    assert plain.slot_bytes == 8 * 64000
    assert half.slot_bytes == 2 * 64000 + 4 * 1000
    assert of("bfloat16").slot_bytes == 8 * 64000


@pytest.mark.host
@pytest.mark.parametrize("sketch", [0, 8])
def test_an_index_reads_them_as_the_floats_that_they_are(sketch):
    random = np.random.default_rng(0)
    half = tf.Variable(tf.cast(random.normal(size=(300, 24)), tf.bfloat16))
    wide = tf.Variable(tf.cast(half, tf.float32))
    queries = random.normal(size=(20, 24)).astype("f")
    found = []
    for kernel in (half, wide):
        forest = HashingForest()
        forest.build(kernel, 5, 10, 3, sketch=sketch)
        ids, scores = forest.query(kernel, queries, 7, normalize=True)
        clusters = ClusterIndex(normalize=False)
        clusters.build(kernel, 12, 3)
        tables = LSHIndex(num_hashes=4, num_tables=6)
        codes = PCAHash(normalize=False)
        tables.build(kernel, 3)
        codes.build(kernel, 5, 0)
        indexes = (forest, tables, clusters, codes)
        states = [index.state()["ready"] for index in indexes]
        found.append([ids, scores, *states])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.FullSoftmax(9, kernel_dtype="float16"), "kernel_dtype"),
        (
            lambda: layers.HierarchicalSoftmax(
                9, "balanced", kernel_dtype="bfloat16"
            ),
            "HierarchicalSoftmax are float32",
        ),
    ],
)
def test_what_is_not_there_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_optimizer_that_would_round_steps_to_none():
    head = layers.FullSoftmax(40, kernel_dtype="bfloat16")
    model = keras.Sequential([keras.Input((8,)), head])
    plain = keras.optimizers.SGD(1e-3)
    x, y = np.ones([4, 8], np.float32), np.arange(4)
    model.compile(plain, loss=head.loss)
    (problem,) = tfxclass.check(model)
    assert "tfxclass.optimizers" in problem and "a SGD" in problem
    with pytest.raises(ValueError, match="tfxclass.optimizers"):
        tfxclass.distribute.fit(model, (x, y), verbose=0)
    groups = optimizers.MultiOptimizer([(plain, head)])
    with pytest.raises(ValueError, match="tfxclass.optimizers"):
        groups.build(model.trainable_variables)


def test_config():
    head = layers.SampledSoftmax(9, 4, kernel_dtype="bfloat16")
    back = layers.SampledSoftmax.from_config(head.get_config())
    assert back.kernel_dtype == "bfloat16"
    optimizer = optimizers.LazyAdam(second_moment="row", slot_dtype="bfloat16")
    back = optimizers.LazyAdam.from_config(optimizer.get_config())
    assert (back.second_moment, back.slot_dtype) == ("row", "bfloat16")
