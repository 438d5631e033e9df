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
    from tfxclass.text import Tagger

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


def omikuji(train, texts, most):
    """`(answers, figures)` of Omikuji on TF-IDF of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    begin = time.process_time()
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32
    )
    x, test = vectorizer.fit_transform(train[0]), vectorizer.transform(texts)
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


def main(argv, name, description, read, ks, by_hit):
    """Runs a job.

    Args:
        argv: list of str.
        name: str, of the job.
        description: str.
        read: function of a folder and a number of training rows (or None). It
            returns `((texts, tags), (texts, tags))`, training and test rows.
        ks: ints, answers that count.
        by_hit: as in `precisions`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", help="folder of the data")
    parser.add_argument("--rows", type=int, help="training rows")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--child")
    args = parser.parse_args(argv)
    if args.child:
        train, (texts, tags) = read(args.folder, args.rows)
        if args.child == "Omikuji":
            best, found = omikuji(train, texts, max(ks))
        else:
            effort = args.child.split(", ")[1]
            best, found = ours(effort, train, texts, max(ks))
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
    command, saved = f"python -m benchmarks.jobs {name} FOLDER", name
    if args.rows is not None:
        command += f" --rows {args.rows}"
        saved += f"_{args.rows}"
    measure.save(f"jobs/{saved}", rows, command=command)
