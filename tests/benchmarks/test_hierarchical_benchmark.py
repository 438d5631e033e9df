"""The benchmark of hierarchical softmax, on a few generated rows."""

import json
import lzma
import sys

import numpy as np
import pytest
from sklearn import metrics

from benchmarks import measure
from benchmarks.hierarchical import __main__ as benchmark
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import jobs
from benchmarks.hierarchical import paper_settings

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow

METHODS = ["softmax", "hs clustered", "plt clustered, wide"]


def generated(num_classes, seed=0, num_rows=600):
    """Rows of words of their one or two labels; in the paper's format."""
    random = np.random.default_rng(seed)
    labels = [
        sorted({int(c) for c in random.integers(0, num_classes, 2)})
        for _ in range(num_rows)
    ]
    words = [
        [4 * c + int(j) for c in row for j in random.integers(0, 4, 5)]
        for row in labels
    ]
    return data_lib.make_set(words, labels, num_classes)


def test_macro_scores_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    labels = random.integers(-1, 7, (200, 3))
    predicted = random.integers(-1, 7, (200, 4))

    def dense(ids):
        cells = np.zeros((len(ids), 8), int)
        cells[np.arange(len(ids))[:, None], ids] = 1
        return cells[:, :7]

    precision, recall, _, _ = metrics.precision_recall_fscore_support(
        dense(labels), dense(predicted), average="macro", zero_division=0
    )
    found = data_lib.macro_scores(labels, predicted, 7)
    np.testing.assert_allclose(found["precision"], precision)
    np.testing.assert_allclose(found["recall"], recall)
    np.testing.assert_allclose(
        found["f1"], 2 * precision * recall / (precision + recall)
    )


def test_sets_are_prepared_as_the_paper_did():
    words = [[1, 2], [2, 2, 3], [4], [5], [6, 7]] * 20
    labels = [[9, 4], [9], [4, 5], [7], [4]] * 20
    data = data_lib.make_set(words, labels, num_classes=2)
    # Labels 4 and 9 are kept, and the 80 rows that have one; 70 % to train on.
    assert data.num_classes == 2 and data.num_words == 8
    assert len(data.train.ids) == 56 and len(data.test.ids) == 24
    assert data.k == 1  # 5 labels in 4 rows
    for rows in data[:3]:
        np.testing.assert_allclose(rows.values.sum(axis=1), 1.0)
        of_word_4 = (rows.ids == 4).any(axis=1)
        assert np.all(rows.labels[of_word_4][:, 0] == 0)  # label 4
        assert not np.any(rows.ids == 5)  # that of label 7
    search = data_lib.for_search(data)
    assert len(search.train.ids) + len(search.test.ids) == 56
    np.testing.assert_array_equal(search.test.ids, data.validation.ids)


@pytest.mark.slow
def test_eurlex_is_read(shared_data):
    data = data_lib.eurlex(shared_data, 10)
    # Words of documents without these labels are not seen.
    assert 23_000 < data.num_words <= 23_784 and data.num_classes == 10
    # Numbered by frequency.
    counts = np.bincount(data.train.labels[data.train.labels >= 0])
    assert counts[0] > counts[9] > 1000


def write_lines(path, *lines):
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wt", encoding="utf8") as f:
        f.writelines("\t".join(line) + "\n" for line in lines)


def test_library_titles_are_read(tmp_path):
    path = tmp_path / "yso_finna_en" / "titles_subjects.tsv.xz"
    rows = [(f"title {i}", "p1 p2" if i % 2 else "p2") for i in range(20)]
    write_lines(path, *rows)
    data = data_lib.yso(tmp_path, num_classes=1, num_rows=10)
    assert len(data.train.ids) + len(data.test.ids) == 10
    assert data.train.labels.tolist() == [[0]] * 7


def test_rates_of_the_paper_and_ours():
    assert paper_settings.rate_of("fastText hs", 10) == 0.25
    # As validated at n = 10 and, the nearest, 4271.
    assert paper_settings.rate_of("hs huffman", 10) == 0.3
    assert paper_settings.rate_of("hs huffman", 10_000) == 0.1


def test_rows_of_the_table(tmp_path, monkeypatch):
    """Those of other jobs stay, with the machine that measured them."""
    methods = ("fastText hs", "softmax")
    job = paper_settings.Job("generated", 5, 3, methods, seeds=(0, 1))
    old = {"set": "eurlex57k", "n": 10, "method": "softmax", "epoch": 100}
    old["measured"] = {"machine": "another"}
    data = generated(5)
    for folder, score in (("paper-a", 0.5), ("paper-a-1", 0.7)):
        scores = dict.fromkeys(paper_settings.MEASURED, score)
        path = tmp_path / "hierarchical" / folder
        path.mkdir(parents=True)
        told = {"method": methods[0], "rate": 0.25}
        told["curve"] = [{"epoch": 3, **scores}]
        path = path / f"{methods[0]}, 0.25, final.json"
        path.write_text(json.dumps(told))
    jobs_of_table = {"b": paper_settings.JOBS["eurlex-10"], "a": job}
    monkeypatch.setattr(paper_settings, "JOBS", jobs_of_table)
    monkeypatch.setattr(data_lib, "load", lambda *args: data)
    monkeypatch.setattr(paper_settings, "rate_of", lambda *args: 0.25)
    for name in ("CACHE", "RESULTS"):
        monkeypatch.setattr(measure, name, str(tmp_path))
    measure.save(paper_settings.NAME, [old])
    paper_settings.main(["--methods", "fastText hs", "--jobs", "a"])
    kept, new = measure.finished(paper_settings.NAME)
    assert kept == old and new["method"] == "fastText hs"
    assert (new["seeds"], new["f1"]) == (2, pytest.approx(0.6))
    assert new["f1 +-"] == pytest.approx(0.1)
    # Rows have one or two labels of five.
    assert 1.5 < new["labels"] < 2 and new["k"] == data.k == 2
    assert new["measured"]["machine"]


def test_a_row_in_the_format_of_fasttext(tmp_path):
    rows = data_lib.make_rows([[3, 1, 3], [2]], [[0, 4], [1]])
    jobs.write_text(tmp_path / "train", rows, with_labels=True)
    jobs.write_text(tmp_path / "test", rows, with_labels=False)
    assert (tmp_path / "train").read_text() == (
        "__label__0 __label__4 w1 w3\n__label__1 w2\n"
    )
    assert (tmp_path / "test").read_text() == "w1 w3\nw2\n"


@pytest.mark.parametrize("message", ["Encountered NaN.", "no such loss"])
def test_a_peer_that_fails(tmp_path, monkeypatch, message):
    monkeypatch.setattr(measure, "CACHE", str(tmp_path))
    (tmp_path / "fasttext.py").write_text(
        "def train_supervised(*args, **kwargs):\n"
        f"    raise RuntimeError({message!r})\n"
    )
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    data = generated(5)
    group = jobs.Group("out", data, 2, ["fastText hs"], str(python))
    if message == "no such loss":
        with pytest.raises(RuntimeError, match=message):
            group.final("fastText hs", 9.0)
        return
    # It diverged, which is worse than any other rate.
    (point,) = group.final("fastText hs", 9.0)["curve"]
    assert point["f1"] == point["at_1"] == point["at_10"] == 0
    assert point["cpu_seconds"] > 0


def test_padding_is_no_label():
    labels = np.array([[0, -1], [1, 2]])
    predicted = np.array([[3, -1], [2, -1]])
    found = data_lib.scores(labels, predicted, num_classes=4, k=2)
    assert found["at_1"] == found["at_10"] == 0.5


def test_the_best_rate_is_taken_and_results_are_kept(tmp_path, monkeypatch):
    ran = []

    def run(group, method, rate, data):
        ran.append((len(data.train.ids), rate))
        return {"curve": [{"epoch": 1, "f1": 1 - abs(rate - 1e-2)}]}

    monkeypatch.setattr(jobs.Group, "_ours", run)
    monkeypatch.setattr(measure, "CACHE", str(tmp_path))
    data = generated(5)
    for _ in range(2):
        group = jobs.Group("out", data, 1, ["softmax"])
        assert group.best_rate("softmax") == 1e-2
        assert group.final("softmax", 1e-2)["rate"] == 1e-2
    # Each once; the search without the validation rows.
    fit = len(data.train.ids) - len(data.validation.ids)
    assert ran == [(fit, rate) for rate in jobs.RATES["ours"]] + [
        (len(data.train.ids), 1e-2)
    ]


def test_seconds_to_a_score():
    points = ((1, 0.1), (2, 0.5), (3, 0.4))
    curve = [{"cpu_seconds": s, "f1": f} for s, f in points]
    assert measure.seconds_to(0.3, [curve], "f1") == 2
    assert measure.seconds_to(0.6, [curve], "f1") == ""
    later = [{"cpu_seconds": 4, "f1": 0.4}]
    assert measure.seconds_to(0.3, [curve, later], "f1") == 3


@pytest.mark.slow
def test_runs_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "RESULTS", str(tmp_path))
    monkeypatch.setattr(
        data_lib, "load", lambda name, folder, size: generated(size)
    )
    monkeypatch.setitem(jobs.RATES, "ours", (0.1,))
    arguments = ["--sizes", "12", "--epochs", "6", "--methods", *METHODS]
    benchmark.main(arguments)
    rows = {row["method"]: row for row in measure.finished(benchmark.NAME)}
    assert set(rows) == set(METHODS)
    for row in rows.values():
        assert row["n"] == 12 and row["epoch"] == 6
        assert row["f1"] > 0.6 and row["cpu_seconds"] > 0
    # Nothing is run again.
    assert "0.1, final" in capsys.readouterr().out
    benchmark.main(arguments)
    assert "0.1, final" not in capsys.readouterr().out
    assert list(rows.values()) == measure.finished(benchmark.NAME)
