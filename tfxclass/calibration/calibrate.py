"""`calibrate`: a model's temperature and thresholds, from held-out rows."""

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.calibration import label_thresholds
from tfxclass.calibration import temperature as temperature_lib
from tfxclass.calibration.held_out import HeldOut
from tfxclass.calibration.held_out import held_out
from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.types import Array


class Calibration(NamedTuple):
    """The result of `calibrate`.

    Attributes:
        temperature: float, by which logits are divided.
        loss_before: float, mean negative log-likelihood of the held-out labels
            with the previous temperature.
        loss: float, the same with the new temperature.
        thresholds: float32 `[num_classes]`, or None.
        f1: float, F1 on the held-out examples with these thresholds, or None.
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
    shrinkage: float = label_thresholds.SHRINKAGE,
) -> Calibration:
    """Calibrates the probabilities of a model on held-out examples.

    Use it after training, if probabilities should be right on average, or if
    each class needs a threshold. The head gets a temperature: probabilities
    become the softmax (or the sigmoid of each label) of logits / temperature.
    Logits, their order and the training loss do not change. With `thresholds`,
    the head also gets a threshold for each class. `tfxclass.top_k`,
    `tfxclass.export.saved_model` and `tfxclass.metrics.F1Score` use it with
    `threshold="calibrated"`. Both are saved with the model and exported.

    Models of `tfxclass.top_k` keep the previous temperature: make them again.

    Args:
        model: a built Keras model that ends in a head with one class vector for
            each class.
        data: `(x, y)` or a `tf.data.Dataset` of batches of them, with labels as
            in `fit` and without weights. All features are kept in memory,
            `[rows, dim]`.
        temperature: bool, whether to fit the temperature. False keeps it.
            Defaults to True.
        thresholds: None (default), or the F1 that thresholds maximize,
            `"micro"` or `"macro"`.
        k: int, thresholds are chosen on the k best classes of each example.
        shrinkage: float >= 0. The threshold of a class is averaged with the
            best common threshold, which counts as much as `shrinkage` examples
            of the class. 0 gives each class its own threshold, which is worse
            on new data for classes with few examples.

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
    if not isinstance(temperature, bool):
        raise ValueError(
            "`temperature` must be True or False. Fix: to set one, "
            f"head.answer_temperature. Received: {temperature!r}"
        )
    check_choice("thresholds", thresholds, (None, "micro", "macro"))
    k = check_positive_int("k", k)
    if not 0 <= shrinkage < math.inf:
        raise ValueError(
            f"`shrinkage` must be finite and >= 0. Received: {shrinkage}"
        )
    rows = held_out(model, data)
    head = rows.head
    loss = temperature_lib.loss_of(rows)
    before = after = loss(head.answer_temperature)
    if not math.isfinite(before):
        raise ValueError(
            "Calibration needs finite logits of the held-out examples. "
            f"Received: a mean loss of {before}. Fix: look for NaN or "
            "infinity in the weights of the model and in `data`."
        )
    if temperature:
        with progress.log_if_slow("Fitting the temperature"):
            head.answer_temperature = temperature_lib.fit_temperature(loss)
        after = loss(head.answer_temperature)
    f1 = None
    if thresholds is not None:
        pairs = _pairs(rows, min(k, head.num_classes))
        head.thresholds, f1 = label_thresholds.best_thresholds(
            pairs, thresholds, shrinkage
        )
    # Keras keeps the graphs of the old temperature.
    model.predict_function = model.test_function = model.train_function = None
    return Calibration(
        head.answer_temperature, before, after, head.thresholds, f1
    )


def _pairs(rows: HeldOut, k: int) -> Pairs:
    """The k best classes of each row."""
    positives = np.zeros(rows.head.num_classes, np.int64)
    found = []
    for ids, scores, labels in rows.answers(k):
        np.add.at(positives, labels[labels >= 0], 1)
        found.append(flat(ids, scores, labels))
    places, scores, hits = (np.concatenate(x) for x in zip(*found))
    return Pairs(places, scores, hits, positives)


def flat(
    ids: np.ndarray, scores: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, ...]:
    """`(ids, scores, hits)` `[n]` of answers `[rows, k]` and their labels."""
    same = ids[:, :, np.newaxis] == labels[:, np.newaxis, :]
    kept = ids >= 0
    return ids[kept], scores[kept], same.any(axis=2)[kept]
