"""What the training of a tagger takes, from the sizes of its data."""

from typing import NamedTuple

from tfxclass_text import embeddings
from tfxclass_text import linear_tree
from tfxclass_text import perceptron
from tfxclass_text import trials
from tfxclass_text.ensemble import Plan
from tfxclass_text.sparse_rows import LabeledRows

# The logistic loss computes exponentials (measured).
_LOGISTIC = 2.0
# Seconds to score a held-out text and label, and to make a weight dense for
# it (measured).
_SCORE, _DENSE_WEIGHT = 3e-7, 1e-9
# Seconds of a product in a kernel ridge regression, and of a term of a text
# and a landmark (measured).
_PRODUCT, _KERNEL_TERM = 2e-11, 3e-9
# Where the number of passes is chosen: trials with 8 and with 2 passes, and
# one more with another C.
_TUNED_PASSES = 10 + trials.EPOCHS
# Seconds to build the layers and to trace their functions (measured).
_BUILD = 1.0
# What is mixed in is trained again on all texts. That happens or it does not.
_AGAIN = 1.5
# Seconds to compare a held-out text with a text (measured).
_NEAR = 4e-8
# Matrices of texts by landmarks, of held-out texts by labels, and of terms by
# units of a layer, in memory.
_KERNELS, _SCORES, _STATES = 3, 6, 3


class Trials(NamedTuple):
    """Trials on held-out texts.

    Attributes:
        num_fields: int, lists of fields that are tried.
        num_c: int, values of C that are tried.
        is_tuned: whether the number of passes is chosen.
        num_rows: int, texts that a trial learns from.
        num_labels: int, labels of a trial.
        num_held: int, texts that judge.
        num_groups: int, of the label tree; 1 for none.
    """

    num_fields: int
    num_c: int
    is_tuned: bool
    num_rows: int
    num_labels: int
    num_held: int
    num_groups: int


class Cost(NamedTuple):
    """CPU seconds, and gigabytes at the peak."""

    seconds: float
    gigabytes: float

    def then(self, other: "Cost") -> "Cost":
        """The cost of this and of another phase, one after the other."""
        return Cost(
            self.seconds + other.seconds, max(self.gigabytes, other.gigabytes)
        )

    def __str__(self) -> str:
        return (
            f"about {self.seconds:.0f} CPU seconds and {self.gigabytes:.1f} GB"
        )


def linear(
    data: LabeledRows, num_groups: int, num_epochs: int, loss: str
) -> Cost:
    """The cost of the linear classifiers, on all texts.

    Args:
        data: `LabeledRows`.
        num_groups: int, as in `linear_tree.train_linear`.
        num_epochs: int.
        loss: `"squared_hinge"` or `"logistic"`.
    """
    found = _learning(data, num_groups, num_epochs, loss)
    return found._replace(seconds=found.seconds + _BUILD)


def _learning(data, num_groups, num_epochs, loss):
    seconds, gigabytes = linear_tree.cost(data, num_groups, num_epochs)
    factor = _LOGISTIC if loss == "logistic" else 1.0
    return Cost(factor * seconds, gigabytes)


def of_trials(data: LabeledRows, tried: Trials, loss: str) -> Cost:
    """The cost of the trials of fields, C and the number of passes.

    Args:
        data: `LabeledRows`, all texts.
        tried: `Trials`.
        loss: `"squared_hinge"` or `"logistic"`.
    """
    count = tried.num_fields + tried.num_c - 1
    passes = trials.EPOCHS * count
    if tried.is_tuned:
        passes, count = passes + _TUNED_PASSES, count + 3
    part = tried.num_labels / data.num_labels
    share = part * tried.num_rows / max(len(data.rows), 1)
    learning = _learning(data, tried.num_groups, passes, loss)
    scores = tried.num_labels * tried.num_held
    dense = tried.num_labels * data.num_features
    # The scores become probabilities with thresholds, once.
    seconds = _SCORE * scores * (count + 1) + _DENSE_WEIGHT * dense * count
    memory = 4 * _SCORES * scores / 1e9 + linear_tree.PROCESS
    return Cost(
        share * learning.seconds + seconds, max(learning.gigabytes, memory)
    )


def kernel(data: LabeledRows, count: int) -> float:
    """CPU seconds of a kernel ridge regression with so many landmarks."""
    rows, _, _, num_labels = data
    products = len(rows) * count * (count + 2 * num_labels)
    return _PRODUCT * products + _KERNEL_TERM * len(rows.ids) * count


def mixed_in(
    data: LabeledRows, embedded: LabeledRows, plan: Plan, num_held: int
) -> Cost:
    """The cost of the scores that are mixed in, if held-out texts gain.

    Args:
        data: `LabeledRows`, terms and labels of all texts.
        embedded: `LabeledRows`, what embeddings are learned from.
        plan: `ensemble.Plan`.
        num_held: int, texts that judge.
    """
    seconds = kernel(data, plan.landmarks) + _NEAR * num_held * len(data.rows)
    numbers = _KERNELS * len(data.rows) * plan.landmarks
    for (units, passes), module, texts in (
        (plan.hidden, perceptron, data),
        (plan.embedding, embeddings, embedded),
    ):
        if passes:
            seconds += passes * module.seconds_of_epoch(texts, units)
            numbers += _STATES * units * texts.num_features
    return Cost(_AGAIN * seconds, 4 * numbers / 1e9 + linear_tree.PROCESS)
