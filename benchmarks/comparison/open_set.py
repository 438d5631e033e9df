"""Identities that were never trained on, as the face papers measure.

    python -m benchmarks.comparison.open_set

A verse is an identity, a translation a picture of it. Every ninth verse trains,
in three translations. The features of all other verses are compared by cosine,
the fourth translation with the first. Half of these verses choose the rate of
each method (seed 0), with more rates where the best one is at an edge. The
other half is the test. What has a result in benchmarks/cache/open_set is not
run again.
"""

import statistics
import sys

import keras
import numpy as np

from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import rates
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.train import make_model
from tfxclass import metrics

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


def child(folder, *job):
    """What a job reaches on the two halves of the other verses, a dict."""
    measure.use_one_thread()
    verses = sets_lib.load("verses", folder)
    model, result = train.trained(train.Job(*job), sets_lib.load(SET, folder))
    halves = [open_set(encoder_of(model), verses, half) for half in HALVES]
    return {**result, **dict(zip(("validation", "test"), halves))}


def encoder_of(model):
    return keras.Model(model.inputs, model.layers[-2].output)


def untrained(folder):
    """The row of the encoder as it begins: what word overlap alone reaches."""
    data, set_up = sets_lib.load(SET, folder), sets_lib.SETS[SET]
    head = methods.make_head("uniform", {}, data, set_up, seed=0)
    encoder = encoder_of(make_model(data, set_up, head, set_up.first_rate))
    reached = open_set(encoder, sets_lib.load("verses", folder), HALVES[1])
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


def row_of(method, folder):
    """The row of a method, and the result of a job."""
    job = train.Job(SET, method, epochs=EPOCHS, points=1)
    tried, ended = rates.chosen(
        job,
        job,
        lambda result: result["validation"]["TPR@0.001"],
        SEEDS,
        folder,
        "open_set",
    )
    ends = [result for _, result in ended]
    row = {"method": METHODS[method].label, "rate": ended[0][0].rate}
    row |= {f"validation {rate:g}": tried[rate] for rate in sorted(tried)}
    row["seeds"] = len(ends)
    measured = {
        **{key: [end["test"][key] for end in ends] for key in ends[0]["test"]},
        "closed": [end["curve"][-1]["precision@1"] for end in ends],
    }
    for key, values in measured.items():
        row[key] = statistics.fmean(values)
        row[f"{key} +-"] = measure.standard_error(values)
    lasts = [end["curve"][-1] for end in ends]
    return row | measure.means(lasts, "cpu_seconds"), ends[0]


def main(argv=None):
    measure.run_child(child)
    args = measure.arguments(__doc__, argv, data="../shared/data")
    rows = [untrained(args.data)]
    for method in COMPARED:
        row, result = row_of(method, args.data)
        rows.append(row)
        # After each: a run that is stopped leaves a table.
        rates.save("comparison/open_set", rows, result)


if __name__ == "__main__":
    sys.exit(main())
