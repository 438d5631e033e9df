"""What `catch_up=True` of `LazyAdam` buys, in equal steps.

    python -m benchmarks.catch_up DATA [set ...] [--seeds 3] [--rates 1 2 4]
        [--steps 2000]

`catch_up=True` applied the Adam steps that a class vector had skipped before
the vector was read. The option was removed after this comparison. The script
runs at commit 74c2fb2, the last one with the option.

Each run trains a sum of word embeddings and `SampledSoftmax` with its default
sampler for a fixed number of steps at a constant learning rate. The data, the
first weights, the batches and the samples are the same in both runs of a seed.
`--rates` multiplies the learning rate of the set. Results of the first half of
the test rows are there to choose a rate by; the others are of the second half.
A run that has its row is not repeated. Deviations are between seeds.
"""

import argparse
import itertools
import json
import lzma
import os
import pathlib
import tempfile

import numpy as np

from benchmarks import measure

NAME = "catch_up"
STEPS = {
    "verses": 1500,
    "eurlex57k": 1500,
    "reverse_dictionary": 400,
    "diginetica": 1000,
}
LAST_ITEMS = 10


def read_sessions(folder):
    """Diginetica as a `DataSet`: the last items of a session, the next one."""
    from benchmarks.comparison import rows

    folder = pathlib.Path(folder) / "sessions"
    with lzma.open(folder / "diginetica.train.txt.xz", "rt") as f:
        sessions = [list(map(int, line.split())) for line in f]
    train = [(s[:i], s[i]) for s in sessions for i in range(1, len(s))]
    with lzma.open(folder / "diginetica.test.txt.xz", "rt") as f:
        lines = [line.split("\t") for line in f]
    test = [(list(map(int, x.split())), int(y)) for x, y in lines]
    num_items = 1 + max(max(items) for items in sessions)
    test = [
        (items, label)
        for items, label in test
        if max(items) < num_items and label < num_items
    ]
    parts = [_session_rows(pairs) for pairs in (train, test)]
    return rows.make_set(num_items, LAST_ITEMS, num_items, *parts)


def _session_rows(pairs):
    from benchmarks.comparison import rows

    items = [items[-LAST_ITEMS:] for items, _ in pairs]
    sizes = np.array([len(x) for x in items])
    values = np.repeat(1 / np.sqrt(sizes), sizes).astype(np.float32)
    return rows.Rows(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate(items).astype(np.int32),
        values,
        np.ones(len(values), np.float32),
        np.array([[label] for _, label in pairs], np.int64),
    )


def _set_up(name):
    from benchmarks.comparison import sets

    if name in sets.SETS:
        return sets.SETS[name]
    return sets.SetUp(
        read_sessions,
        num_sampled=1024,
        sampled_sweep=(),
        learning_rate=3e-3,
        first_rate=3e-3,
        adaptive_ms=0.0,
        scale=16.0,
    )


def child(name, path, kind, rate, seed, steps):
    """The result of a run, a dict."""
    import keras
    import tensorflow as tf

    import tfxclass
    from benchmarks.comparison import model as models
    from benchmarks.comparison import rows
    from benchmarks.comparison import train

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(seed)
    data, set_up = rows.load(path), _set_up(name)
    head = tfxclass.layers.SampledSoftmax(
        data.num_classes,
        set_up.num_sampled,
        seed=seed,
        similarity=(
            tfxclass.layers.Cosine(scale=set_up.scale)
            if set_up.scale
            else "dot"
        ),
    )
    model = models.make_model(
        data,
        set_up,
        head,
        rate * set_up.learning_rate,
        catch_up=kind == "catch_up",
    )
    source = train.batches(data, set_up.batch_size, seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    step(*next(source))
    clock = train.Stopwatch()
    for _ in range(steps):
        x, y = next(source)
        with clock:
            step(x, y)
    search = train.make_search(model, data.num_classes)
    half = data.test.num_rows // 2
    chosen_by, found = (
        train.precisions(search, data._replace(test=data.test.take(which)))
        for which in (np.arange(half), np.arange(half, data.test.num_rows))
    )
    return {
        "validation precision@5": chosen_by["precision@5"],
        "precision@1": found["precision@1"],
        "precision@5": found["precision@5"],
        "accuracy@10": found["accuracy@10"],
        "ms_per_step": 1e3 * clock.cpu / steps,
    }


def run(name, folder, rates, seeds, steps):
    """Adds the rows of a set that are missing."""
    from benchmarks.comparison import rows
    from benchmarks.comparison import sets

    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "data.npz")
        for rate, kind in itertools.product(rates, ("lazy", "catch_up")):
            key = {
                "set": name, "optimizer": kind, "rate": rate, "steps": steps,
            }  # fmt: skip
            done = measure.finished(NAME)
            if any(key.items() <= row.items() for row in done):
                continue
            if os.path.exists(path):
                pass
            elif name in sets.SETS:
                sets.prepare(name, folder, path)
            else:
                rows.save(path, _set_up(name).read(folder))
            lines = [
                measure.in_fresh_process(
                    "-m", "benchmarks.catch_up", "--child", name, path,
                    kind, rate, seed, steps,
                )
                for seed in range(seeds)
            ]  # fmt: skip
            row = measure.of_seeds(lines)
            print(key, row, flush=True)
            if "error" not in row:
                row = {**key, **row}
                measure.save(NAME, [*measure.finished(NAME), row])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("sets", nargs="*", default=list(STEPS))
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    for name in args.sets:
        steps = args.steps or STEPS[name]
        run(name, args.data, args.rates, args.seeds, steps)


if __name__ == "__main__":
    import sys

    if sys.argv[1:2] == ["--child"]:
        set_name, file, kind, factor, seed, count = sys.argv[2:]
        found = child(
            set_name, file, kind, float(factor), int(seed), int(count)
        )
        print(json.dumps(found))
    else:
        main()
