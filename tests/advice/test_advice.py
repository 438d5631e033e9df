"""tfxclass.advise: what it measures, and what follows from it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.advice.clocks import tick
from tfxclass import layers
from tfxclass.advice.batches import batches_of
from tfxclass.samplers.auto import PAYS_ABOVE

CLASSES, DIM, BATCH = 300, 8, 16


def data(rows=64, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, rows)


def model_with(head, optimizer=None):
    encoder = keras.layers.Dense(DIM, activation="tanh")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    if optimizer is not None:
        model.compile(optimizer, loss=head.loss)
    return model


@pytest.fixture(scope="module")
def found():
    """`(advice, model, weights before)`; the clock ticks as it is read."""
    keras.utils.set_random_seed(0)
    head = layers.SampledSoftmax(
        CLASSES, 40, similarity=layers.Cosine(scale=9.0)
    )
    model = model_with(head, tfxclass.optimizers.LazyAdam(1e-3))
    before = model.get_weights()
    with pytest.MonkeyPatch.context() as patch:
        tick(patch, 0.02)
        advice = tfxclass.advise(model, data(), BATCH, seconds=60, verbose=0)
    return advice, model, before


def test_the_model_stays_as_it_is(found):
    _, model, before = found
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert int(model.optimizer.iterations.value) == 0


def test_all_heads_are_measured(found):
    advice, model, _ = found
    assert [c.name for c in advice.choices] == [
        "full", "uniform", "auto", "forest", "lsh"
    ]  # fmt: skip
    for choice in advice.choices:
        assert 0 < choice.step_ms <= 1e3 * choice.first_step_s * 1e3
        if choice.name == "auto":  # as the model's own head
            expected = tfxclass.estimate(
                model.layers[-1], DIM, BATCH, model.optimizer
            )
            assert choice.memory == expected
    sizes = (advice.num_classes, advice.num_sampled, advice.batch)
    assert sizes == (CLASSES, 40, BATCH)
    assert advice.trained_steps >= 1 and advice.constant == PAYS_ABOVE


def test_a_new_head_has_the_models_arguments(found):
    head = found[0].head()
    assert head.cosine == layers.Cosine(scale=9.0)
    assert head.num_classes == CLASSES


def test_noise_is_the_one_of_the_rows(found):
    """v = N / (m k_eff) of a model that barely learns: near 1 / m."""
    advice, _, _ = found
    negatives = 40 - BATCH
    assert 1 / negatives < advice.v < 2 * CLASSES / (negatives * advice.k_eff)
    assert 0 < advice.noise <= advice.v


def test_noise_against_numpy():
    """Rows as given: a rate of zero."""
    keras.utils.set_random_seed(1)
    head = layers.FullSoftmax(CLASSES, use_bias=True)
    model = model_with(head, keras.optimizers.SGD(0.0))
    head.kernel.assign(2 * np.random.default_rng(2).normal(size=(CLASSES, DIM)))
    head.bias.assign(np.random.default_rng(3).normal(size=CLASSES))
    x, y = data(BATCH)
    advice = tfxclass.advise(
        model, (x, y), BATCH, num_sampled=50, seconds=0.2, verbose=0
    )
    logits = head.logits(model.layers[0](x)).numpy().astype(np.float64)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    of_label = p[np.arange(BATCH), y].copy()
    p[np.arange(BATCH), y] = 0
    k_eff = p.sum(axis=1) ** 2 / (p**2).sum(axis=1)
    v = CLASSES / ((50 - len(np.unique(y))) * k_eff)
    # float32 sums of 300 exponentials.
    np.testing.assert_allclose(advice.v, v.mean(), rtol=1e-4)
    np.testing.assert_allclose(
        advice.noise, (v * (1 - of_label)).mean(), rtol=1e-4
    )
    k_mean = np.exp(np.log(k_eff).mean())
    np.testing.assert_allclose(advice.k_eff, k_mean, rtol=1e-4)


def advice_of(noise, /, rates=(), best=None, **step_ms):
    memory = tfxclass.estimate(layers.FullSoftmax(CLASSES), DIM, BATCH)
    choices = tuple(
        tfxclass.advice.Choice(name, ms, 0.1, memory)
        for name, ms in step_ms.items()
    )
    config = layers.FullSoftmax(CLASSES).get_config()
    config = {"num_classes": config["num_classes"]}
    return tfxclass.Advice(
        choices, 10, 5.0, 2.0, noise, 0.5, CLASSES, 40, BATCH, config,
        rates=rates, best=best, held_out_rows=6,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("noise", "step_ms", "expected", "kind"),
    [
        (0.1, (9.0, 3.0, 3.5, 4.0, 5.0), "uniform", layers.SampledSoftmax),
        # 3 ms, 1.6 times as long for their noise, are more than 4.
        (0.8, (9.0, 3.0, 4.5, 4.0, 5.0), "forest", layers.SelectiveSoftmax),
        (0.8, (9.0, 3.0, 4.5, 5.0, 4.0), "lsh", layers.LSHSoftmax),
        (0.8, (9.0, 3.0, 4.0, 5.0, 4.5), "auto", layers.SampledSoftmax),
        (0.6, (9.0, 3.0, 4.5, 4.0, 5.0), "uniform", layers.SampledSoftmax),
        (0.1, (2.5, 3.0, 3.5, 4.0, 5.0), "full", layers.FullSoftmax),
        (5.0, (9.0, 3.0, 30.0, 40.0, 50.0), "full", layers.FullSoftmax),
    ],
)
def test_what_is_recommended(noise, step_ms, expected, kind):
    names = ("full", "uniform", "auto", "forest", "lsh")
    advice = advice_of(noise, **dict(zip(names, step_ms, strict=True)))
    assert advice.recommended == expected
    head = advice.head()
    assert type(head) is kind and head.num_classes == CLASSES
    text = str(advice)
    assert text.startswith(f"Recommended: {kind.__name__}(300")
    assert f"Next best: {kind.__name__}(" not in text
    for number in (*step_ms, 2.0):
        assert f"{number:.3g}" in text


def test_memory_is_of_rows_and_of_the_heads_own_optimizer(monkeypatch):
    """Not of labels, and not of what the encoder is trained with."""
    x, y = data(BATCH)
    labels = np.stack([y, (y + 1) % CLASSES, (y + 2) % CLASSES], axis=1)
    head = layers.FullSoftmax(CLASSES)
    model = model_with(head)
    optimizer = tfxclass.optimizers.MultiOptimizer(
        [
            (keras.optimizers.SGD(0.1), model.layers[0]),
            (tfxclass.optimizers.LazyAdam(1e-3), head),
        ]
    )
    model.compile(optimizer, loss=head.loss)
    tick(monkeypatch, 0.1)
    advice = tfxclass.advise(model, (x, labels), float(BATCH), 100.0, verbose=0)
    expected = tfxclass.estimate(head, DIM, BATCH, optimizer)
    assert advice.choices[0].memory == expected
    assert advice.num_sampled == 100


def test_the_moments_of_adam_are_not_blamed():
    """One second moment for a whole matrix makes most models worse."""
    head = layers.SampledSoftmax(CLASSES, 40)
    model = model_with(head, keras.optimizers.Adam(1e-3))
    advice = tfxclass.advise(model, data(BATCH), BATCH, seconds=0.2, verbose=0)
    assert "second_moment" not in str(advice)


def test_uniform_recommends_auto_which_can_change_its_mind():
    advice = advice_of(0.1, full=9.0, uniform=3.0)
    assert isinstance(advice.head().sampler, tfxclass.samplers.AutoSampler)


def test_datasets_go_on_and_structures_are_drawn_alike():
    x, y = data(6)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    batches = batches_of(dataset, 99)
    assert [len(next(batches)[1]) for _ in range(4)] == [4, 2, 4, 2]
    rows = np.arange(6)
    batches = batches_of(({"a": rows, "b": [10 * rows]}, rows), 4)
    for _ in range(3):
        given, labels = next(batches)
        np.testing.assert_array_equal(given["a"], labels)
        np.testing.assert_array_equal(given["b"][0], 10 * labels.numpy())


X, Y = data(8)
BAD = {
    "no head": (
        lambda: tfxclass.advise(keras.Sequential([keras.Input([3])]), (X, Y)),
        "exactly one head",
    ),
    "another head": (
        lambda: tfxclass.advise(
            model_with(layers.HierarchicalSoftmax(CLASSES, "balanced")), (X, Y)
        ),
        "Received: a HierarchicalSoftmax",
    ),
    "not built": (
        lambda: tfxclass.advise(
            keras.Sequential([layers.FullSoftmax(CLASSES)]), (X, Y)
        ),
        "must be built",
    ),
    "seconds": (
        lambda: tfxclass.advise(
            model_with(layers.FullSoftmax(9)), (X, Y), seconds=0
        ),
        "`seconds` must be > 0. Received: 0",
    ),
    "batch_size": (
        lambda: tfxclass.advise(None, (X, Y), batch_size=0),
        "`batch_size` must be a positive integer. Received: 0",
    ),
    "num_sampled": (
        lambda: tfxclass.advise(
            model_with(layers.FullSoftmax(9)), (X, Y % 9), num_sampled=-1
        ),
        "`num_sampled` must be a positive integer. Received: -1",
    ),
    "loss": (
        lambda: tfxclass.advise(
            model_with(layers.FullSoftmax(9, loss="sigmoid")), (X, Y % 9)
        ),
        'Received: loss="sigmoid"',
    ),
    "one array": (lambda: batches_of(X, 4), "`data` must be"),
    "unequal": (lambda: batches_of((X, Y[:3]), 4), r"\[3, 8\]"),
    "no rows": (lambda: batches_of((X[:0], Y[:0]), 4), r"Received: \[0\]"),
    "an empty dataset": (
        lambda: next(
            batches_of(tf.data.Dataset.from_tensor_slices((X, Y)).take(0), 4)
        ),
        "must have a batch",
    ),
    "a dataset without labels": (
        lambda: next(
            batches_of(tf.data.Dataset.from_tensor_slices((X, Y, Y)), 4)
        ),
        "tuple of 3",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_rows_in_half(monkeypatch):
    keras.utils.set_random_seed(0)
    head = layers.SampledSoftmax(CLASSES, 40, kernel_dtype="bfloat16")
    model = model_with(head)
    before = head.kernel.numpy()
    tick(monkeypatch, 0.1)
    advice = tfxclass.advise(model, data(), BATCH, verbose=0)
    names = [choice.name for choice in advice.choices]
    assert names == ["full", "uniform", "auto", "forest", "lsh"]
    assert advice.head().kernel_dtype == "bfloat16"
    np.testing.assert_array_equal(head.kernel.numpy(), before)
