"""How far a step moves rows of labels and rows drawn as negatives.

    python -m benchmarks.comparison.row_moves

100,000 classes of `groups.py` in groups of 50, uniform draws, 1,600 steps. At
some of them the class rows are compared before and after: the median angle by
which rows of labels turn and those of negatives alone, and by how much the mean
cosine of a row and its class' mean grows. Into benchmarks/results/comparison:

    row_moves.json
"""

import json
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison import groups_train
from benchmarks.comparison.groups_results import FOLDER

OPTIMIZERS = ("", "epsilon=1e-1", groups.SHARED)
WATCHED = {20: "20", 500: "500", 1500: "1,500"}
_TOGETHER = 4  # steps that a row of the table is the mean of


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def moves_of(before, after, labels, means):
    """`(of labels, of negatives)`, a dict each of angle and gain.

    Args:
        before, after: float arrays `[classes, dim]`, the class rows.
        labels: int array, the labels of the step.
        means: `[classes, dim]`, unit vectors, where rows should point.
    """
    touched = np.flatnonzero((before != after).any(axis=1))
    old, new = unit(before[touched]), unit(after[touched])
    cosine = np.clip((old * new).sum(axis=1), -1, 1)
    gain = ((new - old) * means[touched]).sum(axis=1)
    of_labels = np.isin(touched, labels)
    return tuple(
        {
            "degrees": float(np.degrees(np.median(np.arccos(cosine[part])))),
            "gain": float(gain[part].mean()),
        }
        for part in (of_labels, ~of_labels)
    )


def watch(job):
    """Trains; `{step: list of moves_of}`."""
    model, head = groups_train.make_model(job)
    data = groups_train.Groups(job.classes, job.group)
    means, source = unit(data.means), groups_train.batches(data, job.batch, 0)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    found = {first: [] for first in WATCHED}
    for number in range(max(WATCHED) + _TOGETHER):
        x, y = map(tf.constant, next(source))
        first = max((n for n in WATCHED if n <= number), default=number + 1)
        is_watched = number < first + _TOGETHER and number >= first
        before = head.kernel.numpy() if is_watched else None
        step(x, y)
        if is_watched:
            after = head.kernel.numpy()
            found[first].append(moves_of(before, after, y.numpy(), means))
    return found


def rows_of(optimizer, found):
    rows = []
    for first, steps in found.items():
        labels, negatives = zip(*steps, strict=True)
        row = {"optimizer": optimizer or "as Keras' Adam"}
        row["step"] = WATCHED[first]
        for name, parts in (("label", labels), ("negative", negatives)):
            for key in ("degrees", "gain"):
                row[f"{name}, {key}"] = float(np.mean([p[key] for p in parts]))
        rows.append(row)
    return rows


def main(out=FOLDER, job=None):
    job = job or groups.GroupsJob(100_000, 50, 1000, 512, 3000, "uniform")
    rows = []
    for optimizer in OPTIMIZERS:
        keras.backend.clear_session()
        rows += rows_of(optimizer, watch(job._replace(optimizer=optimizer)))
        print(json.dumps(rows[-len(WATCHED) :]), flush=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": "python -m benchmarks.comparison.row_moves",
        "rows": rows,
    }
    measure.write(os.path.join(out, "row_moves.json"), record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
