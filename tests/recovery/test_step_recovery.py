"""Recovery by a searched step, against its definition in NumPy."""

import warnings

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from sklearn import datasets

import tfxclass
from tests.support import reference
from tfxclass import recovery
from tfxclass.recovery.step import recovered_by_step
from tfxclass.recovery.step import rows_held_out
from tfxclass.recovery.sums import RecoverySums

CLASSES, DIM, ROWS = 11, 6, 400


def slim(projection_dim=2, seed=0, **options):
    head = tfxclass.layers.ProjectedSoftmax(
        CLASSES, projection_dim, seed=seed, **options
    )
    return built(head, seed)


def adaptive(seed=0):
    head = tfxclass.layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[3, 8], projection_dims=(4, 1), seed=seed
    )
    return built(head, seed)


def built(head, seed):
    head.build((None, DIM))
    random = np.random.default_rng(seed)
    for weight in head.trainable_weights:
        weight.assign(random.normal(size=weight.shape))
    return head


HEADS = {"slim": slim, "adaptive": adaptive}


def data(seed=0, labels=1, noise=1.0):
    """Rows about the vectors of their first class."""
    random = np.random.default_rng(seed)
    y = random.integers(0, CLASSES, (ROWS, labels))
    x = random.normal(size=(CLASSES, DIM))[y[:, 0]]
    x += noise * random.normal(size=(ROWS, DIM))
    if labels > 1:
        y[::3, 1:] = -1
        y[5::50] = -1
    return x.astype(np.float32), y


def summed(head, x, y, weight=None, size=90, **options):
    options = {"max_held_out": rows_held_out(head.num_classes), **options}
    sums = RecoverySums(head, **options)
    for a in range(0, len(x), size):
        part = None if weight is None else weight[a : a + size]
        sums.add(x[a : a + size], y[a : a + size], part)
    return sums


def lifted(head):
    parts = [
        rows.numpy() @ projection.numpy().T.astype(np.float64)
        for projection, rows in head.projected_rows()
    ]
    return np.concatenate(parts)


def targets(y):
    target = np.zeros((len(y), CLASSES))
    for row, labels in enumerate(y):
        ids = reference.distinct_labels(labels)
        target[row, ids] = 1 / max(len(ids), 1)
    return target


def loss(head, kernel, x, y, weight):
    """Mean over the rows with a label."""
    bias = getattr(head, "bias", None)
    logits = x @ kernel.T + (0 if bias is None else bias.numpy())
    target = targets(y)
    weight = weight * target.sum(axis=1)
    losses = reference.logsumexp(logits) - (logits * target).sum(axis=1)
    return weight @ losses / weight.sum()


def is_held_out(sums, x):
    kept = {row.tobytes() for row in sums.held_out.features}
    return np.array([row.tobytes() in kept for row in x])


def stepped(head, x, y, weight, report):
    """The definition, in float64."""
    bias = getattr(head, "bias", None)
    start = lifted(head)
    logits = x @ start.T + (0 if bias is None else bias.numpy())
    target = targets(y)
    duals = target - reference.softmax(logits) * target.sum(1)[:, None]
    n = weight.sum()
    gradient = (duals * weight[:, None]).T @ x / n
    moments = (x * weight[:, None]).T @ x.astype(np.float64) / n
    frequencies = weight @ target / n
    inverse = np.linalg.inv(moments + report.step.mu * np.eye(DIM))
    scaled = gradient / (frequencies + report.step.q)[:, None]
    return report.step.keep * start + report.step.eta * scaled @ inverse


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_result_is_the_definition(name, weighed):
    head = HEADS[name]()
    x, y = data(labels=3)
    weight = np.linspace(0.5, 2, ROWS) if weighed else np.ones(ROWS)
    sums = summed(head, x, y, weight if weighed else None)
    kernel, report = recovered_by_step(sums)
    kept = is_held_out(sums, x)
    assert 10 < kept.sum() < 0.15 * ROWS and report.step.eta > 0
    rest = ~kept
    expected = stepped(head, x[rest], y[rest], weight[rest], report)
    # float32 sums and products of some hundred numbers.
    size = np.abs(expected).max()
    np.testing.assert_allclose(kernel, expected, rtol=1e-4, atol=1e-5 * size)
    held_out = x[kept], y[kept], weight[kept]
    assert report.loss == pytest.approx(loss(head, kernel, *held_out), rel=1e-4)
    before = loss(head, lifted(head), *held_out)
    assert report.lifted_loss == pytest.approx(before, rel=1e-5)
    assert report.num_rows == (targets(y[kept]).sum(axis=1) > 0).sum()
    np.testing.assert_array_equal(recovered_by_step(sums)[0], kernel)


# Fewer examples than usual, since the search for a step takes long.
@settings(max_examples=settings().max_examples * 2 // 5)
@given(
    st.sampled_from(list(HEADS)),
    st.integers(0, 1000),
    st.floats(0, 30),
    st.sampled_from([1, 3]),
)
def test_never_worse_than_the_lift_on_rows_held_out(name, seed, noise, labels):
    """Of any noise: of pure noise, the step is short or none."""
    head = HEADS[name](seed=seed)
    x, y = data(seed, labels, noise)
    sums = summed(head, x, y, size=ROWS)
    kernel, report = recovered_by_step(sums)
    kept = is_held_out(sums, x)
    held_out = x[kept], y[kept], np.ones(kept.sum())
    before = loss(head, lifted(head), *held_out)
    assert loss(head, kernel, *held_out) <= before * (1 + 1e-5)
    assert report.loss <= report.lifted_loss


def test_digits_after_usual_training():
    """Constant-rate Adam, m = 8 of 64: ten points and more over the lift."""
    keras.utils.set_random_seed(0)
    x, y = datasets.load_digits(return_X_y=True)
    x = x.astype(np.float32) / 16
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:360], order[360:]
    head = tfxclass.layers.ProjectedSoftmax(10, 8, l2=1e-4, seed=0)
    model = keras.Sequential([keras.Input([64]), head])
    model.compile("adam", loss=head.loss)
    model.optimizer.learning_rate = 0.01
    model.fit(x[train], y[train], batch_size=64, epochs=10, verbose=0)

    def accuracy(model):
        return np.mean(model(x[test]).numpy().argmax(axis=1) == y[test])

    found = recovery.recover(model, (x[train], y[train]), verbose=0)
    assert accuracy(model) > 0.5
    assert accuracy(found) >= accuracy(model) + 0.1


def make_model(head):
    return keras.Sequential([keras.Input([DIM]), head])


def test_recover_tells_what_it_found(capsys):
    model = make_model(slim(l2=0.1))
    x, y = data()
    found = recovery.recover(model, (x, y))
    told = capsys.readouterr().out
    sums = summed(model.layers[-1], x, y, size=256)
    kernel, report = recovered_by_step(sums)
    np.testing.assert_array_equal(found.layers[-1].kernel, kernel)
    assert str(report) in told
    for name in ("eta", "mu", "q"):
        assert f" {name} " in str(report)


def test_held_out_rows_are_a_uniform_sample():
    """Of sorted data; those that were given up are in the sums again."""
    head = slim()
    x, y = data(labels=2)
    sums = summed(head, x, y, size=10, max_held_out=12)
    sums.return_surplus()
    kept = is_held_out(sums, x)
    assert kept.sum() == len(sums.held_out.weights) == 12
    everything = RecoverySums(head)
    everything.add(x[~kept], y[~kept])
    np.testing.assert_allclose(
        sums.kernel, everything.kernel, rtol=1e-4, atol=1e-4
    )
    assert sums.total_weight == everything.total_weight == ROWS - 12


def test_sequences_and_masks():
    """Positions are rows; those of a mask are none, as in the mean of fit."""
    head = slim()
    x, y = data()
    embed = keras.layers.Embedding(
        ROWS + 1, DIM, mask_zero=True, weights=[np.pad(x, [[1, 0], [0, 0]])]
    )
    model = keras.Sequential([keras.Input([5], dtype="int32"), embed, head])
    tokens = np.concatenate([np.zeros(10, int), np.arange(1, ROWS + 1)])
    labels = np.concatenate([np.zeros(10, int), y[:, 0]])
    tokens, labels = tokens.reshape(-1, 5), labels.reshape(-1, 5)
    masked = RecoverySums(head)
    masked.add(embed(tokens), labels, np.full(len(tokens), 2.0))
    plain = RecoverySums(head)
    plain.add(x, y)
    assert masked.total_weight == 2 * ROWS
    np.testing.assert_allclose(masked.kernel, 2 * plain.kernel, atol=1e-3)
    found = recovery.recover(model, (tokens, labels), verbose=0)
    assert found(tokens).shape == (82, 5, CLASSES)


def test_a_handful_of_rows_is_lifted():
    model = make_model(slim())
    x, y = data()
    found = recovery.recover(model, (x[:2], y[:2]), verbose=0)
    np.testing.assert_allclose(
        found.layers[-1].kernel, lifted(model.layers[-1]), rtol=1e-5
    )


def test_logits_that_are_not_finite_leave_the_sums_alone():
    head = slim()
    x, y = data()
    sums = summed(head, x, y)
    before = sums.kernel.copy(), len(sums.held_out.weights)
    head.kernel.assign(np.full(head.kernel.shape, np.inf))
    with pytest.raises(ValueError, match="The logits"):
        sums.add(x, y)
    np.testing.assert_array_equal(sums.kernel, before[0])
    assert len(sums.held_out.weights) == before[1] and sums.num_rows == ROWS


def test_heads_that_are_refused():
    full = tfxclass.layers.FullSoftmax
    for head, method in (
        (full(CLASSES), "dual"),
        (full(CLASSES), "step"),
        (tfxclass.layers.ProjectedSoftmax(9, 4, similarity="cosine"), "step"),
        (tfxclass.layers.SampledSoftmax(CLASSES, 5), "step"),
    ):
        with pytest.raises(ValueError, match="must end in a ProjectedSoftmax"):
            recovery.recover(make_model(head), data(), 1.0, method=method)


def test_rows_alone_in_their_class_are_told():
    """What is held out of them has a class that the sums do not know."""
    head = built(tfxclass.layers.ProjectedSoftmax(ROWS, 2), 0)
    x, _ = data()
    sums = summed(head, x, np.arange(ROWS)[:, None])
    with pytest.warns(UserWarning, match="the only ones of their class"):
        recovered_by_step(sums)
    sums = summed(head, x, np.arange(ROWS)[:, None] // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recovered_by_step(sums)


def test_of_a_slim_model_that_is_too_sure_less_is_kept():
    """A step alone could not take back what is wrong."""
    head = slim(use_bias=True)
    rows = head.trainable_weights[0]
    rows.assign(20 * rows)
    x, y = data(noise=0.5)
    sums = summed(head, x, y)
    kernel, report = recovered_by_step(sums)
    assert report.step.keep < 1 and report.loss < 0.2 * report.lifted_loss
    kept = is_held_out(sums, x)
    held_out = x[kept], y[kept], np.ones(kept.sum())
    assert report.loss == pytest.approx(loss(head, kernel, *held_out), rel=1e-4)
