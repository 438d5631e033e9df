"""A loss belongs to the forward pass of the `y_pred` that it is given."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import metrics

CLASSES, DIM, ROWS = 40, 6, 12


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(3)


def data(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, ROWS)


def exact(head, features, labels):
    """Mean cross-entropy in NumPy."""
    logits = reference.head_logits(
        np.asarray(features), head.kernel.numpy(), None, "dot", 1.0
    )
    return reference.cross_entropy(logits, labels).mean()


def test_two_heads_of_one_name():
    """The gradient of each is its own."""
    other_head, head = (layers.FullSoftmax(CLASSES, name="h") for _ in "ab")
    (x, y), (other, _) = data(), data(1)
    with tf.GradientTape() as tape:
        output = head(x, training=True)
        other_head(other, training=True)
        loss = head.loss(y, output)
    assert tape.gradient(loss, head.kernel.value) is not None
    np.testing.assert_allclose(loss, exact(head, x, y), rtol=1e-5)


def test_siamese_model():
    """One head called on two inputs: each output has its own loss."""
    encoder, head = keras.layers.Dense(DIM), layers.FullSoftmax(CLASSES)
    inputs = [keras.Input([DIM]) for _ in "ab"]
    outputs = {
        name: keras.layers.Identity(name=name)(encoder(x))
        for name, x in zip("ab", inputs)
    }
    model = keras.Model(inputs, [head(outputs["a"]), head(outputs["b"])])
    model.compile(tfxclass.optimizers.LazySGD(0.0), [head.loss, head.loss])
    (x, y), (other, z) = data(), data(1)
    result = model.evaluate([x, other], [y, z], batch_size=ROWS, verbose=0)
    expected = exact(head, encoder(x), y) + exact(head, encoder(other), z)
    np.testing.assert_allclose(result[0], expected, rtol=1e-5)
    fitted = model.fit([x, other], [y, z], batch_size=ROWS, verbose=0)
    np.testing.assert_allclose(fitted.history["loss"], expected, rtol=1e-5)


class TwoHeads(keras.Model):
    """Outputs in a dict, by a model of the user's own."""

    def __init__(self):
        super().__init__()
        self.words = layers.SampledSoftmax(CLASSES, CLASSES, "uniform")
        self.tags = layers.FullSoftmax(CLASSES)

    def call(self, x, training=None):
        return {"words": self.words(x), "tags": self.tags(2.0 * x)}


@pytest.mark.parametrize("steps", quick([1, 2], [2]))
def test_two_heads_in_a_dict(steps):
    model = TwoHeads()
    model.compile(
        tfxclass.optimizers.LazySGD(0.0),
        loss={"words": model.words.loss, "tags": model.tags.loss},
        metrics={"tags": [metrics.TopKAccuracy(model.tags, CLASSES)]},
        steps_per_execution=steps,
    )
    x, y = data()
    _, z = data(1)
    targets = {"words": y, "tags": z}
    history = model.fit(x, targets, batch_size=ROWS // 2, verbose=0).history
    expected = exact(model.words, x, y) + exact(model.tags, 2 * x, z)
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    (name,) = (key for key in history if key.endswith(f"at_{CLASSES}"))
    assert history[name] == [1.0]


def test_time_distributed_is_refused():
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential(
        [keras.Input([3, DIM]), keras.layers.TimeDistributed(head)]
    )
    model.compile("sgd", loss=head.loss)
    x, y = np.zeros((4, 3, DIM)), np.zeros((4, 3), int)
    with pytest.raises(ValueError, match="without TimeDistributed"):
        model.fit(x, y, verbose=0)


def test_a_loaded_model_and_a_clone(tmp_path):
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.Input([DIM]), head])
    metric = metrics.TopKAccuracy(head, 2)
    model.compile("sgd", loss=head.loss, metrics=[metric])
    x, y = data()
    expected = model.evaluate(x, y, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded.evaluate(x, y, verbose=0), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    loss = head.loss(y, clone(x))
    np.testing.assert_allclose(loss, expected[0], rtol=1e-6)


def test_own_training_loop():
    """`train_on_batch`, and a custom `train_step`."""

    class Own(keras.Sequential):
        def train_step(self, batch):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
            with tf.GradientTape() as tape:
                output = self(x, training=True)
                loss = self.layers[-1].loss(y, output)
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    x, y = data()
    results = []
    for cls in (keras.Sequential, Own):
        keras.utils.set_random_seed(3)
        head = layers.FullSoftmax(CLASSES)
        model = cls([keras.Input([DIM]), head])
        model.compile(tfxclass.optimizers.LazySGD(0.5), loss=head.loss)
        model.train_on_batch(x, y)
        results.append(head.kernel.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_a_mask_that_leaves_nothing():
    head = layers.FullSoftmax(CLASSES)
    ids = keras.Input([None], dtype="int64")
    embedding = keras.layers.Embedding(9, DIM, mask_zero=True)
    model = keras.Model(ids, head(embedding(ids)))
    model.compile("sgd", loss=head.loss)
    x = np.zeros((4, 3), int)
    assert model.evaluate(x, x, verbose=0) == 0.0


def test_an_endpoint_leaves_masked_positions_out():
    """Its loss is that of `compile`."""
    x = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    y = np.arange(8).reshape(2, 4)
    results = []
    for is_endpoint in (True, False):
        keras.utils.set_random_seed(3)
        head = layers.FullSoftmax(CLASSES)
        ids = keras.Input([4], dtype="int64")
        labels = keras.Input([4], dtype="int64")
        features = keras.layers.Embedding(9, DIM, mask_zero=True)(ids)
        if is_endpoint:
            model = keras.Model([ids, labels], head(features, labels=labels))
            model.compile("sgd")
            results.append(model.evaluate([x, y], verbose=0))
        else:
            model = keras.Model(ids, head(features))
            model.compile("sgd", loss=head.loss)
            results.append(model.evaluate(x, y, verbose=0))
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize(
    ("labels", "part"),
    [
        (tf.sparse.from_dense([[1, 2], [3, 0]]), "tf.sparse.to_dense"),
        (np.zeros(3, int), "shape of the features"),
        (np.zeros((2, 3, 1), int), r"\[batch, p\]"),
    ],
    ids=["sparse", "other_length", "rank_3"],
)
def test_labels_that_do_not_fit(labels, part):
    head = layers.FullSoftmax(CLASSES)
    head.build((None, DIM))
    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match=part
    ):
        head.compute_loss(np.zeros((2, DIM), np.float32), labels)


def test_an_unbuilt_head_says_so():
    x, y = data()
    head = layers.FullSoftmax(CLASSES, name="words")
    for use in (
        lambda: head.compute_loss(x, y),
        lambda: head.top_k(x, 3),
        lambda: head.logits(x),
    ):
        with pytest.raises(ValueError, match="'words' is not built"):
            use()


def test_ragged_labels_are_padded():
    head = layers.FullSoftmax(CLASSES)
    head.build((None, DIM))
    x, _ = data()
    ragged = tf.ragged.constant([[1, 2], [3], []], tf.int64)
    padded = np.array([[1, 2], [3, -1], [-1, -1]])
    np.testing.assert_array_equal(
        head.compute_loss(x[:3], ragged), head.compute_loss(x[:3], padded)
    )
