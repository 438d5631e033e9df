"""Wide and deep: an encoder's logits beside a tagger's linear scores."""

import itertools
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import tagger_model
from tfxclass_text.tagger_model import MixedScores

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox"]
# The tag is the first of two words: a bag of words cannot tell.
TEXTS = [" ".join(pair) for pair in itertools.permutations(WORDS, 2)] * 7
TAGS = [text.split()[0] for text in TEXTS]


@keras.saving.register_keras_serializable("tests")
class FirstWord(keras.layers.Layer):
    """The number of a text's first word, int64 `[batch]`."""

    def call(self, texts):
        first = tf.strings.split(texts, " ").to_tensor("")[:, 0]
        return tf.strings.to_hash_bucket_fast(first, 1000)

    def compute_output_spec(self, texts):
        return keras.KerasTensor(texts.shape, dtype="int64")


def make_encoder(name="text", initializer="uniform"):
    keras.utils.set_random_seed(0)
    x = keras.Input((), dtype="string", name=name)
    vectors = keras.layers.Embedding(1000, 8, initializer)
    return keras.Model(x, vectors(FirstWord()(x)), name="first_word")


def fitted(encoder, texts=TEXTS, tags=TAGS, **options):
    options = {"learning_rate": 0.1, "effort": "fast", **options}
    tagger = Tagger([Field(["text"])], encoder=encoder, verbose=0, **options)
    return tagger.fit(texts, tags)


@pytest.fixture(scope="module")
def tagger():
    return fitted(make_encoder())


def test_an_encoder_learns_what_words_do_not_tell(tagger):
    score = tagger.evaluate(TEXTS, TAGS)["precision_at_1"]
    words = fitted(None).evaluate(TEXTS, TAGS)["precision_at_1"]
    # Either word may be the first.
    assert words < 0.7 and score == 1
    assert tagger.summary["encoder_passes"] > 0
    assert tagger.summary["tried"][-1][0] == "encoder"
    probabilities = [sum(p for _, p in x) for x in tagger.predict(TEXTS, k=6)]
    np.testing.assert_allclose(probabilities, 1, rtol=1e-4)


def test_a_tagger_with_an_encoder_is_pickled(tagger):
    copied = pickle.loads(pickle.dumps(tagger))
    assert copied.predict(TEXTS) == tagger.predict(TEXTS)
    # The encoder is the model's, as before.
    assert copied.encoder is copied.model.get_layer("first_word")
    unfitted = Tagger([Field(["text"])], encoder=make_encoder(), verbose=0)
    copied = pickle.loads(pickle.dumps(unfitted))
    assert copied.encoder.name == "first_word" and copied.model is None


def test_texts_of_unknown_tags_judge_nothing():
    held = (TEXTS[:40], ["unknown"] * 40)
    tagger = Tagger([Field(["text"])], "fast", verbose=0)
    with pytest.warns(UserWarning, match="40 of 40 texts of"):
        assert tagger.fit(TEXTS, TAGS, held).tags == WORDS


def test_more_validation_data_than_is_scored(monkeypatch):
    """The encoder's scores were of all of its texts."""
    monkeypatch.setattr("tfxclass_text.selection._MAX_HELD", 30)
    held = (TEXTS[:40], TAGS[:40])
    options = {"learning_rate": 0.1, "effort": "fast", "verbose": 0}
    tagger = Tagger([Field(["text"])], encoder=make_encoder(), **options)
    assert tagger.fit(TEXTS, TAGS, held).summary["encoder_passes"]


@pytest.mark.slow
def test_many_tags_a_text():
    tags = [[tag, "animal"] for tag in TAGS]
    tagger = fitted(make_encoder(), tags=tags)
    best = tagger.predict(TEXTS, k=2)
    assert all({t for t, _ in x} == set(own) for x, own in zip(best, tags))
    assert tagger.model.get_layer("mixed-scores").activation == "sigmoid"


def test_a_tagger_with_an_encoder_is_saved_and_exported(tagger, tmp_path):
    tagger.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger")
    assert loaded.predict(TEXTS) == tagger.predict(TEXTS)
    assert loaded.encoder.name == "first_word"
    assert loaded.learning_rate == 0.1
    folder = tagger.export(tmp_path / "model", k=2, verify=False)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(text=tf.constant(TEXTS[:9]))
    for names, scores, expected in zip(
        answers["labels"].numpy(),
        answers["scores"].numpy(),
        tagger.predict(TEXTS[:9], k=2),
    ):
        assert [name.decode() for name in names] == [t for t, _ in expected]
        np.testing.assert_allclose(scores, [p for _, p in expected], 1e-4)


def test_an_encoder_that_does_not_help_is_left_out(tmp_path):
    encoder = make_encoder(initializer="zeros")
    encoder.trainable = False
    tagger = fitted(encoder)
    assert tagger.summary["encoder_passes"] == 0
    assert len(tagger.model.layers) == 3
    tagger.save(tmp_path)
    assert Tagger.load(tmp_path).encoder is None


@pytest.mark.slow
def test_columns_of_an_encoder():
    columns = {"text": ["x"] * len(TEXTS), "title": TEXTS}
    # That of its name, and of another name all columns joined.
    for name, good in (("title", True), ("other", False)):
        found = fitted(make_encoder(name), columns)
        assert bool(found.summary["encoder_passes"]) == good
    x = [keras.Input((), dtype="string", name=n) for n in ("title", "text")]
    ids = [FirstWord()(one) for one in x]
    both = keras.layers.Concatenate()(
        [keras.layers.Embedding(1000, 8)(one) for one in ids]
    )
    model = keras.Model(x, both)
    assert fitted(model, columns).summary["encoder_passes"]


def test_inputs_that_are_no_columns():
    x = [keras.Input((), dtype="string", name=n) for n in ("title", "text")]
    model = keras.Model(x, [FirstWord()(one) for one in x])
    with pytest.raises(ValueError, match="must be columns of the texts"):
        fitted(model)


def test_mixed_scores_by_hand():
    random = np.random.default_rng(0)
    p, z = random.random((5, 3)), random.standard_normal((5, 3))
    layer = MixedScores()
    layer.factors.assign([0.5, 2.0, -0.3])
    logits = 0.5 * np.log(p / (1 - p)) + 2 * z - 0.3
    np.testing.assert_allclose(layer(p, z), 1 / (1 + np.exp(-logits)), 1e-4)
    assert np.isfinite(layer(np.array([[0.0, 1.0]]), z[:1, :2])).all()
    layer = MixedScores("softmax")
    layer.factors.assign([0.5, 2.0, 0.0])
    powers = np.sqrt(p) * np.exp(2 * z)
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer(p, z), expected, rtol=1e-4)


def test_factors_of_known_scores():
    """Truth is drawn from the model, so its factors are the likeliest."""
    random = np.random.default_rng(0)
    wide, z = random.standard_normal((2, 20_000, 4))
    truth = random.random(z.shape) < 1 / (1 + np.exp(-(1.5 * wide + z - 0.5)))
    p = 1 / (1 + np.exp(-wide))
    found = tagger_model.fit_factors(p, z, truth, False)
    # Standard errors are 0.02.
    np.testing.assert_allclose(found, [1.5, 1.0, -0.5], atol=0.08)
    log_p = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    gumbel = random.gumbel(size=z.shape)
    best = np.argmax(log_p + 0.5 * z + gumbel, axis=1)
    truth = np.arange(4) == best[:, np.newaxis]
    found = tagger_model.fit_factors(np.exp(log_p), z, truth, True)
    np.testing.assert_allclose(found, [1, 0.5, 0])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"encoder": "bow"}, "`encoder` must be a Keras model.*bow"),
        ({"encoder": FirstWord()}, r"features \[batch, dim\].*\(None,\)"),
        ({"learning_rate": 0.0}, "`learning_rate` must be finite and > 0"),
        ({"texts": TEXTS[:30]}, "`encoder` needs.*200 texts.*30"),
    ],
)
def test_bad_encoders(options, message):
    options = {"encoder": make_encoder(), **options}
    texts = options.get("texts", TEXTS)
    with pytest.raises(ValueError, match=message):
        fitted(**{**options, "texts": texts, "tags": TAGS[: len(texts)]})
