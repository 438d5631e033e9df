"""Splits, sequences and measures of recommenders."""

import datetime

import numpy as np
import pytest

from tests.support.cases import check_refused
from tfxclass import retrieval

SEQUENCES = [[1, 2, 3, 4], [2, 5], [3, 1, 2]]


def test_the_latest_items_are_kept():
    rows = retrieval.pad(SEQUENCES, 3)
    assert rows.tolist() == [[2, 3, 4], [0, 2, 5], [3, 1, 2]]
    rows = retrieval.pad([[1, 2, 3], []], 2, value=-1, latest="first")
    assert rows.tolist() == [[3, 2], [-1, -1]]
    assert retrieval.pad([], 2).shape == (0, 2)


def test_each_beginning_is_a_question():
    histories, labels = retrieval.next_items(SEQUENCES[1:])
    assert histories == [[2], [3], [3, 1]] and labels.tolist() == [5, 1, 2]


def test_leave_one_out():
    split = retrieval.leave_one_out(SEQUENCES)
    assert split.train == [[1, 2], [2, 5], [3]]
    assert split.validation.histories == [[1, 2], [3]]
    assert split.validation.labels.tolist() == [3, 1]
    assert split.test.histories == [[1, 2, 3], [3, 1]]
    assert split.test.labels.tolist() == [4, 2]


def test_the_latest_sessions_are_tested():
    sessions = [[1, 2, 9], [1, 2], [2, 1], [2, 7, 1]]
    split = retrieval.split_sessions(
        sessions, times=[9, 1, 2, 3], validation=0.25, test=0.25
    )
    assert split.train == [[1, 2], [2, 1]]
    # 7 and 9 were not in training.
    assert split.validation == ([[2, 7]], [1])
    assert split.test == ([[1]], [2])


def test_a_split_at_a_time():
    times = [[1, 2, 5, 8], [1, 9], [4, 5, 6]]
    split = retrieval.split_at(SEQUENCES, times, 4, 8)
    assert split.train == [[1, 2], [2]]
    # Item 3 is not in training, and the third user was not there.
    assert split.validation.histories == split.test.histories == []
    split = retrieval.split_at(SEQUENCES, times, 5, 8)
    assert split.train == [[1, 2], [2], [3]]
    assert split.validation.histories == [[1, 2], [3]]
    assert split.validation.labels.tolist() == [3, 1]
    assert split.test.histories == []


def test_measures():
    ids = np.array([[4, 2, 9], [1, 3, -1], [5, 6, 7]])
    found = retrieval.evaluate(ids, [2, -1, 5], k=3)
    third = 1 / 3
    assert found["hit_rate"] == pytest.approx(2 * third)
    assert found["mrr"] == pytest.approx((1 / 2 + 1) * third)
    assert found["ndcg"] == pytest.approx((1 / np.log2(3) + 1) * third)
    assert retrieval.evaluate(ids, [2, 0, 5], k=1)["hit_rate"] == third
    several = retrieval.evaluate(ids[:1], [[9, 4, -1]])
    best = 1 + 1 / np.log2(3)
    assert several["ndcg"] == pytest.approx((1 + 1 / 2) / best)
    assert several["mrr"] == 1


def test_coverage_and_novelty():
    train = [[1, 2], [1, 3, 3], [1, 4], [1]]
    found = retrieval.evaluate([[1, 2], [1, -1]], [1, 1], train=train)
    assert found["coverage"] == 1 / 2
    assert found["novelty"] == pytest.approx((0 + 2 + 0) / 3)


@pytest.mark.parametrize("table", ["pandas", "polars"])
def test_a_series_is_read_by_position(table):
    library = pytest.importorskip(table)
    sessions = [[1, 2], [2, 3], [3, 1], [1, 2, 3], [2, 1]]
    times = [5, 4, 3, 2, 1]
    options = {"validation": 0.2, "test": 0.4}
    right = retrieval.split_sessions(sessions, times, **options)
    kinds = [{}]
    if table == "pandas":
        kinds = [{"index": range(4, -1, -1)}, {"index": list("abcde")}]
    for kind in kinds:
        found = retrieval.split_sessions(
            library.Series(sessions, **kind),
            library.Series(times, **kind),
            **options,
        )
        assert found.train == right.train
        assert found.test.histories == right.test.histories
        assert found.test.labels.tolist() == right.test.labels.tolist()
        column = library.Series(sessions, **kind)
        assert retrieval.pad(column, 2).tolist() == [
            [1, 2],
            [2, 3],
            [3, 1],
            [2, 3],
            [2, 1],
        ]
        assert retrieval.leave_one_out(column).test.labels.tolist() == [3]


class Labelled(list):
    """Items by labels, as a Series has them: positions are other items."""

    index = property(lambda self: range(len(self), 0, -1))

    def __getitem__(self, label):
        raise KeyError(label)


def test_items_are_not_looked_up_by_labels():
    right = retrieval.split_sessions(SEQUENCES * 5, range(15))
    found = retrieval.split_sessions(Labelled(SEQUENCES * 5), range(15))
    assert found.train == right.train


DAY = datetime.datetime(2024, 3, 1)
UTC = DAY.replace(tzinfo=datetime.timezone.utc)
HOURS = [datetime.timedelta(hours=h) for h in (20, 1, 10, 30)]


def test_dates_are_times():
    sessions = [[1, 2], [2, 1], [1, 3, 2], [3, 1]]
    hours = [20, 1, 10, 30]
    dates = np.array([DAY + h for h in HOURS], "datetime64[s]")
    right = retrieval.split_sessions(sessions, hours, 0.25, 0.25)
    found = retrieval.split_sessions(sessions, dates, 0.25, 0.25)
    assert found.train == right.train == [[2, 1], [1, 3, 2]]
    rising = np.sort(dates)
    right = retrieval.split_at([[1, 2, 1, 2]], [[1, 10, 20, 30]], 20, 30)
    found = retrieval.split_at([[1, 2, 1, 2]], [rising], dates[0], dates[3])
    assert found.train == right.train == [[1, 2]]
    assert found.validation.histories == right.validation.histories
    assert found.test.labels.tolist() == right.test.labels.tolist()


NO_TIMES = {
    "datetimes": [DAY, UTC],
    "strings": ["2024-03-01T00:00+01:00", "2024-03-01T00:00+02:00"],
    "nat": np.array(["NaT", "2024-03-01"], "datetime64[D]"),
    "nan": [1.0, float("nan")],
    "none": [None, DAY],
    "words": ["yesterday", "today"],
    "numbers_as_text": ["10", "9"],
    "both": [1, DAY],
    "bools": [True, False],
    "durations": np.array([1, 2], "timedelta64[h]"),
    "dict": {"a": 1, "b": 2},
}


@pytest.mark.parametrize("kind", NO_TIMES)
def test_times_without_an_order_are_refused(kind):
    check_refused(
        lambda: retrieval.split_sessions([[1, 2], [2, 1]], NO_TIMES[kind]),
        ["`times` must be"],
    )


def test_limits_are_like_the_times():
    day = np.datetime64(DAY)
    for limit in (20, UTC, "soon"):
        check_refused(
            lambda limit=limit: retrieval.split_at(
                [[1, 2]], [[day, day]], limit, day
            ),
            ["`validation_time` must be"],
        )


def test_a_repeated_label_counts_once():
    once = retrieval.evaluate([[2, 3]], [[2, -1]])
    assert retrieval.evaluate([[2, 3]], [[2, 2]]) == once
    assert once["ndcg"] == 1


BAD = {
    "repeated": (
        lambda: retrieval.evaluate([[1, 2], [3, 3]], [1, 3]),
        ["`ids` must not name a class twice", "[3, 3] in row 1"],
    ),
    "no_questions": (
        lambda: retrieval.evaluate(np.zeros((0, 2), int), []),
        ["`labels` must have a question"],
    ),
    "no_labels": (
        lambda: retrieval.evaluate([[1, 2]], [-1]),
        ["`labels` must have a question"],
    ),
    "no_train": (
        lambda: retrieval.evaluate([[1, 2]], [1], train=[]),
        ["`train` must have items"],
    ),
    "later_floats": (
        lambda: retrieval.pad([[1, 2], [1.5]], 2),
        ["`sequences` must be lists of integer", "[1.5] at position 1"],
    ),
    "shape": (lambda: retrieval.evaluate([1], [1]), ["ids", "(1,)"]),
    "k": (
        lambda: retrieval.evaluate([[1]], [1], k=2),
        ["`k`", "at most 1, the answers. Received: 2"],
    ),
    "k, no int": (
        lambda: retrieval.evaluate([[1]], [1], k=1.5),
        ["`k`", "1.5"],
    ),
    "fractions": (
        lambda: retrieval.split_sessions(SEQUENCES, validation=0.5, test=0.5),
        ["validation=0.5"],
    ),
    "none to train on": (
        lambda: retrieval.split_sessions(SEQUENCES, validation=0, test=0.9),
        ["`sessions`", "enough to train on one"],
    ),
    "times": (
        lambda: retrieval.split_sessions(SEQUENCES, times=[1]),
        ["1 times of 3"],
    ),
    "order": (
        lambda: retrieval.split_at([[1, 2]], [[2, 1]], 1, 2),
        ["must not fall"],
    ),
    "later": (
        lambda: retrieval.split_at([[1]], [[2]], 3, 2),
        ["validation_time=3"],
    ),
    "latest": (
        lambda: retrieval.pad([[1]], 1, latest="left"),
        ["latest", "left"],
    ),
    "names": (
        lambda: retrieval.pad([["b-17", "a-3"]], 2),
        ["`sequences`", "b-17", "number_items(sessions)"],
    ),
    "names_of_labels": (
        lambda: retrieval.evaluate([[1, 2]], ["b-17"]),
        ["`labels` must be integer class ids", "str"],
    ),
    "one_session": (
        lambda: retrieval.split_sessions([1, 2, 3]),
        ["`sessions` must be lists of integer item ids", "1 at position 0"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    check_refused(*BAD[case])


@pytest.mark.parametrize("kind", [str, np.str_, int, np.int64])
def test_numbered_items(kind):
    visits = [[kind(7), kind(5)], [], [kind(7), kind(6)]]
    ids, names = retrieval.number_items(visits)
    assert ids == [[3, 1], [], [3, 2]]
    plain = str if issubclass(kind, str) else int
    assert names[1:] == [plain(5), plain(6), plain(7)]
    assert {type(name) for name in names[1:]} == {plain}


@pytest.mark.parametrize(
    "visits, message",
    [
        ([["a", 1]], "int, str"),
        ([["a"], ["<padding>"]], "`padding` must not be"),
        ([[True]], "bool"),
        ([[1.5]], "float"),
        ("ab", "`sequences` must be a list"),
    ],
)
def test_items_that_are_not_numbered(visits, message):
    with pytest.raises(ValueError, match=message):
        retrieval.number_items(visits)
