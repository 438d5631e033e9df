"""Thresholds of each label, on rows that they were not chosen on.

    python -m benchmarks.label_thresholds bibtex delicious

A linear one-vs-rest classifier learns from nine tenths of the training rows of
an extreme-classification file of `../shared/data`. The other tenth is halved
six times at random; thresholds are chosen on each half and judged on the other.
"""

import sys

import numpy as np

from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.calibration.label_thresholds import best_thresholds
from tfxclass.data import XCFile
from tfxclass_text import trials
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs

_SHRINKAGES = (0.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e12)
_DRAWS = 6
_LEAST = 0.01


def main(names):
    for name in names:
        path = f"../shared/data/{name}/{name}_train.txt.xz"
        answers, truth = held_out(path)
        size, width = truth.shape
        print(f"{name}: {size} held-out rows, {width} labels")
        for average in ("micro", "macro"):
            for shrinkage in _SHRINKAGES:
                scores = judge(answers, truth, average, shrinkage)
                print(
                    f"  for {average}-F1, shrinkage {shrinkage:g}: "
                    "micro-F1 {:.4f}, macro-F1 {:.4f}".format(*scores)
                )


def held_out(path):
    """Probabilities and labels of a tenth of the rows, `[rows, labels]`."""
    data = read(path)
    train, held = trials.split(len(data.rows), 0.1, 2000, 0)
    held = data.take(held)
    trial = trials.run_trial(
        data.take(train), held.rows, held.labels, False, 0.5
    )
    slope, intercept = trials.fit_sigmoid(trial.margins, trial.truth)
    return 1 / (1 + np.exp(-(slope * trial.margins + intercept))), trial.truth


def read(path):
    """`LabeledRows`; rows have norm 1."""
    file = XCFile(path)
    parts = {"ids": [], "values": [], "labels": []}
    for x, y in file.batches(1024):
        parts["ids"].extend(x["feature_ids"].numpy())
        parts["values"].extend(x["feature_values"].numpy())
        parts["labels"].extend(y.numpy())
    size = len(parts["labels"])
    own = [row[row >= 0] for row in parts["labels"]]
    used = [v != 0 for v in parts["values"]]
    values = [v[u] / np.linalg.norm(v) for v, u in zip(parts["values"], used)]
    ids = [i[u] for i, u in zip(parts["ids"], used)]
    rows = _ragged(size, ids, np.concatenate(values))
    labels = _ragged(size, own, None)
    return LabeledRows(rows, labels, file.num_features, file.num_classes)


def _ragged(size, lists, values) -> SparseRows:
    owner = np.repeat(np.arange(size), [len(x) for x in lists])
    return from_pairs(size, owner, np.concatenate(lists), values)


def judge(answers, truth, average, shrinkage):
    """Mean micro- and macro-F1 of thresholds on halves they do not know."""
    random, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        half = random.random(len(truth)) < 0.5
        for known in (half, ~half):
            pairs = _pairs(answers[known], truth[known])
            thresholds, _ = best_thresholds(pairs, average, shrinkage)
            found.append(f1(answers[~known] >= thresholds, truth[~known]))
    return np.mean(found, axis=0)


def _pairs(answers, truth):
    rows, columns = np.nonzero(answers >= _LEAST)
    return Pairs(
        columns,
        answers[rows, columns].astype(np.float32),
        truth[rows, columns],
        truth.sum(axis=0),
    )


def f1(answers, truth):
    hits = (answers & truth).sum(axis=0)
    total = answers.sum(axis=0) + truth.sum(axis=0)
    each = 2 * hits[total > 0] / total[total > 0]
    return 2 * hits.sum() / total.sum(), each.mean()


if __name__ == "__main__":
    main(sys.argv[1:] or ["bibtex", "delicious"])
