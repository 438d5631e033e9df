"""Figures of probabilities and approximate searches, by matplotlib."""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.calibration.reliability import Reliability
from tfxclass.calibration.reliability import reliability_of
from tfxclass.export import searches
from tfxclass.export.inverted_lists import InvertedLists
from tfxclass.inference.graph import encoder_of
from tfxclass.types import Array

__all__ = ["RecallCurve", "plot_recall", "plot_reliability"]
__dir__ = __all__.copy  # For completion.


def plot_reliability(
    model: keras.Model,
    data: tf.data.Dataset | tuple[Array, Array],
    num_bins: int = 15,
    ax: Any = None,
) -> Reliability:
    """Draws a reliability diagram of a model on held-out examples.

    Args:
        model, data, num_bins: as in `tfxclass.calibration.reliability_of`.
        ax: matplotlib axes. Defaults to a new figure.

    Returns:
        `tfxclass.calibration.Reliability`, the values in the diagram.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: as in `tfxclass.calibrate`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(10)
    model = keras.Sequential([keras.Input([20]), head])
    x = np.random.default_rng(0).normal(size=[100, 20])
    found = tfxclass.plot_reliability(model, (x, np.arange(100) % 10))
    ```
    """
    ax = _axes(ax)
    found = reliability_of(model, data, num_bins)
    used = found.counts > 0
    confidence, accuracies = found.confidence[used], found.accuracy[used]
    left, width = found.edges[:-1][used], found.edges[1]
    ax.bar(left, accuracies, width, align="edge", edgecolor="white")
    ax.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
    ax.plot(confidence, accuracies, "o", color="black")
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="probability",
        ylabel="share that was right",
        title="expected calibration error "
        f"{found.expected_calibration_error:.3f}",
    )
    ax.legend(loc="upper left")
    return found


class RecallCurve(NamedTuple):
    """Recall of an approximate search, by the number of lists it reads.

    Attributes:
        probes: int64 `[n]`, number of lists read for a question.
        recall: float64 `[n]`, fraction of the k best classes that is found.
        num_lists: int, number of lists of the index.
    """

    probes: np.ndarray
    recall: np.ndarray
    num_lists: int


def plot_recall(
    model: keras.Model,
    x: Any,
    k: int = 10,
    search: InvertedLists | None = None,
    ax: Any = None,
) -> RecallCurve:
    """Draws the recall of inverted lists against the number of lists read.

    Use it to choose `num_probes` for an export. It tries 1, 2, 4 and so on, up
    to all lists, but no number that may hold fewer than k classes.

    Args:
        model: a built model whose head has one class vector for each class.
        x: real inputs on which the recall is measured, as for `predict`.
        k: int, number of classes in an answer.
        search: `tfxclass.export.InvertedLists`, of which `num_lists` and `seed`
            are used. Defaults to `InvertedLists()`.
        ax: matplotlib axes. Defaults to a new figure.

    Returns:
        `RecallCurve`, the values in the figure.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the head is of another kind.
    """
    ax = _axes(ax)
    encoder, head = encoder_of(model)
    lists, queries, best = (search or InvertedLists()).prepared(
        head, k, encoder(x, training=False)
    )
    least, most = lists.min_probes(k), lists.num_lists
    doubled = [2**i for i in range(most.bit_length()) if 2**i < most]
    probes = [p for p in doubled if p >= least] + [most]
    answer, recall = tf.function(lists.top_k_of), []
    for count in progress.progress_iter(
        probes, "Measuring the recall of the lists", len(probes)
    ):
        found, _ = answer(queries, k, tf.constant(count))
        recall.append(searches.recall(found.numpy(), best.ids.numpy()))
    ax.plot(probes, recall, "o-", label=f"{most} lists")
    ax.set(
        xlabel="lists read for a question",
        ylabel=f"share of the {k} best found",
        xscale="log",
    )
    ax.grid(alpha=0.3)
    ax.legend()
    return RecallCurve(np.array(probes), np.array(recall), most)


def _axes(ax):
    """`ax`, or the axes of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as e:
        raise ImportError(
            "`tfxclass.plot` needs matplotlib. Received: none installed. "
            "Fix: pip install matplotlib"
        ) from e
    return pyplot.subplots()[1] if ax is None else ax
