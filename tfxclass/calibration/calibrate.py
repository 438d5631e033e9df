"""`calibrate`: a model's temperature and thresholds, from held-out rows."""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.calibration.label_thresholds import SHRINKAGE
from tfxclass.calibration.label_thresholds import best_thresholds
from tfxclass.calibration.reliability import held_out
from tfxclass.checks import check_choice
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core.targets import uniform_targets
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.rows import search
from tfxclass.types import Array

# Range of the temperature; at its ends the data do not determine one.
_LEAST, _MOST = 1 / 64, 64.0
_GOLDEN = (math.sqrt(5) - 1) / 2


class Calibration(NamedTuple):
    """The result of `calibrate`.

    Attributes:
        temperature: float, by which logits are divided.
        loss_before: float, mean negative log-likelihood of the held-out labels
            with the previous temperature; `loss` with the new one.
        thresholds: float32 `[num_classes]`, or None, and `f1`, what they reach
            on the held-out examples.
    """

    temperature: float
    loss_before: float
    loss: float
    thresholds: np.ndarray | None
    f1: float | None


def calibrate(
    model: keras.Model,
    data: tf.data.Dataset | tuple[Array, Array],
    temperature: bool = True,
    thresholds: str | None = None,
    k: int = 100,
    shrinkage: float = SHRINKAGE,
) -> Calibration:
    """Calibrates the probabilities of a model on held-out examples.

    Use it after training, if probabilities should be right on average, or if
    each class needs a threshold. The head gets a temperature: probabilities
    become the softmax (or the sigmoid of each label) of logits / temperature.
    Logits, their order and the training loss do not change. With `thresholds`,
    the head also gets a threshold for each class, which `tfxclass.top_k`,
    exports and `tfxclass.metrics.F1Score` use with `threshold="calibrated"`.
    Models of `tfxclass.top_k` keep the previous temperature: make them again.

    Args:
        model: a built Keras model that ends in a head with one class vector for
            each class.
        data: `(x, y)` or a `tf.data.Dataset` of batches of them, with labels as
            in `fit` and without weights. All features are kept in memory,
            `[rows, dim]`.
        temperature: bool, whether to fit the temperature, or keep it.
        thresholds: None, or the F1 that thresholds maximize, `"micro"` or
            `"macro"`.
        k: int, thresholds are chosen on the k best classes of each example.
        shrinkage: float >= 0. The threshold of a class is averaged with the
            best common threshold, which counts as much as `shrinkage` examples
            of the class. 0 is worse on new data for classes with few examples.

    Returns:
        A `Calibration`.

    Raises:
        ValueError: if the head is of another kind or has `activation=None`, if
            there are no labels, or if logits are not finite.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(10)
    model = keras.Sequential([keras.Input([20]), head])
    x = np.random.default_rng(0).normal(size=[100, 20])
    y = np.arange(100) % 10
    found = tfxclass.calibrate(model, (x, y))
    print(found.temperature, found.loss_before, found.loss)
    ```

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
    """
    wanted = "True or False. Fix: to set one, head.answer_temperature"
    is_bool = isinstance(temperature, bool)
    check_value("temperature", temperature, is_bool, wanted)
    check_choice("thresholds", thresholds, (None, "micro", "macro"))
    k = check_positive_int("k", k)
    check_nonnegative("shrinkage", shrinkage)
    rows = held_out(model, data)
    head = rows.head
    loss = _loss_of(rows)
    before = after = loss(head.answer_temperature)
    if not math.isfinite(before):
        raise ValueError(
            "Calibration needs finite logits of the held-out examples. "
            f"Received: a mean loss of {before}. Fix: look for NaN or "
            "infinity in the weights of the model and in `data`."
        )
    if temperature:
        with progress.log_if_slow("Fitting the temperature"):
            head.answer_temperature = fit_temperature(loss)
        after = loss(head.answer_temperature)
    f1 = None
    if thresholds is not None:
        pairs = rows.pairs(min(k, head.num_classes))
        head.thresholds, f1 = best_thresholds(pairs, thresholds, shrinkage)
    # Keras keeps the graphs of the old temperature.
    model.predict_function = model.test_function = model.train_function = None
    return Calibration(
        head.answer_temperature, before, after, head.thresholds, f1
    )


def _loss_of(rows):
    """The mean negative log-likelihood of the labels by the temperature."""
    # For probabilities, even if a hinge loss made the logits.
    objective = OBJECTIVES[str(rows.head.activation)]

    @tf.function
    def total(features, ids, inverse):
        losses = objective.streamed()(
            search.scaled(rows.head.parts(features), inverse),
            objective.targets(uniform_targets(ids)),
            exchange=rows.head.exchange(features),
        )
        return tf.reduce_sum(losses)

    def mean(temperature):
        inverse = tf.constant(1 / temperature, tf.float32)
        sums = [float(total(*batch, inverse)) for batch in rows.batches]
        return sum(sums) / sum(len(ids) for _, ids in rows.batches)

    return mean


def fit_temperature(
    loss: Callable[[float], float], tolerance: float = 1e-3
) -> float:
    """The temperature with the least `loss`, by golden-section search."""
    # The likelihood of softmax and sigmoid is concave in 1 / temperature.
    low, high = math.log(_LEAST), math.log(_MOST)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = loss(math.exp(left)), loss(math.exp(right))
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = loss(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = loss(math.exp(right))
    return math.exp((low + high) / 2)
