"""What the jobs with tags share: our taggers and Omikuji on the same rows."""

import argparse
import collections
import itertools
import json
import os
import tempfile
import time

import numpy as np

from benchmarks import measure
from benchmarks.tagging import __main__ as tagging
from benchmarks.tagging import tools

METHODS = ("Tagger, fast", "Tagger, best", "Omikuji")
# A baseline: the tags of the nearest training texts.
NEAREST = "nearest text"
_WORDS = {"analyzer": "word", "ngram_range": (1, 2)}


def precisions(best, expected, ks, by_hit):
    """Share of right answers among the first k of each row, by k.

    Args:
        best: list of lists of tags, best first.
        expected: list of sets of tags.
        ks: ints.
        by_hit: whether rows have one tag: the share of rows that find it.
    """
    found = {}
    for k in ks:
        right = [
            sum(tag in tags for tag in row[:k])
            for row, tags in zip(best, expected)
        ]
        name = f"hit@{k}" if by_hit else f"P@{k}"
        found[name] = round(float(np.mean(right)) / (1 if by_hit else k), 4)
    return found


def propensity_scored(best, expected, train_tags, ks):
    """PSP@k: precision where rare tags count more, by k.

    Args:
        best: list of lists of tags, best first.
        expected: list of sets of tags.
        train_tags: list of lists of tags, of the training rows.
        ks: ints.

    References:
        Jain, Prabhu and Varma, KDD 2016, with A = 0.55 and B = 1.5.
    """
    from tfxclass import metrics
    from tfxclass.metrics.tagging import RankingScores

    counts = collections.Counter(itertools.chain.from_iterable(train_tags))
    # Tags that were not learned count, too.
    every = sorted(set(counts).union(*expected))
    ids = {tag: i for i, tag in enumerate(every)}
    chances = metrics.propensities(
        [counts[tag] for tag in every], len(train_tags)
    )
    scores = RankingScores(ks, chances)
    answers = np.full((len(best), max(ks)), -1)
    labels = np.full((len(best), max(map(len, expected))), -1)
    for i, (row, tags) in enumerate(zip(best, expected)):
        found = [ids[tag] for tag in row[: max(ks)]]
        answers[i, : len(found)] = found
        labels[i, : len(tags)] = [ids[tag] for tag in tags]
    scores.update(answers, labels)
    found = scores.result()
    return {f"PSP@{k}": round(found[f"psp_at_{k}"], 4) for k in ks}


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


def answers_of(method, train, texts, most, terms):
    """`(answers, figures)` of a method; no answers where it failed."""
    if method == "Omikuji":
        return omikuji(train, texts, most, terms)
    if method == NEAREST:
        return nearest(train, texts, most, terms)
    return ours(method.split(", ")[1], train, texts, most)


def main(
    argv, name, description, read, ks, by_hit, terms=None, methods=METHODS
):
    """Runs a job.

    Args:
        argv: list of str.
        name: str, of the job.
        description: str.
        read: function of a folder and a number of training rows (or None). It
            returns `((texts, tags), (texts, tags))`, training and test rows.
        ks: ints, answers that count.
        by_hit: as in `precisions`.
        terms: dict, arguments of `TfidfVectorizer` for the other methods; by
            default words and pairs of words.
        methods: names, of `METHODS` and `NEAREST`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", help="folder or file of the data")
    parser.add_argument("--rows", type=int, help="training rows")
    parser.add_argument("--methods", nargs="+", default=methods)
    parser.add_argument("--child")
    args = parser.parse_args(argv)
    if args.child:
        train, (texts, tags) = read(args.folder, args.rows)
        best, found = answers_of(
            args.child, train, texts, max(ks), terms or _WORDS
        )
        if best is not None:
            expected = list(map(set, tags))
            measured = precisions(best, expected, ks, by_hit)
            if not by_hit:
                measured |= propensity_scored(best, expected, train[1], ks)
            found = {**measured, **found}
        print(json.dumps({"method": args.child, **found}))
        return
    rows = []
    given = [] if args.rows is None else ["--rows", args.rows]
    for method in args.methods:
        found = measure.in_fresh_process(
            "-m", "benchmarks.jobs", name, args.folder, *given, "--child",
            method,
        )  # fmt: skip
        rows.append(found)
        print(found, flush=True)
    data = "FILE" if os.path.isfile(args.folder) else "FOLDER"
    command, saved = f"python -m benchmarks.jobs {name} {data}", name
    if args.rows is not None:
        command += f" --rows {args.rows}"
        saved += f"_{args.rows}"
    measure.save(f"jobs/{saved}", rows, command=command)
