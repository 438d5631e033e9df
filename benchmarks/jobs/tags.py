"""Tags of texts: our taggers and Omikuji on the same rows.

    python -m benchmarks.jobs.tags job_titles FOLDER
    python -m benchmarks.jobs.tags library_titles FOLDER [rows]
    python -m benchmarks.jobs.tags short_texts FILE

job_titles: titles of vacancies to occupations (ESCO). Learned are the names of
all occupations and half of the titles; the other half is the test.

library_titles: titles to subjects (YSO). The first rows are learned, 100,000 by
default. The test has 4,000 of the next 60,000 titles: those with two subjects
or more, because the labels are incomplete.

short_texts: Japanese given names to their readings. FILE is `jamdict.db` of the
PyPI package jamdict-data 1.5, which has it packed (`jamdict.db.xz`): the
dictionary of names JMnedict, of the Electronic Dictionary Research and
Development Group. A row is a name and one of its readings; readings of five
names or more are the tags. A tenth of the names is the test (10,000 at most),
with all their rows. Omikuji and the nearest texts read runs of one to three
characters, ends of the name included.
"""

import collections
import itertools
import lzma
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import measure
from benchmarks.tagging import __main__ as tagging
from benchmarks.tagging import tools

METHODS = ("Tagger, fast", "Tagger, best", "Omikuji")
# A baseline: the tags of the nearest training texts.
NEAREST = "nearest text"
NUM_BETWEEN, NUM_TEST = 60_000, 4_000


class Job(NamedTuple):
    """What is read, and how answers are judged.

    Attributes:
        read: function of a folder and a number of training rows (or None). It
            returns `((texts, tags), (texts, tags))`, training and test rows.
        ks: ints, answers that count.
        by_hit: whether rows have one tag: the share of rows that find it.
        terms: dict, arguments of `TfidfVectorizer` for the other methods.
        methods: names, of `METHODS` and `NEAREST`.
    """

    read: Callable
    ks: tuple
    by_hit: bool
    terms: dict = {"analyzer": "word", "ngram_range": (1, 2)}  # noqa: RUF012
    methods: tuple = METHODS


def read_job_titles(folder, rows):
    """Training rows, at most `rows`, and test rows."""
    from examples import job_titles

    names, titles = job_titles.read(folder)
    order = np.random.default_rng(0).permutation(len(titles))
    half = len(order) // 2
    train = [*names, *(titles[i] for i in order[:half])][:rows]
    return _columns(train), _columns([titles[i] for i in order[half:]])


def read_short_texts(path, rows):
    """Training rows, at most `rows`, and test rows."""
    from examples import short_texts

    train, test = short_texts.split(short_texts.read(path))
    return _columns(train[:rows]), _columns(test)


def read_library_titles(folder, rows):
    """The first `rows` titles, 100,000 by default, and test rows."""
    rows = rows or 100_000
    path = os.path.join(folder, "titles_subjects.tsv.xz")
    with lzma.open(path, "rt", encoding="utf8") as f:
        lines = list(itertools.islice(f, rows + NUM_BETWEEN))
    pairs = [line.rstrip("\n").split("\t") for line in lines]
    pairs = [(text, subjects.split()) for text, subjects in pairs]
    test = [pair for pair in pairs[rows:] if len(pair[1]) > 1][:NUM_TEST]
    train, test = zip(*pairs[:rows]), zip(*test)
    return tuple(map(list, train)), tuple(map(list, test))


def _columns(pairs):
    return [text for text, _ in pairs], [[tag] for _, tag in pairs]


JOBS = {
    "job_titles": Job(read_job_titles, (1, 5, 10), True),
    "library_titles": Job(read_library_titles, (1, 3, 5), False),
    "short_texts": Job(
        read_short_texts,
        (1, 5),
        True,
        # All names have the space at their ends; it makes each the neighbor
        # of all.
        {"analyzer": "char_wb", "ngram_range": (1, 3), "max_df": 0.5},
        (*METHODS, NEAREST),
    ),
}


def scores(best, expected, train_tags, ks, by_hit):
    """P@k and PSP@k, precision where rare tags count more, or hit@k.

    Args:
        best: list of lists of tags, best first.
        expected: list of sets of tags.
        train_tags: list of lists of tags, of the training rows.
        ks, by_hit: as in `Job`.

    References:
        Jain, Prabhu and Varma, KDD 2016, with A = 0.55 and B = 1.5.
    """
    from tfxclass import metrics

    counts = collections.Counter(itertools.chain.from_iterable(train_tags))
    # Tags that were not learned count, too.
    every = sorted(set(counts).union(*expected))
    ids = {tag: i for i, tag in enumerate(every)}
    chances = metrics.propensities(
        [counts[tag] for tag in every], len(train_tags)
    )
    ranking = metrics.RankingScores(ks, chances)
    answers = np.full((len(best), max(ks)), -1)
    labels = np.full((len(best), max(map(len, expected))), -1)
    for i, (row, tags) in enumerate(zip(best, expected)):
        found = [ids[tag] for tag in row[: max(ks)]]
        answers[i, : len(found)] = found
        labels[i, : len(tags)] = [ids[tag] for tag in tags]
    ranking.update(answers, labels)
    found = ranking.result()
    shares = {k: float(found[f"precision_at_{k}"]) for k in ks}
    if by_hit:
        return {f"hit@{k}": round(k * share, 4) for k, share in shares.items()}
    result = {f"P@{k}": round(share, 4) for k, share in shares.items()}
    return result | {f"PSP@{k}": round(found[f"psp_at_{k}"], 4) for k in ks}


def ours(effort, train, texts, most):
    """`(answers, figures)` of our tagger."""
    from tfxclass_text import Tagger

    begin = time.process_time()
    tagger = Tagger(effort=effort, verbose=0).fit(*train)
    spent = time.process_time() - begin
    begin = time.process_time()
    answers = tagger.predict(texts, k=most)
    answered = 1e3 * (time.process_time() - begin) / len(texts)
    best = [[tag for tag, _ in row] for row in answers]
    return best, {
        "CPU s": round(spent, 1),
        "ms per answer": round(answered, 2),
        "GB": round(measure.peak_gb(), 2),
    }


def omikuji(train, texts, most, terms):
    """`(answers, figures)` of Omikuji on TF-IDF of the terms."""
    begin = time.process_time()
    x, test = _tf_idf(train[0], texts, terms)
    vectorized = time.process_time() - begin
    names = sorted({tag for tags in train[1] for tag in tags})
    ids = {name: i for i, name in enumerate(names)}
    labels = [[ids[tag] for tag in tags] for tags in train[1]]
    arrays = {"num_features": x.shape[1], "num_labels": len(names)}
    splits = np.cumsum([0, *map(len, labels)])
    flat = np.concatenate(labels)
    columns = {
        "x": (x.indptr, x.indices, x.data),
        "y": (splits, flat, np.ones(len(flat), np.float32)),
        "test_x": (test.indptr, test.indices, test.data),
    }
    for name, parts in columns.items():
        arrays |= {f"{name}_{i}": part for i, part in enumerate(parts)}
    os.environ["PEER_TOP"] = str(most)
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.npz")
        answers = os.path.join(folder, "answers.npz")
        np.savez(rows, **arrays)
        python = tools.python_of(tools.TOOLS["omikuji"])
        found = tagging.in_process(
            [python, tagging.PEER, "omikuji", rows, answers]
        )
        if "error" in found:
            return None, found
        best = np.load(answers)["ids"]
    best = [[names[i] for i in row if i >= 0] for row in best]
    return best, {
        "CPU s": round(found["cpu_s"] + vectorized, 1),
        "ms per answer": found["predict_ms"],
        "GB": round(found["peak_gb"], 2),
    }


def _tf_idf(train, test, terms):
    """TF-IDF of training and test texts, `scipy.sparse` matrices."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **terms)
    return vectorizer.fit_transform(train), vectorizer.transform(test)


def nearest(train, texts, most, terms):
    """`(answers, figures)` of the tags of the texts with the largest cosine."""
    begin = time.process_time()
    x, test = _tf_idf(train[0], texts, terms)
    spent = time.process_time() - begin
    best, columns, batch = [], x.T.tocsr(), 500
    begin = time.process_time()
    for first in range(0, test.shape[0], batch):
        cosines = test[first : first + batch] @ columns
        for row, end in zip(cosines.indptr, cosines.indptr[1:]):
            order = row + np.argsort(-cosines.data[row:end], kind="stable")
            tags = (tag for i in order for tag in train[1][cosines.indices[i]])
            best.append(list(itertools.islice(dict.fromkeys(tags), most)))
    answered = 1e3 * (time.process_time() - begin) / len(texts)
    return best, {
        "CPU s": round(spent, 1),
        "ms per answer": round(answered, 2),
        "GB": round(measure.peak_gb(), 2),
    }


def child(name, method, folder, rows):
    """The row of a method: accuracy, time and memory."""
    job = JOBS[name]
    train, (texts, tags) = job.read(folder, rows)
    most = max(job.ks)
    if method == "Omikuji":
        best, found = omikuji(train, texts, most, job.terms)
    elif method == NEAREST:
        best, found = nearest(train, texts, most, job.terms)
    else:
        best, found = ours(method.split(", ")[1], train, texts, most)
    if best is None:
        return found
    expected = list(map(set, tags))
    return {**scores(best, expected, train[1], job.ks, job.by_hit), **found}


def main():
    """Runs the methods of a job and saves their rows."""
    name, folder = sys.argv[1:3]
    rows = measure.numbers(0)[0] or None
    methods = () if name == "--child" else JOBS[name].methods
    cases = [
        {"job": name, "method": method, "folder": folder, "rows": rows}
        for method in methods
    ]
    saved = name if rows is None else f"{name}_{rows}"
    inputs = {"job", "folder", "rows"}
    for found in measure.rows_of(child, cases):
        table = [{k: r[k] for k in r if k not in inputs} for r in found]
        measure.save(f"jobs/{saved}", table)


if __name__ == "__main__":
    main()
