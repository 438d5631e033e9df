"""The example of a language model, on its generated text."""

import numpy as np
import pytest
import tensorflow as tf

from examples import next_word


def test_steps_go_on_in_their_stream():
    x, y = next_word.steps_of(np.arange(100), 3, 4)
    # 8 steps of 3 streams; the words that are left over are cut.
    assert x.shape == y.shape == (24, 4)
    np.testing.assert_array_equal(y, x + 1)
    for stream in range(3):
        words = x[stream::3].ravel()
        np.testing.assert_array_equal(words, np.arange(32) + 32 * stream)


def test_unseen_words_are_inputs_but_no_targets():
    x, y = next_word.steps_of(np.array([5, -1, 6, 7, 8]), 1, 2)
    assert x.tolist() == [[5, 0], [6, 7]] and y.tolist() == [[-1, 6], [7, 8]]


def test_cache(monkeypatch):
    """Equal features weigh all words alike, of which two are held."""
    monkeypatch.setattr(next_word, "CACHE", 2)
    y = np.array([5, 5, 6, 5, 7])
    found = next_word.cache_of(np.ones((5, 3)), y, sharpness=2.0)
    np.testing.assert_allclose(found, [-1, 1, 0, 0.5, 0])
    p = np.full(y.shape, 0.5)
    mixed = 0.5 ** np.array([1, 1, 2, 1, 2])
    mixed[1] = 0.75
    wanted = np.exp(-np.log(mixed).mean())
    assert next_word.perplexity(p, y, found, 0.5) == pytest.approx(wanted)
    y[-1] = -1  # no word of training
    wanted = np.exp(-np.log(mixed[:4]).mean())
    assert next_word.perplexity(p, y, found, 0.5) == pytest.approx(wanted)


def test_similar_places_weigh_more():
    features = np.array([[1.0, 0], [0, 1], [1, 0]])
    found = next_word.cache_of(features, np.array([3, 4, 3]), 2.0)
    np.testing.assert_allclose(found[2], 1 / (1 + np.exp(-2)))


def test_cache_in_blocks(monkeypatch):
    """Blocks have the sums of a table of all pairs."""
    random = np.random.default_rng(0)
    h, y = random.normal(size=(50, 4)), random.integers(0, 5, 50)
    ago = np.arange(50)[:, None] - np.arange(50)
    for size in 1, 7, 49, 500:
        monkeypatch.setattr(next_word, "CACHE", size)
        weights = np.exp(0.7 * h @ h.T) * ((ago > 0) & (ago <= size))
        same = y[:, None] == y
        wanted = (weights * same).sum(1)[1:] / weights.sum(1)[1:]
        found = next_word.cache_of(h, y, 0.7)
        np.testing.assert_allclose(found[1:], wanted, rtol=1e-9)


def test_a_text_is_one_stream_whose_words_all_count():
    model = next_word.make_model(7, units=4, batch=1)
    ids = np.random.default_rng(0).integers(0, 7, 2 * next_word.LENGTH + 6)
    features, p, y = next_word.answers_of(model, ids)
    counted = y >= 0
    np.testing.assert_array_equal(y[counted], ids[1:])
    # A model of any length reads the text at once.
    whole = next_word.in_float32(model)(ids[None, :-1])[0].numpy()
    wanted = whole[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(p[counted], wanted, rtol=1e-5)
    assert features.shape == (3 * next_word.LENGTH, 4)


def test_policy_of_the_computation():
    model = next_word.make_model(7, units=4, policy="mixed_bfloat16")
    assert {layer.compute_dtype for layer in model.layers[1:]} == {"bfloat16"}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    same = next_word.in_float32(model, batch=1)
    assert {layer.compute_dtype for layer in same.layers[1:]} == {"float32"}


def test_refused_before_training(monkeypatch, tmp_path):
    monkeypatch.setattr(next_word, "train", lambda *_: pytest.fail("trained"))
    for name in "epochs", "units", "batch":
        with pytest.raises(ValueError, match="at least 1. Received: .*0"):
            next_word.main(**{name: 0})
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        next_word.main(path=str(tmp_path / "file"))


def test_unknown_words(tmp_path):
    text = "a b c\n" * 1_000
    for part, more in ("train", ""), ("valid", "d "), ("test", ""):
        (tmp_path / f"{part}.txt").write_text(more + text)
    words, parts = next_word.read(tmp_path)
    assert sorted(words) == ["<eos>", "a", "b", "c"]
    assert parts["valid"][0] == -1 and (parts["train"] >= 0).all()
    (tmp_path / "test.txt").write_text("a b")
    with pytest.raises(ValueError, match="test.txt must have at least 1,025"):
        next_word.read(tmp_path)


def test_generated_text(tmp_path, monkeypatch):
    """A line ends for certain, and names come again."""
    monkeypatch.setattr(next_word, "RATE", 1e-2)
    path = str(tmp_path)
    figures = next_word.main(epochs=3, units=32, batch=16, path=path)
    # Two of six words are one of 50 things, and a name is new once in ten
    # lines: with the names unknown the least is (50 * 50 * 200) ** (1 / 6).
    assert figures["test"] < 15
    assert figures["test, cache"] < 0.97 * figures["test"]
    served = tf.saved_model.load(str(tmp_path / "1"))
    seen = tf.constant([[0, 1]], tf.int64)
    answer = served.signatures["serving_default"](ids=seen)
    assert answer["ids"].shape == (1, 2, next_word.K)
