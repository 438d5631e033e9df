"""Training of text embeddings: a NumPy oracle, and errors."""

import numpy as np
import pytest
import tensorflow as tf

from tfxclass.ops import library

pytestmark = pytest.mark.host

TERMS, LABELS, DIM, TEXTS = 7, 5, 9, 40
SCALE, TERM_RATE, LABEL_RATE, TERM_OFFSET, LABEL_OFFSET = 8, 0.05, 0.3, 4, 10


@pytest.fixture
def case():
    """Texts, labels and vectors; each text has a term and a label."""
    random = np.random.default_rng(0)
    x = random.standard_normal((TEXTS, TERMS)).astype(np.float32)
    x[random.random(x.shape) < 0.6] = 0
    x[:, 0] = 1
    y = random.random((TEXTS, LABELS)) < 0.3
    y[np.arange(TEXTS), random.integers(LABELS, size=TEXTS)] = True
    vectors = [random.standard_normal((n, DIM)) for n in (TERMS, LABELS)]
    return x, y, [vector.astype(np.float32) for vector in vectors]


def ragged(matrix):
    """Splits and columns of what is not 0."""
    counts = np.count_nonzero(matrix, axis=1)
    return np.concatenate([[0], np.cumsum(counts)]), np.nonzero(matrix)[1]


def call(x, y, vectors, order, **changed):
    """The loss, and the variables afterwards."""
    variables = [
        tf.Variable(vectors[0]),
        tf.Variable(tf.zeros(len(vectors[0]))),
        tf.Variable(vectors[1]),
        tf.Variable(tf.zeros(len(vectors[1]))),
        tf.Variable(tf.zeros(4, tf.float64)),
    ]
    splits, terms = ragged(x)
    label_splits, labels = ragged(y)
    arguments = {
        "text_splits": splits,
        "text_terms": terms.astype(np.int32),
        "text_values": x[x != 0],
        "text_label_splits": label_splits,
        "text_labels": labels,
        "order": np.asarray(order, np.int64),
        "first_step": 0,
        "num_steps": 4,
        "seed": 0,
        "batch_size": 16,
        "num_sampled": LABELS,
        "scale": SCALE,
        "dropout": 0.0,
        "term_rate": TERM_RATE,
        "label_rate": LABEL_RATE,
        "term_offset": TERM_OFFSET,
        "label_offset": LABEL_OFFSET,
    } | changed
    names = ["terms", "term_sums", "labels", "label_sums", "squares"]
    handles = {name: x.handle for name, x in zip(names, variables)}
    loss = library.ops.tfxclass_train_text_embeddings(**handles | arguments)
    return float(loss), [np.asarray(x) for x in variables]


class Table:
    """Vectors in float64, and what Adagrad keeps."""

    def __init__(self, rows):
        self.rows = rows.astype(np.float64)
        self.sums = np.zeros(len(rows))
        self.means = []

    def step(self, grads, used, rate, factor, is_before):
        """`used` are the rows that the step reads.

        The offset is of the steps before (the first has itself), or of this one
        as well.
        """
        mean = np.mean(grads[used] ** 2)
        if not is_before or not self.means:
            self.means.append(mean)
        offset = factor * np.mean(self.means)
        if is_before:
            self.means.append(mean)
        self.sums[used] += np.mean(grads[used] ** 2, axis=1)
        moves = rate * grads / np.sqrt(self.sums + offset)[:, np.newaxis]
        self.rows[used] -= moves[used]


def expected(x, y, vectors, order, batch_size, num_steps):
    terms, labels = map(Table, vectors)
    losses = []
    for step, begin in enumerate(range(0, len(order), batch_size)):
        rows = order[begin : begin + batch_size]
        targets = y[rows] / y[rows].sum(axis=1, keepdims=True)
        sums = x[rows].astype(np.float64) @ terms.rows
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        label_norms = np.linalg.norm(labels.rows, axis=1, keepdims=True)
        units, label_units = sums / norms, labels.rows / label_norms
        logits = SCALE * units @ label_units.T
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses.append(-np.sum(targets * np.log(p)))
        grads = SCALE * (p - targets) / len(rows)
        of_units, of_labels = grads @ label_units, grads.T @ units
        of_units -= np.sum(of_units * units, axis=1, keepdims=True) * units
        along = np.sum(of_labels * label_units, axis=1, keepdims=True)
        of_labels = (of_labels - along * label_units) / label_norms
        rate = (1 + np.cos(np.pi * step / num_steps)) / 2
        every = np.ones(LABELS, bool)
        labels.step(of_labels, every, rate * LABEL_RATE, LABEL_OFFSET, False)
        used = (x[rows] != 0).any(axis=0)
        of_terms = x[rows].T @ (of_units / norms)
        terms.step(of_terms, used, rate * TERM_RATE, TERM_OFFSET, True)
    return sum(losses) / len(order), terms, labels


def test_steps_equal_numpy(case):
    x, y, vectors = case
    order = np.random.default_rng(1).permutation(TEXTS)[:36]
    loss, found = call(x, y, vectors, order)
    wanted, terms, labels = expected(x, y, vectors, order, 16, 4)
    assert loss == pytest.approx(wanted, 1e-5)
    np.testing.assert_allclose(found[0], terms.rows, atol=2e-5)
    np.testing.assert_allclose(found[2], labels.rows, atol=2e-5)
    np.testing.assert_allclose(found[1], terms.sums, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(found[3], labels.sums, rtol=1e-3, atol=1e-9)
    assert found[4][[1, 3]].tolist() == [4, 3]


def test_terms_are_left_out(case):
    """Of a share of the terms nothing is learned in a step."""
    x, y, vectors = case
    alone = np.eye(TERMS, dtype=np.float32)
    labels = np.eye(LABELS, dtype=bool)[np.arange(TERMS) % LABELS]
    moved = []
    for seed in range(300):
        _, found = call(
            alone, labels, vectors, np.arange(TERMS), seed=seed, dropout=0.25
        )
        moved.append(np.any(found[0] != vectors[0], axis=1))
    # Five standard errors of a share of 0.75.
    error = 5 * np.sqrt(0.75 * 0.25 / (300 * TERMS))
    assert abs(np.mean(moved) - 0.75) < error


def test_a_sample_of_labels(case):
    """Other labels are drawn with each seed; the texts' own always learn."""
    x, _, vectors = case
    y = np.zeros((TEXTS, 200), bool)
    y[:, 3] = True
    vectors[1] = np.random.default_rng(2).standard_normal((200, DIM))
    vectors[1] = vectors[1].astype(np.float32)
    moved = []
    for seed in range(200):
        _, found = call(x, y, vectors, [0], num_sampled=9, seed=seed)
        moved.append(np.any(found[2] != vectors[1], axis=1))
        assert 2 <= moved[-1].sum() <= 9
    assert np.all(np.array(moved)[:, 3])
    others = np.delete(np.sum(moved, axis=0), 3)
    # Each call draws eight of the 199 other labels, and there are 200 calls.
    assert others.max() < 25 and np.count_nonzero(others) > 190


@pytest.mark.parametrize(
    "changed, named",
    [
        ({"text_terms": np.array([9] * 60)}, "text_values|text_terms"),
        ({"order": np.array([TEXTS])}, "order.*40"),
        ({"dropout": 1.0}, "dropout"),
        ({"scale": 0.0}, "scale"),
        ({"term_rate": float("nan")}, "term_rate"),
        ({"num_steps": 0}, "num_steps"),
        ({"first_step": -1}, "first_step"),
        ({"text_splits": np.array([0, 1])}, "text_splits"),
        ({"text_label_splits": np.array([0])}, "text_label_splits"),
    ],
)
def test_wrong_arguments(case, changed, named):
    with pytest.raises(tf.errors.InvalidArgumentError, match=named):
        call(*case, **{"order": np.arange(TEXTS)} | changed)


def test_a_text_without_a_label(case):
    x, y, vectors = case
    y[5] = False
    with pytest.raises(tf.errors.InvalidArgumentError, match="text 5 without"):
        call(x, y, vectors, np.arange(TEXTS))


def test_vectors_of_other_sizes(case):
    x, y, vectors = case
    vectors[1] = vectors[1][:, :-1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="one size"):
        call(x, y, vectors, np.arange(TEXTS))
