"""HeadAdam: Adam for the encoder, Adagrad for class vectors."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.processes import run_code
from tfxclass import initializers
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.ops import fallback
from tfxclass.ops import library
from tfxclass.optimizers import head_adam
from tfxclass.rows.class_matrix import ClassMatrix

ROWS, DIM = 12, 5
# An optimizer finds a matrix while it lives.
MATRICES = []
RATE = 0.05


def class_vectors(dtype="float32", is_normalized=False):
    values = np.random.default_rng(0).normal(size=(ROWS, DIM))
    variable = keras.Variable(values, dtype=dtype)
    MATRICES.append(ClassMatrix(variable, normalize=is_normalized))
    return variable


def rows_of(ids, values):
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(ids, tf.int64), [ROWS, DIM]
    )


def gradients(steps, dtype="float32"):
    random = np.random.default_rng(1)
    for _ in range(steps):
        ids = random.integers(0, ROWS, 6)  # some of them twice
        sizes = random.choice([1e-3, 1.0], (6, 1))
        yield ids, (sizes * random.normal(size=(6, DIM))).astype(dtype)


class Reference:
    """The rule in NumPy, in float64."""

    def __init__(self, start, rate, one_a_row=False, offset=0.2):
        self.rows = np.asarray(start.numpy(), np.float64)
        self.total = np.zeros_like(self.rows)
        self.rate, self.one_a_row = rate, one_a_row
        self.offset, self.scales = offset, []

    def apply(self, ids, values, rate=None, decay=0.0):
        touched = np.unique(ids)
        sums = np.zeros_like(self.rows)
        np.add.at(sums, ids, np.asarray(values, np.float64))
        sums = sums[touched]
        squares = np.mean(sums**2, axis=1)
        self.scales.append(np.mean(squares))
        offset = self.offset * np.mean(self.scales)
        square = squares[:, None] if self.one_a_row else sums**2
        self.total[touched] += square
        step = sums / np.sqrt(self.total[touched] + offset)
        self.rows[touched] *= 1 - decay
        self.rows[touched] -= (rate or self.rate) * step


@pytest.mark.parametrize("moment", ["element", "row"])
@pytest.mark.parametrize("is_normalized", [False, True])
def test_in_numpy(moment, is_normalized):
    rule = head_adam.RULES["cosine" if is_normalized else "dot"]
    rate = RATE / rule.rate
    variable = class_vectors(is_normalized=is_normalized)
    optimizer = optimizers.HeadAdam(rate, second_moment=moment)
    expected = Reference(variable, RATE, moment == "row", rule.offset)
    for ids, values in gradients(30):
        optimizer.apply([rows_of(ids, values)], [variable])
        expected.apply(ids, values)
    # 30 steps of at most RATE, each of some ten float32 roundings.
    np.testing.assert_allclose(
        variable, expected.rows, rtol=1e-6, atol=30 * 10 * 2**-24 * 4
    )


@pytest.mark.host
def test_in_float64_with_schedule_decay_and_own_rate():
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, 3, 0.5)
    variable = class_vectors("float64")
    optimizer = optimizers.HeadAdam(schedule, class_rate=2.0, weight_decay=0.1)
    expected = Reference(variable, 2 * RATE)
    for step, (ids, values) in enumerate(gradients(10, "float64")):
        optimizer.apply([rows_of(ids, values)], [variable])
        rate = RATE * 0.5 ** (step / 3)
        expected.apply(ids, values, 2 * rate, 0.1 * rate)
    # Keras keeps the rate in float32.
    np.testing.assert_allclose(variable, expected.rows, rtol=1e-5, atol=1e-6)


def test_fallback_equals_the_compiled_op(monkeypatch):
    ends = []
    for ops in (library.ops, fallback.ops):
        monkeypatch.setattr(library, "ops", ops)
        variable, optimizer = class_vectors(), optimizers.HeadAdam(1e-3)
        for ids, values in gradients(10):
            optimizer.apply([rows_of(ids, values)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_allclose(*ends, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1e-4, 1e-12, 1e4])
def test_the_scale_of_gradients_does_not_matter(size):
    ends = []
    for factor in (1.0, size):
        variable, optimizer = class_vectors(), optimizers.HeadAdam(1e-4)
        for ids, values in gradients(5):
            values = (factor * values).astype(np.float32)
            optimizer.apply([rows_of(ids, values)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_allclose(*ends, rtol=1e-4, atol=1e-5)


def test_an_unlikely_negative_hardly_moves():
    variable, optimizer = class_vectors(), optimizers.HeadAdam(1e-4)
    start = variable.numpy()
    values = np.ones([2, DIM], np.float32) * [[1.0], [1e-3]]
    for _ in range(3):
        optimizer.apply([rows_of([1, 2], values)], [variable])
    label, negative = np.abs(variable.numpy() - start)[[1, 2]].mean(axis=1)
    # Adam moves both alike.
    assert negative < 1e-2 * label


def test_gradients_of_zero_and_no_rows_move_nothing():
    variable, optimizer = class_vectors(), optimizers.HeadAdam(1e-3)
    start = variable.numpy()
    for size in (2, 0, 1):
        zeros = np.zeros([size, DIM], np.float32)
        optimizer.apply([rows_of(np.arange(size), zeros)], [variable])
    np.testing.assert_array_equal(variable, start)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_a_row_that_is_not_finite_does_not_move_the_others(wrong):
    variable, optimizer = class_vectors(), optimizers.HeadAdam(1e-3)
    alone, other = class_vectors(), optimizers.HeadAdam(1e-3)
    for ids, values in gradients(6):
        ids = np.where(ids == 3, 4, ids)
        bad = np.full([1, DIM], wrong, np.float32)
        optimizer.apply(
            [rows_of(np.r_[ids, 3], np.r_[values, bad])], [variable]
        )
        other.apply([rows_of(ids, values)], [alone])
    others = np.arange(ROWS) != 3
    np.testing.assert_allclose(
        variable.numpy()[others], alone.numpy()[others], atol=1e-6
    )


def test_dense_gradients_are_those_of_all_rows():
    dense, rows = class_vectors(), class_vectors()
    of_dense, of_rows = optimizers.HeadAdam(), optimizers.HeadAdam()
    for seed in range(4):
        values = np.random.default_rng(seed).normal(size=(ROWS, DIM))
        values = values.astype(np.float32)
        of_dense.apply([tf.constant(values)], [dense])
        of_rows.apply([rows_of(np.arange(ROWS), values)], [rows])
    np.testing.assert_array_equal(dense, rows)


def test_embeddings_in_numpy():
    """The scale is the step's own."""
    variable = keras.Variable(np.ones([ROWS, DIM], np.float32))
    rule = head_adam.RULES["embedding"]
    optimizer = optimizers.HeadAdam(RATE / rule.rate)
    expected = Reference(variable, RATE, offset=rule.offset)
    for ids, values in gradients(20):
        optimizer.apply([rows_of(ids, values)], [variable])
        expected.scales.clear()
        expected.apply(ids, values)
    np.testing.assert_allclose(variable, expected.rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(ROWS, DIM), (ROWS,)])
def test_dense_weights_and_biases_move_as_under_lazy_adam(shape):
    """A bias also by rows, and an embedding where one asks for it."""
    ends = []
    for optimizer in (
        optimizers.HeadAdam(RATE, embedding_rate="adam"),
        optimizers.LazyAdam(RATE),
    ):
        variable = keras.Variable(np.ones(shape, np.float32))
        for ids, values in gradients(5):
            values = values if len(shape) > 1 else values[:, 0]
            rows = tf.IndexedSlices(values, tf.constant(ids), shape)
            optimizer.apply([rows], [variable])
        ends.append(variable.numpy())
    np.testing.assert_array_equal(*ends)
    for make in (optimizers.HeadAdam, optimizers.LazyAdam):
        optimizer = make(RATE)
        variable = keras.Variable(np.ones(shape, np.float32))
        for step in range(3):
            optimizer.apply([tf.fill(shape, 0.1 + step)], [variable])
        ends.append(variable.numpy())
    np.testing.assert_array_equal(*ends[2:])


def test_a_bias_by_rows_moves_as_under_lazy_adam():
    ends = []
    for optimizer in (optimizers.HeadAdam(RATE), optimizers.LazyAdam(RATE)):
        variable = keras.Variable(np.ones([ROWS], np.float32))
        for ids, values in gradients(5):
            rows = tf.IndexedSlices(values[:, 0], tf.constant(ids), [ROWS])
            optimizer.apply([rows], [variable])
        ends.append(variable.numpy())
    np.testing.assert_array_equal(*ends)


def test_class_vectors_have_one_slot():
    head = layers.SampledSoftmax(ROWS, 8, use_bias=True)
    head.build((None, DIM))
    for moment, shape in (("element", (ROWS, DIM)), ("row", (ROWS,))):
        optimizer = optimizers.HeadAdam(second_moment=moment)
        optimizer.build(head.trainable_variables)
        shapes = sorted(tuple(v.shape) for v in optimizer.variables[2:])
        assert shapes == sorted([(ROWS,), (ROWS,), shape, (1, 3)])
    head = layers.SampledSoftmax(1000, 8)
    of_head = tfxclass.estimate(head, 64, 4, optimizers.HeadAdam())
    assert of_head.slot_bytes == 1000 * 64 * 4


def trained(head, optimizer=None, epochs=8, encoder=()):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    y = random.integers(0, ROWS, 256)
    centres = 2 * random.normal(size=(ROWS, DIM))
    x = (centres[y] + 0.3 * random.normal(size=(256, DIM))).astype("f")
    model = keras.Sequential([keras.Input([DIM]), *encoder, head])
    model.compile(optimizer or optimizers.HeadAdam(), loss=head.loss)
    model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False)
    return model, x, y


HEADS = {
    "full": lambda: layers.FullSoftmax(ROWS),
    "full cosine": lambda: layers.FullSoftmax(ROWS, similarity="cosine"),
    "sigmoid": lambda: layers.FullSoftmax(ROWS, loss="sigmoid"),
    "bfloat16": lambda: layers.SampledSoftmax(
        ROWS, 12, kernel_dtype="bfloat16"
    ),
    "selective": lambda: layers.SelectiveSoftmax(ROWS, 12, similarity="cosine"),
    "tree": lambda: layers.HierarchicalSoftmax(ROWS, counts=range(12, 0, -1)),
    "projected": lambda: layers.ProjectedSoftmax(ROWS, 5),
    "dropmax": lambda: layers.DropMax(ROWS),
    "sparsemax": lambda: layers.Sparsemax(ROWS),
}


# The others have rules of these, and their losses have tests of their own.
OTHER_RULES = ["full", "full cosine", "bfloat16", "tree", "projected"]


@pytest.mark.parametrize("kind", quick(HEADS, OTHER_RULES))
def test_a_head_learns(kind):
    model, x, y = trained(HEADS[kind]())
    found = model(x).numpy().argmax(axis=1)
    assert np.mean(found == y) > 0.85


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_scale_of_an_exact_loss_is_that_of_its_labels(similarity):
    """Class by class, without the gradient of all classes, as with it."""
    random = np.random.default_rng(0)
    x = random.normal(size=(8, DIM)).astype("f")
    y = np.arange(8)  # distinct, so negatives are all that is left out
    ends = []
    for by_class in (True, False):
        keras.utils.set_random_seed(0)
        head = layers.FullSoftmax(ROWS, similarity=similarity, seed=0)
        model = keras.Sequential([keras.Input([DIM]), head])
        # A norm that is never reached needs the whole gradient.
        options = {} if by_class else {"clipnorm": 1e6}
        model.compile(optimizers.HeadAdam(1e-4, **options), loss=head.loss)
        before = head.kernel.numpy()
        model.train_on_batch(x, y)
        ends.append(head.kernel.numpy() - before)
    # The step of a label changes by the square root of the two scales.
    moves = [np.linalg.norm(end[:8], axis=1) for end in ends]
    np.testing.assert_allclose(*moves, rtol=0.3)


def test_a_tied_embedding_is_moved_as_class_vectors():
    embedding = keras.layers.Embedding(ROWS, DIM)
    embedding.build()
    head = layers.SampledSoftmax(ROWS, 8, tied_to=embedding)
    keras.Sequential([keras.Input([], dtype="int32"), embedding, head])
    optimizer = optimizers.HeadAdam()
    optimizer.build([embedding.embeddings])
    shapes = [tuple(v.shape) for v in optimizer.variables[2:]]
    assert shapes == [(1, 3), (ROWS, DIM)]


@pytest.mark.parametrize("moment", quick(["element", "row"], ["element"]))
def test_resumed_model_continues_bit_for_bit(moment, tmp_path):
    optimizer = optimizers.HeadAdam(1e-3, second_moment=moment)
    encoder = [keras.layers.Dense(DIM, use_bias=False)]
    head = layers.SampledSoftmax(ROWS, 12, "uniform")
    model, x, y = trained(head, optimizer, 1, encoder)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert type(resumed.optimizer) is optimizers.HeadAdam
    ends = []
    for one in (model, resumed):
        one.fit(x, y, batch_size=16, verbose=0, shuffle=False)
        ends.append([v.numpy() for v in one.weights + one.optimizer.variables])
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_classes_are_added_and_learned():
    model, x, y = trained(layers.SampledSoftmax(ROWS, 12, "uniform"))
    larger = tfxclass.add_classes(model, 3)
    y = np.where(np.arange(len(y)) % 16 == 0, ROWS, y)
    larger.fit(x, y, batch_size=16, verbose=0)
    assert np.isfinite(larger.layers[-1].kernel.numpy()).all()
    scales, accumulator = larger.optimizer.variables[2:]
    assert scales.numpy()[0, 1] == 8 * 16 + 16  # steps
    assert accumulator.shape == (ROWS + 3, DIM)


def test_config_through_json():
    optimizer = optimizers.HeadAdam(1e-2, class_rate=30.0, clipnorm=1.0)
    text = json.dumps(keras.optimizers.serialize(optimizer))
    back = keras.optimizers.deserialize(json.loads(text))
    assert back.get_config() == optimizer.get_config()
    assert back.class_rate == 30.0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"class_rate": 0.0}, "`class_rate`.*Received: 0.0"),
        ({"class_rate": float("nan")}, "`class_rate`.*Received: nan"),
        ({"class_rate": "10"}, "`class_rate`.*Received: '10'"),
        ({"embedding_rate": -1.0}, "`embedding_rate`.*Received: -1.0"),
        ({"amsgrad": True}, "`amsgrad`.*Received: amsgrad=True"),
        ({"second_moment": "matrix"}, "`second_moment`.*Received: 'matrix'"),
        ({"slot_dtype": "bfloat16"}, "`slot_dtype`.*Received: 'bfloat16'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        optimizers.HeadAdam(**arguments)


TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf
import tfxclass

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 5)), random.integers(0, 12, 64)


def kernel_after_fit(strategy, kind):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        head = kind(12, 12) if kind is not SHARDED else kind(12)
        model = keras.Sequential(
            [keras.Input([5]), keras.layers.Dense(5), head])
        model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.predict(x, batch_size=16, verbose=0)


SHARDED = tfxclass.layers.ShardedSoftmax
kind = tfxclass.layers.SampledSoftmax
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
np.testing.assert_allclose(
    kernel_after_fit(tf.distribute.get_strategy(), kind),
    kernel_after_fit(two, kind), rtol=1e-3, atol=1e-5)
assert np.isfinite(kernel_after_fit(two, SHARDED)).all()
print("equal")
"""


@pytest.mark.slow
def test_two_devices_equal_one():
    assert run_code(TWO_DEVICES).endswith("equal\n")


def trained_model(similarity="dot"):
    """A model that has learned its rows, and the rows."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 16)).astype(np.float32)
    y = np.arange(400)
    head = layers.FullSoftmax(400, similarity=similarity)
    dense = keras.layers.Dense(32, activation="relu")
    model = keras.Sequential([keras.Input([16]), dense, head])
    model.compile(optimizers.HeadAdam(), loss=head.loss)
    # One epoch: others cost more than their steps.
    repeated = np.tile(x, (60, 1)), np.tile(y, 60)
    model.fit(*repeated, batch_size=50, verbose=0)
    return model, x, y


def accuracy(model, x, y):
    return float(np.mean(model(x).numpy().argmax(axis=1) == y))


@pytest.mark.parametrize("similarity", quick(["dot", "cosine"], ["dot"]))
def test_a_new_optimizer_keeps_what_was_learned(similarity, tmp_path):
    """A new one does, and one that is loaded with its model and its rates."""
    model, x, y = trained_model(similarity)
    before = accuracy(model, x, y)
    assert before > 0.9
    assert not is_marked(model.optimizer)
    check_file_goes_on(model, x, y, tmp_path / "first.keras")
    model.compile(optimizers.HeadAdam(), loss=model.layers[-1].loss)
    model.fit(x, y, batch_size=50, epochs=1, verbose=0)
    assert accuracy(model, x, y) > before - 0.05
    assert is_marked(model.optimizer)
    check_file_goes_on(model, x, y, tmp_path / "second.keras")


def check_file_goes_on(model, x, y, path):
    """A loaded model learns as the one that was saved."""
    model.save(path)
    loaded = keras.models.load_model(path)
    for each in (model, loaded):
        each.fit(x[:50], y[:50], epochs=2, shuffle=False, verbose=0)
    for expected, found in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def is_marked(optimizer):
    """Whether the optimizer saw that class vectors were trained before."""
    (state,) = [v for v in optimizer.variables if v.shape == (1, 3)]
    return bool(state.numpy()[0, 2])


@pytest.mark.parametrize(
    ("initializer", "shape"),
    [
        ("glorot_uniform", (300, 20)),
        ("he_normal", (300, 20)),
        (keras.initializers.VarianceScaling(2.0, "fan_out"), (300, 20)),
        (keras.initializers.RandomNormal(1.0, 0.5), (300, 20)),
        ("uniform", (300, 20)),
        ("zeros", (300, 20)),
    ],
)
def test_the_size_of_initial_values(initializer, shape):
    values = np.asarray(keras.initializers.get(initializer)(shape))
    expected = np.sqrt(np.mean(values**2))
    # 6,000 values: the standard error is under 1 %.
    assert initializers.rms_of(initializer, shape) == pytest.approx(
        expected, rel=0.05
    )


def test_unknown_initializers_count_as_new():
    assert initializers.rms_of(lambda shape, dtype: None, (3, 4)) is None
    variable = keras.Variable(100 * np.ones((3, 4)))
    assert not ClassMatrix(variable).is_trained()


def test_compile_by_name(tmp_path):
    head = tfxclass.layers.SampledSoftmax(50, 10)
    model = keras.Sequential([keras.Input([4]), head])
    model.compile("HeadAdam", loss=head.loss)
    model.fit(np.ones([8, 4], np.float32), np.arange(8), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is tfxclass.optimizers.HeadAdam
