"""The labels, and their rows, that all candidates are compared on."""

import numpy as np

from tfxclass_text.sparse_rows import SparseRows

#: Seconds up to which candidates are tried on all labels.
MAX_SECONDS = 6.0
_SOME_LABELS = 256


def labels_to_try(
    labels: SparseRows,
    held_labels: SparseRows,
    num_labels: int,
    single_label: bool,
    seconds: float,
) -> np.ndarray:
    """The labels that all candidates are tried on, an int array.

    All labels if there is time. Otherwise, the result has frequent and rare
    labels. If rows have one label, labels that held-out rows have come first,
    because rows of other labels are left out of the trials.

    Args:
        labels: `SparseRows`, labels of the training rows.
        held_labels: `SparseRows`, labels of the held-out rows.
        num_labels: int.
        single_label: whether a row has one label.
        seconds: float, what a trial of all labels takes.
    """
    if seconds <= MAX_SECONDS:
        return np.arange(num_labels)
    counts = np.bincount(labels.ids, minlength=num_labels)
    if not single_label:
        return _spread_labels(counts, _SOME_LABELS)
    # The rows decrease with the labels, so the time is quadratic in their
    # number.
    share = np.sqrt(MAX_SECONDS / seconds)
    size = max(int(share * num_labels), _SOME_LABELS)
    judged = np.isin(np.arange(num_labels), held_labels.ids)
    first = _spread_labels(counts * judged, size)
    return np.append(first, _spread_labels(counts * ~judged, size - len(first)))


def _spread_labels(counts, size):
    """`size` of the labels that have rows, from the most to the least."""
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    return order[spread(len(order), size)]


def spread(size: int, most: int) -> np.ndarray:
    """At most so many of `size` places, as far apart as can be, ascending."""
    places = np.linspace(0, size - 1, min(most, size))
    return np.unique(places.astype(np.int64))


def rows_of(labels: SparseRows, some: np.ndarray) -> np.ndarray:
    """The rows that have one of the labels, an int array.

    Args:
        labels: `SparseRows`.
        some: int array of labels.
    """
    return np.unique(labels.row_ids()[np.isin(labels.ids, some)])
