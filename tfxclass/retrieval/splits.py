"""A `Split` of data into training, validation and test sets."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_array
from tfxclass.checks import as_list
from tfxclass.checks import check_value
from tfxclass.retrieval.sequences import as_sequences
from tfxclass.retrieval.sequences import next_items

Sequences = Sequence[Sequence[int]]


class Questions(NamedTuple):
    """Questions of a validation or test set.

    `labels`, int64 `[questions]`, are the items that came after `histories`,
    lists of item ids in the order of time.
    """

    histories: list[Sequence[int]]
    labels: np.ndarray


class Split(NamedTuple):
    """The three parts of a data set.

    `train` has the item ids of each sequence. Choose a model and its options by
    the `Questions` of `validation`, and report the results of `test`.
    """

    train: list[Sequence[int]]
    validation: Questions
    test: Questions


def leave_one_out(sequences: Sequences) -> Split:
    """A `Split` by users: their last item is for test, one for validation.

    It is the usual split of papers. A model sees what other users did later, so
    results are higher than in production. `split_at` has no such leak.

    Args:
        sequences: item ids of each user, in the order of time. Users with fewer
            than three items are for training only.

    Example:

    ```python
    split = tfxclass.retrieval.leave_one_out([[1, 2, 3, 4], [2, 3, 5]])
    ```
    """
    sequences = as_sequences("sequences", sequences)
    long = [s for s in sequences if len(s) >= 3]
    return Split(
        [s[:-2] if len(s) >= 3 else s for s in sequences],
        _questions([(s[:-2], s[-2]) for s in long]),
        _questions([(s[:-1], s[-1]) for s in long]),
    )


def split_sessions(
    sessions: Sequences,
    times: ArrayLike | None = None,
    validation: float = 0.1,
    test: float = 0.1,
) -> Split:
    """A `Split` by sessions: the latest are for test, some for validation.

    Each beginning of a session is a question, if training has the next item.

    Args:
        sessions: item ids of each session, in the order of time.
        times: numbers or datetime64 `[sessions]`, when each session began.
            `pandas.to_datetime(times, utc=True).to_numpy("datetime64[ns]")`
            reads other dates. By default sessions are in the order of time.
        validation, test: floats in [0, 1), fractions of the sessions.

    Raises:
        ValueError: if the fractions leave no session to train on, or times do
            not fit the sessions.

    Example:

    ```python
    sessions = [[1, 2, 3], [2, 3], [3, 1, 2], [1, 3]] * 10
    split = tfxclass.retrieval.split_sessions(sessions, test=0.1)
    ```
    """
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise ValueError(
            "`validation` and `test` must be >= 0, and their sum below 1. "
            f"Received: validation={validation}, test={test}"
        )
    sessions = as_sequences("sessions", sessions)
    if times is not None:
        moments = _as_times("times", times)
        _check_times(sessions, moments)
        sessions = [sessions[i] for i in np.argsort(moments, kind="stable")]
    first_test = round(len(sessions) * (1 - test))
    first = round(len(sessions) * (1 - test - validation))
    train = sessions[:first]
    check_value("sessions", len(sessions), first > 0, "enough to train on one")
    known = {item for session in train for item in session}
    validated, tested = sessions[first:first_test], sessions[first_test:]
    found = [zip(*next_items(part)) for part in (validated, tested)]
    return Split(train, *[_questions(pairs, known) for pairs in found])


def split_at(
    sequences: Sequences,
    times: Sequence[ArrayLike],
    validation_time: Any,
    test_time: Any,
) -> Split:
    """A `Split` at points in time, as in production.

    The question for a user is the first item at or after the point in time, if
    there are earlier items: the history.

    Args:
        sequences: item ids of each user, in the order of time.
        times: the time of each of these items, as in `split_sessions`.
        validation_time: like the times. Earlier items are for training.
        test_time: like the times, not before `validation_time`.

    Raises:
        ValueError: if times are not in order, or do not fit the items.

    Example:

    ```python
    sequences = [[1, 2, 3, 4], [2, 3, 5]]
    times = [[0, 5, 12, 20], [1, 11, 21]]
    split = tfxclass.retrieval.split_at(sequences, times, 10, 20)
    ```
    """
    sequences = as_sequences("sequences", sequences)
    times = as_list("times", times, "times of items")
    _check_times(sequences, times)
    for items, moments in zip(sequences, times):
        _check_times(items, as_list("times", moments, "times of items"))
    found = _as_times("times", [one for row in times for one in row])
    given = {"validation_time": validation_time, "test_time": test_time}
    limits = [_as_times(name, [limit])[0] for name, limit in given.items()]
    for name, limit in zip(given, limits):
        is_alike = (limit.dtype.kind == "M") == (found.dtype.kind == "M")
        wanted = f"like `times`, which are {found.dtype}"
        check_value(name, limit, is_alike or not len(found), wanted)
    if not limits[0] <= limits[1]:
        raise ValueError(
            "`validation_time` must not be after `test_time`. Received: "
            f"validation_time={validation_time}, test_time={test_time}"
        )
    train: list[Any] = []
    questions: list[list[Any]] = [[], []]
    rows = np.split(found, np.cumsum([len(s) for s in sequences])[:-1])
    for items, moments in zip(sequences, rows):
        if np.any(moments[1:] < moments[:-1]):
            raise ValueError(
                "`times` of a user must not fall: items are in the order of "
                f"time. Received: {moments[:10].tolist()}"
            )
        ends = [*np.searchsorted(moments, limits), len(items)]
        if ends[0]:
            train.append(items[: ends[0]])
        for pairs, at, following in zip(questions, ends, ends[1:]):
            if 0 < at < following:
                pairs.append((items[:at], items[at]))
    known = {item for items in train for item in items}
    return Split(train, *[_questions(pairs, known) for pairs in questions])


def _questions(pairs, known=None):
    """`Questions` of pairs whose label is among the `known` ones, if given."""
    pairs = [pair for pair in pairs if known is None or pair[1] in known]
    labels = np.array([label for _, label in pairs], np.int64)
    return Questions([history for history, _ in pairs], labels)


def _as_times(name, values):
    """Finite numbers or datetime64 `[n]`; ValueError for others."""
    times = as_array(name, values)
    is_time = times.ndim == 1 and times.dtype.kind in "iufM"
    if not is_time or not np.all(np.isfinite(times)):
        raise ValueError(
            f"`{name}` must be finite numbers or datetime64 of shape [n]. Fix "
            "for other dates: pandas.to_datetime(times, utc=True).to_numpy("
            f'"datetime64[ns]"). Received: {values!r:.60}'
        )
    return times


def _check_times(sequences, times):
    if len(times) != len(sequences):
        raise ValueError(
            "`times` must have as many entries as there are sequences and "
            f"items. Received: {len(times)} times of {len(sequences)}"
        )
