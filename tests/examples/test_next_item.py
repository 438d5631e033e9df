"""Both examples of next items, on their generated data."""

import lzma

import numpy as np
import tensorflow as tf

from examples import next_item
from examples import next_item_users


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


def test_sessions(tmp_path):
    """One of four items follows each: their mean reciprocal rank is 0.52."""
    figures = next_item.main(epochs=4, path=str(tmp_path))
    assert figures["hit_rate"] > 0.9 and figures["mrr"] > 0.3
    assert figures["coverage"] > 0.9
    served = tf.saved_model.load(str(tmp_path / "1"))
    seen = next_item.inputs_of([[5, 6], [9]])
    ids = served.signatures["serving_default"](seen=seen)["ids"].numpy()
    assert ids.shape == (2, next_item.K) and np.all(ids > 0)


def test_users(tmp_path):
    """One of two items follows each."""
    figures = next_item_users.main(epochs=3, path=str(tmp_path))
    assert figures["hit_rate"] > 0.9 and figures["ndcg"] > 0.6
    served = tf.saved_model.load(str(tmp_path / "1"))
    seen = np.zeros((1, next_item_users.LENGTH), np.int64)
    seen[0, -3:] = [4, 5, 6]
    answers = served.signatures["exclude"](seen=seen, exclude_ids=seen)
    assert not np.isin(answers["ids"], [4, 5, 6]).any()
