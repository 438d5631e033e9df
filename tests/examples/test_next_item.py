"""Both examples of next items, on their generated data."""

import lzma

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from examples import counts
from examples import next_item
from examples import next_item_users
from tfxclass.export import checks


def test_files(tmp_path):
    path = tmp_path / "shop"
    with lzma.open(f"{path}.train.txt.xz", "wt") as f:
        f.write("1 2 3\n2 1\n")
    with lzma.open(f"{path}.test.txt.xz", "wt") as f:
        f.write("1 2\t3\n2\t1\n")
    sessions, (histories, labels) = next_item.read(str(path))
    assert sessions == [[1, 2, 3], [2, 1]]
    assert histories == [[1, 2], [2]] and labels.tolist() == [3, 1]
    (tmp_path / "one").write_text("4 5\n")
    assert next_item.read(str(tmp_path / "one")) == ([[4, 5]], None)
    (tmp_path / "users").write_text("anna 4 5\n")
    assert next_item_users.read(str(tmp_path / "users")) == [[4, 5]]


def test_rows_of_users():
    """Of five items all but the first are labels, once each."""
    x, y = next_item_users.rows_of([[1, 2, 3, 4, 5], [6], [7, 8]], 3)
    assert x.tolist() == [[2, 3, 4], [0, 0, 1], [0, 0, 7]]
    assert y.tolist() == [[3, 4, 5], [-1, -1, 2], [-1, -1, 8]]


def test_sessions(tmp_path, monkeypatch):
    """One of four items follows each: their mean reciprocal rank is 0.52."""
    monkeypatch.setattr(next_item, "BOOSTS", (0.0, 4.0))
    figures = next_item.main(epochs=4, path=str(tmp_path))
    assert figures["hit_rate"] > 0.9 and figures["mrr"] > 0.3
    assert figures["coverage"] > 0.9
    served = tf.saved_model.load(str(tmp_path / "1"))
    seen = next_item.inputs_of([[5, 6], [9]])
    ids = served.serve([seen, seen]).numpy()
    assert ids.shape == (2, next_item.K) and np.all(ids > 0)


def test_users(tmp_path, monkeypatch):
    """One of two items follows each; histories are longer than the model's."""
    monkeypatch.setattr(next_item_users, "BLOCKS", 1)
    tmp_path /= "new"
    figures = next_item_users.main(epochs=6, path=str(tmp_path), length=4)
    assert figures["hit_rate"] > 0.9 and figures["ndcg"] > 0.6
    checks.check_ops(str(tmp_path / "1"))
    served = tf.saved_model.load(str(tmp_path / "1"))
    seen = np.array([[0, 4, 5, 6]])
    ids = served.serve([seen, seen]).numpy()
    assert len(set(ids[0])) == next_item_users.K
    assert not np.isin(ids, [0, 4, 5, 6]).any()
    ranker = keras.saving.load_model(tmp_path / "model.keras")
    split = tfxclass.retrieval.leave_one_out(next_item_users.read(None))
    alone = counts.evaluate(ranker, split.validation, weight=counts.ALONE)
    assert alone["hit_rate"] > 0.9 and alone["ndcg"] > 0.6
    counts.count(ranker, [[4, 5, 6, 50], [5, 6, 50]])
    ranker.get_layer("ranking").weight.assign(counts.COUNTS)
    assert ranker([seen, seen]).numpy()[0, 0] == 50
    # Of 100 items 92 are excluded, so that two places are empty.
    ids = ranker([seen, np.arange(93)[None]]).numpy()[0]
    assert sorted(ids) == [-1, -1, *range(93, 101)]


def test_padding_is_not_read():
    """Answers stay as they are when the vector of item 0 changes."""
    model, answers = next_item_users.make_models(30, dim=8)
    seen = np.zeros((1, next_item_users.LENGTH), np.int64)
    seen[0, -3:] = [4, 5, 6]
    before = answers(seen).numpy()
    (items,) = (x for x in model.layers if getattr(x, "input_dim", 0) == 30)
    rows = items.embeddings.numpy()
    rows[0] = np.random.default_rng(0).normal(size=8)
    items.embeddings.assign(rows)
    np.testing.assert_allclose(answers(seen).numpy(), before, rtol=1e-5)


@pytest.mark.parametrize(
    "text, received",
    [("", "no"), ("anna\n", "no"), ("anna 3 0\n", "0"), ("a b1 3", "b1")],
)
def test_files_of_users_are_checked(tmp_path, text, received):
    (tmp_path / "users").write_text(text)
    wanted = f"ids from 1 on. Received: {received}.*number_items"
    with pytest.raises(ValueError, match=wanted):
        next_item_users.read(str(tmp_path / "users"))


def test_counts_of_near_items():
    """By hand: 1 is next to 2 twice, and two steps from 3 once."""
    others, found = counts.nearby([[1, 2, 3], [2, 1]], 5)
    popularity = {1: 2.5, 2: 3.0, 3: 1.5}
    expected = {2: 2 / popularity[2] ** 0.5, 3: 0.5 / popularity[3] ** 0.5}
    assert others[1][:3].tolist() == [2, 3, 0]
    np.testing.assert_allclose(found[1][:3], [expected[2], expected[3], 0])
    assert not found[0].any() and not found[4].any()


def test_counts_are_added():
    """A count of 0.5 for item 3, seen one item ago: a quarter is left."""
    layer = counts.Ranking(6, k=4)
    found, others = np.zeros((2, 6, counts.NEIGHBORS))
    found[2, :2], others[2, :2] = [0.5, 0.0], [3, 0]
    layer.counts.assign(found)
    layer.others.assign(others)
    layer.boost.assign(float("-inf"))
    layer.weight.assign(1.0)
    seen = np.array([[0] * (next_item_users.LENGTH - 2) + [2, 1]])
    raised = np.log1p(100 * 0.5 / 2)
    for probability, best in ((-raised + 0.01, 3), (-raised - 0.01, 5)):
        p = np.array([[0, 0.9, 0.9, np.exp(probability), 1e-9, 1.0]], "float32")
        p = np.concatenate([p, np.zeros((1, 4), "float32")], axis=1)
        ids = layer(p, seen, seen).numpy()
        assert ids[0, 0] == best


def test_users_of_one_item_have_no_counts():
    others, found = counts.nearby([[1], [2]], num_items=3)
    assert others.shape == found.shape == (3, counts.NEIGHBORS)
    assert not found.any()


def test_new_items_are_not_counted():
    known = counts.nearby([[1, 2], [2, 3, 1]], num_items=3)
    others = counts.nearby([[1, 2], [2, 1]], num_items=3)
    np.testing.assert_array_equal(known, others)


@pytest.mark.parametrize("text", ["anna 1 12", "anna 1 2 3"])
def test_few_items_are_refused(tmp_path, text):
    (tmp_path / "users").write_text(text)
    with pytest.raises(ValueError, match="three items, and 10 items"):
        next_item_users.main(str(tmp_path / "users"))


def test_seen_items_are_raised():
    """Once each, however often they were seen; padding stays no answer."""
    layer = counts.Ranking(4, k=3)
    layer.boost.assign(2.0)
    p = np.array([[0, 1.0, 0.2, 0.15]], "float32")  # e^2 is 7.4
    ids = layer(p, np.array([[0, 2]]), np.array([[0, 3, 2, 3]])).numpy()
    assert ids.tolist() == [[2, 3, 1]]


def test_more_answers_than_items_are_refused():
    model = next_item.make_model(num_items=20)
    with pytest.raises(ValueError, match="below the number of items, 20"):
        counts.make_ranker(model, k=20, boost=0.0)


def test_questions_may_have_new_items(tmp_path):
    for part, new in ("train", ""), ("test", "150 7 8\n"):
        with lzma.open(tmp_path / f"shop.{part}.txt.xz", "wt") as f:
            f.writelines(f"{i} {i + 1} {i + 2}\n" for i in range(1, 60))
            f.write(new)
    figures = next_item.main(str(tmp_path / "shop"), epochs=1)
    assert 0 <= figures["hit_rate"] <= 1
