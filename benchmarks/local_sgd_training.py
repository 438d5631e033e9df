"""Local SGD with real processes: accuracy, time and bytes of K workers.

    python benchmarks/local_sgd_training.py DATA [--seeds 1] [--rates 1 2 4]

Table 5 of the RP paper (Yuan et al., 2020) with `LocalSGD`, an encoder that is
trained, and K processes that send their models over the loopback. 3,453
classes, every ninth verse in three translations. The encoder is a vector of 128
numbers for each word, weighted by TF-IDF; the head is `ProjectedSoftmax` with
64 numbers for a class. Each worker takes 32 rows a step, so an epoch of K
workers has a K-th of the steps; the rate is K times the rate of one worker,
which is chosen on half of the fourth translation. `accuracy` is of the other
half, after EPOCHS epochs. `s`, `cpu_s` (of one process) and `mb` (over the
loopback, both ways) are those of an epoch after the first. Each process has one
thread, and all of them share one machine.
"""

import argparse
import json
import os
import sys
import time

import measure
import processes

NAME = "local_sgd_training"
DIM, PROJECTION_DIM, BATCH, EPOCHS = 128, 64, 32, 8
LENGTH = 10.0  # of features at the beginning
STEP = 9  # classes: every ninth verse
JOBS = ((1, 1), (2, 1), (2, 4), (2, 16), (4, 1), (4, 4), (4, 16))


def load(folder):
    """`(train, validation, test)`, each ids, values and labels."""
    import numpy as np
    import verses_data

    x, y, test_x, test_y, idf = verses_data.load(folder)

    def rows(x, y):
        kept = y % STEP == 0
        ids, values = x[kept].astype(np.int64), idf[x[kept]]
        values /= np.linalg.norm(values, axis=1, keepdims=True) + 1e-6
        return ids, values.astype(np.float32), y[kept] // STEP

    held = rows(test_x, test_y)
    parts = [[array[start::2] for array in held] for start in (0, 1)]
    return rows(x, y), *parts


def make_model(num_words, num_classes, rate, interval, seed):
    import keras

    from tfxclass import layers
    from tfxclass import optimizers

    keras.utils.set_random_seed(seed)
    ids = keras.Input([None], dtype="int64")
    values = keras.Input([None])
    first = keras.initializers.RandomNormal(stddev=LENGTH / DIM**0.5, seed=seed)
    features = layers.SparseDense(
        num_words, DIM, use_bias=False, kernel_initializer=first
    )(ids, values)
    head = layers.ProjectedSoftmax(num_classes, PROJECTION_DIM, seed=seed)
    model = keras.Model([ids, values], head(features))
    model.compile(optimizers.LocalSGD(rate, interval), loss=head.loss)
    return model


def child(folder, replicas, interval, rate, seed):
    """A worker; what it found, a dict."""
    import tensorflow as tf

    from tfxclass import distribute

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    train, validation, test = load(folder)
    strategy = processes.make_strategy(tf)
    with strategy.scope():
        model = make_model(
            1 + max(int(part[0].max()) for part in (train, validation, test)),
            1 + int(train[2].max()),
            rate * replicas,
            interval,
            seed,
        )
    ids, values, labels = train
    data = tf.data.Dataset.from_tensor_slices(((ids, values), labels))
    data = data.shuffle(len(labels), seed=seed).repeat()
    steps = len(labels) // (BATCH * replicas)
    epochs = Epochs(steps)
    distribute.fit(
        model,
        data.batch(BATCH * replicas),
        epochs=EPOCHS,
        steps_per_epoch=steps,
        callbacks=[epochs.callback()],
        verbose=0,
        log_interval=steps,
    )
    model.optimizer.average()
    return {
        "validation": accuracy(model, validation),
        "accuracy": accuracy(model, test),
        "steps": steps * EPOCHS,
        **epochs.mean(),
    }


class Epochs:
    """Seconds, CPU seconds and megabytes of each epoch."""

    def __init__(self, steps):
        self.steps = steps
        self.ends = []

    def callback(self):
        import keras

        def end(epoch, logs):
            now = time.perf_counter(), time.process_time()
            self.ends.append((*now, processes.loopback_mb()))

        return keras.callbacks.LambdaCallback(on_epoch_end=end)

    def mean(self):
        """Of the epochs after the first."""
        ends = zip(("s", "cpu_s", "mb"), self.ends[0], self.ends[-1])
        return {n: (b - a) / (len(self.ends) - 1) for n, a, b in ends}


def accuracy(model, part):
    import numpy as np

    ids, values, labels = part
    logits = np.asarray(model([ids, values], training=False))
    return float(np.mean(logits.argmax(axis=1) == labels))


def run(args, replicas, interval, rate, seed):
    """What a cluster found, run if it has not been."""
    job = f"{replicas},{interval},{rate:g},{seed}"
    path = os.path.join(measure.CACHE, NAME, job + ".json")
    if not os.path.exists(path):
        numbers = map(str, (replicas, interval, rate, seed))
        found = processes.run(
            os.path.abspath(__file__),
            (args.folder, *numbers),
            {"worker": replicas},
        )
        print(job, found, flush=True)
        if "error" in found:
            sys.exit(found["error"])
        measure.write(path, found)
    with open(path) as f:
        return json.load(f)


def main(args):
    found = {rate: run(args, 1, 1, rate, 0) for rate in args.rates}
    rate = max(found, key=lambda rate: found[rate]["validation"])
    rows = []
    for replicas, interval in JOBS:
        if replicas > args.most:
            continue
        seeds = [
            run(args, replicas, interval, rate, seed)
            for seed in range(args.seeds)
        ]
        about = {"replicas": replicas, "interval": interval, "rate": rate}
        rows.append({**about, **measure.of_seeds(seeds)})
    measure.save(NAME, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, *numbers = sys.argv[2:]
        replicas, interval, rate, seed = map(float, numbers)
        processes.print_and_stay(
            child(folder, int(replicas), int(interval), rate, int(seed))
        )
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("folder")
        parser.add_argument("--seeds", type=int, default=1)
        parser.add_argument("--most", type=int, default=4, help="workers")
        parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 4])
        main(parser.parse_args())
