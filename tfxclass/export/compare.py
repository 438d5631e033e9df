"""Whether an export answers as the model does, up to rounding.

Two programs of the same ops round a float32 encoder nearly alike. In 16 bits
they do not: what one keeps in a register the other writes to memory. How much
that changes an answer depends on the head and on its class vectors, so it is
measured: the head answers features with noise of the size of the rounding.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.inference.thresholds import above
from tfxclass.keras_internals import flat_layers

# Two orders of summation in float32. An absolute 1e-6 alone would say nothing
# about probabilities over a million classes, and is below the resolution of
# large logits.
_RELATIVE = 2e-5
_ABSOLUTE = {
    None: 1e-6,
    "softmax": 1e-12,
    "sigmoid": 1e-12,
    # A difference of logits: it has their error, however small it is itself.
    "sparsemax": 2e-5,
}
# The distance of 1 to the next number; of int8 products, of their steps.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 2.0**-7}
# The head answers so many noisy copies of the features, and the greatest
# change that they show is multiplied by this factor to be a bound.
_NOISY_COPIES = 4
_SAFETY = 4.0

Answer = Callable[[tf.Tensor], dict[str, tf.Tensor]]


class Expected(NamedTuple):
    """A model's answers, and how near an export has to be.

    Attributes:
        answers: dict of arrays `[..., n]`.
        tolerance: float `[rows, n]`, of the numbers among them.
        compared: bool `[rows, n]` or `[rows, 1]`, which answers are compared.
    """

    answers: dict[str, np.ndarray]
    tolerance: np.ndarray
    compared: np.ndarray | bool = True


def tolerance(
    values: np.ndarray,
    activation: str | None,
    error: np.ndarray | float = 0.0,
) -> np.ndarray:
    """How far the model's `values` `[..., n]` may be off, float `[rows, n]`.

    The activation is of scores, None of logits and features; the error float,
    `[rows, 1]` or `[rows, n]`, from other causes than the order of sums.
    """
    return _ABSOLUTE[activation] + _RELATIVE * np.abs(_flat(values)) + error


def feature_error(encoder: keras.Model) -> float:
    """The rounding of features over their size; 0 of a float32 encoder.

    The roundings of layers add up as the steps of a random walk do.
    """
    errors = [_layer_error(layer) for layer in flat_layers(encoder)]
    return float(np.sqrt(np.sum(np.square(errors))))


def _layer_error(layer):
    policy = layer.dtype_policy
    if getattr(policy, "quantization_mode", None) is not None:
        return _EPSILON["int8"]
    return _EPSILON.get(policy.compute_dtype, 0.0)


def expect(
    answer: Answer,
    features: tf.Tensor,
    error: float,
    activation: str | None,
    threshold: Any = None,
) -> Expected:
    """`Expected` of what a model answers.

    Args:
        answer: function of features that returns a dict of tensors: numbers
            `[..., n]`, `features` or `scores`, and perhaps their `ids`.
        features: float `[..., dim]`.
        error: what `feature_error` returned.
        activation: of scores; None of logits and features.
        threshold: least score of an answer: float, float32 `[num_classes]`,
            or None.
    """
    answers, compared, moved = answer(features), _is_finite(features), 0.0
    (key,) = answers.keys() - {"ids"}
    if error:
        moved = _error(answer, features, error, answers[key], key, activation)
    if "ids" in answers:
        if error:
            near = _is_near(threshold, **answers, allowed=moved)
            compared = compared & ~near
        found = above(threshold, answers["ids"], answers["scores"])
        answers = dict(zip(("ids", "scores"), found))
    answers = {name: x.numpy() for name, x in answers.items()}
    return Expected(
        answers, tolerance(answers[key], activation, moved), compared
    )


def _is_finite(features):
    """Which rows can be compared, bool `[rows, 1]`.

    An encoder may have no answer to a row, as the mean of no words.
    """
    found = np.isfinite(flatten(features)).all(axis=1, keepdims=True)
    if not found.any():
        raise ValueError(
            "The features of all example rows are NaN or infinite, so that no "
            "answer can be compared with the model's. Give rows of real data "
            "as `example_inputs`, or look for NaN in the model's weights."
        )
    return found


def _error(answer, features, error, numbers, key, activation):
    """`[rows, n]`, from the answers to features with noise."""
    numbers, rng = _flat(numbers.numpy()), np.random.default_rng(0)
    rows = np.nan_to_num(flatten(features).numpy())
    # How far features may be rounded.
    size = np.sqrt(np.mean(np.square(rows), axis=1, keepdims=True))
    scale, most = error * (np.abs(rows) + size), np.zeros([len(rows), 1])
    # Probabilities change by a factor. A sparsemax is a difference of logits.
    unit = 1.0
    if activation in ("softmax", "sigmoid"):
        unit = np.maximum(np.abs(numbers), 1e-30)
    for _ in range(_NOISY_COPIES):
        moved = scale * rng.standard_normal(scale.shape)
        moved = tf.reshape(tf.cast(moved, tf.float32), tf.shape(features))
        found = answer(tf.cast(features, tf.float32) + moved)[key].numpy()
        apart = np.abs(_flat(found) - numbers) / unit
        most = np.maximum(most, apart.max(axis=1, keepdims=True))
    return _SAFETY * most * unit


def _is_near(threshold, ids, scores, allowed):
    """Which scores may be on either side of the threshold."""
    if threshold is None:
        return False
    if not np.isscalar(threshold):
        threshold = np.asarray(threshold)[np.maximum(_flat(ids.numpy()), 0)]
    return np.abs(_flat(scores.numpy()) - threshold) <= allowed


def check(
    answers: dict[str, np.ndarray],
    expected: Expected,
    names: Sequence[str] | None = None,
) -> None:
    """Raises RuntimeError unless the answers are those expected.

    Ids are equal but where rounding alone may order two classes either way.
    With the names of the classes, answers have `labels` (bytes objects).
    """
    for key, value in expected.answers.items():
        if answers[key].shape != value.shape:
            _differs(f"shape of `{key}`", answers[key].shape, value.shape)
    wanted = {key: _flat(x) for key, x in expected.answers.items()}
    found = {
        key: np.where(expected.compared, _flat(answers[key]), value)
        for key, value in wanted.items()
    }
    for key in wanted.keys() - {"ids"}:
        if not np.all(_is_close(found[key], wanted[key], expected.tolerance)):
            _differs(f"`{key}`", found[key], wanted[key])
    if "ids" in wanted and not _is_same_order(
        found["ids"], wanted["ids"], wanted["scores"], expected.tolerance
    ):
        _differs("`ids`", found["ids"], wanted["ids"])
    if names is not None and "ids" in wanted:
        _check_labels(_flat(answers["ids"]), _flat(answers["labels"]), names)


def _flat(answers):
    """`[..., k]` as `[rows, k]`."""
    return answers.reshape(-1, answers.shape[-1])


def _is_close(received, expected, tolerance):
    with np.errstate(invalid="ignore"):  # inf - inf
        close = np.abs(received - expected) <= tolerance
    same = np.isnan(received) & np.isnan(expected)
    return close | same | (received == expected)


def _is_same_order(received, expected, scores, tolerance):
    """Whether ids differ only where classes of one score change places."""
    for row, place in np.argwhere(received != expected):
        gap = np.abs(scores[row] - scores[row, place])
        tied = gap <= tolerance[row, place]
        moved = np.any(expected[row, tied] == received[row, place])
        # One tied with the last may give way to a class left out.
        if not moved and not tied[-1]:
            return False
    return True


def _check_labels(ids, labels, names):
    # Id -1, where no class was found, has no name.
    known = [*(name.encode() for name in names), b""]
    wanted = [[known[i] for i in row] for row in ids]
    if labels.tolist() != wanted:
        _differs("`labels`", labels, wanted)


def _differs(what, received, expected):
    raise RuntimeError(
        f"The {what} of the export differ from the model's. Received: "
        f"{received}, expected: {expected}. A layer may behave otherwise "
        "outside of Keras; compare with `example_inputs` that are real data."
    )
