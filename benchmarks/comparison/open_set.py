"""Identities that were never trained on, as the face papers measure.

    python -m benchmarks.comparison.open_set

A verse is an identity, a translation a picture of it. Every ninth verse trains,
in three translations. The features of all other verses are compared by cosine,
the fourth translation with the first: the true positive rate at a false
positive rate of 0.001, and how often the nearest verse is the right one. Half
of these verses choose the rate of each method (seed 0), with more rates where
the best one is at an edge. The other half is the test. What has a result, under
benchmarks/cache/open_set, is not run again. Into
benchmarks/results/comparison/open_set.json.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

import keras
import numpy as np

from benchmarks import measure
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import methods
from benchmarks.comparison import rates
from benchmarks.comparison import readers
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.model import make_model
from tfxclass import metrics

CACHE = os.path.join(measure.CACHE, "open_set")
SET, STEP, EPOCHS = "verses_ninth", 9, 4.0
COMPARED = (
    "full",
    "random_paper",
    "forest_paper",
    "forest_adaptive_labels_in_m",
    "uniform",
)
SEEDS = (0, 1, 2)
#: Verses whose number modulo `STEP` is one of these do not train: the first
#: half chooses rates, the second is the test.
HALVES = np.array_split(np.arange(1, STEP), 2)


def job_of(method, rate, seed=0):
    return jobs_lib.Job(
        SET,
        method,
        seed=seed,
        epochs=EPOCHS,
        optimizer=f"learning_rate={rate:g}",
        points=1,
    )


def result_of(job, data, verses):
    """What a job reaches on the two halves of the verses, a dict."""
    keras.backend.clear_session()
    model, result = train.trained(job, data)
    encoder = keras.Model(model.inputs, model.layers[-2].output)
    halves = [open_set(encoder, verses, half) for half in HALVES]
    return {**result, **dict(zip(("validation", "test"), halves))}


def untrained(data, verses):
    """The row of the encoder as it begins: what word overlap alone reaches."""
    set_up = sets_lib.SETS[SET]
    head = methods.make_head("uniform", {}, data, set_up, seed=0)
    model = make_model(data, set_up, head, set_up.first_rate)
    encoder = keras.Model(model.inputs, model.layers[-2].output)
    reached = open_set(encoder, verses, HALVES[1])
    return {"method": "untrained encoder", "seeds": 1, **reached}


def open_set(encoder, verses, rests):
    """Verification and identification of verses with these rests by `STEP`."""

    def features(rows, classes):
        found = encoder.predict(
            rows.batch(classes, verses.length), batch_size=512, verbose=0
        )
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def part(rows):
        return np.flatnonzero(np.isin(rows.labels[:, 0] % STEP, rests))

    first = verses.train.take(np.arange(verses.num_classes))
    queries, gallery = part(verses.test), part(first)
    labels = verses.test.labels[queries, 0], first.labels[gallery, 0]
    queries = features(verses.test, queries)
    gallery = features(first, gallery)
    own = np.isin(labels[1], labels[0])
    return {
        "TPR@0.001": metrics.true_positive_rate(
            np.ravel(queries @ gallery[own].T),
            np.ravel(labels[0][:, None] == labels[1][own]),
        ),
        "hit rate@1": metrics.hit_rate(queries, gallery, *labels),
    }


def row_of(method, data, verses):
    """The row of a method."""

    def ends_of(*jobs):
        ended = jobs_lib.ends_of(
            jobs, CACHE, lambda job: result_of(job, data, verses)
        )
        return [result for _, result in ended]

    def score_of(rate):
        (found,) = ends_of(job_of(method, rate))
        return found["validation"]["TPR@0.001"]

    tried = rates.search(sets_lib.SETS[SET].first_rate, score_of)
    best = rates.best_of(tried)
    ends = ends_of(*(job_of(method, best, seed) for seed in SEEDS))
    row = {"method": METHODS[method].label, "rate": best}
    row |= {f"validation {rate:g}": tried[rate] for rate in sorted(tried)}
    row["seeds"] = len(ends)
    measured = {
        **{key: [end["test"][key] for end in ends] for key in ends[0]["test"]},
        "closed": [end["curve"][-1]["precision@1"] for end in ends],
    }
    for key, values in measured.items():
        row[key] = statistics.fmean(values)
        row[f"{key} +-"] = rates.error_of(values)
    seconds = [end["curve"][-1]["cpu_seconds"] for end in ends]
    return {**row, "cpu_seconds": statistics.fmean(seconds)}, ends[0]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    args = parser.parse_args(argv)
    measure.use_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set.npz")
        sets_lib.prepare(SET, args.data, path)
        data = rows_lib.load(path)
    verses = readers.read_verses(pathlib.Path(args.data))
    rows = [untrained(data, verses)]
    for method in COMPARED:
        row, result = row_of(method, data, verses)
        rows.append(row)
        # After each: a run that is stopped leaves a table.
        rates.save("open_set", rows, result)


if __name__ == "__main__":
    sys.exit(main())
