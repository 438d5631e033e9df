"""Recovery of a million classes: one pass after slim, sampled training.

    python benchmarks/recovery_million.py [--seeds 3] [--cached]

Classes are random unit vectors of 64 numbers, rows are a class and Gaussian
noise as long as SIGMA of it. A `ProjectedSoftmax` of width 32 trains with 4,096
uniform negatives (batches of 1,024, LazyAdam from a rate that falls to zero)
for EPOCHS epochs of one row a class, other ones each, and is recovered from the
rows of the first two: of one row a class, those that the search holds out would
be the only ones of theirs. `accuracy` is of 4,000 new rows among all classes.

"lift": V R^T, the slim model itself. "step": probabilities estimated from as
many negatives (`num_sampled`). "in full width": `SampledSoftmax`, trained in
the same way for as long as the slim model and its step took, and from the lift
for as long as the step alone. "means": each class's mean row of the same pass,
which needs no training. A seed is a process of its own and is kept in
benchmarks/cache/recovery_million.
"""

import argparse
import json
import sys
import time

import measure
import numpy as np

NAME = "recovery_million"
CLASSES, DIM, WIDTH, SIGMA = 1_000_000, 64, 32, 0.8
BATCH, NEGATIVES, EPOCHS, PASSED, TEST = 1024, 4096, 3, 2, 4000
# Of 0.1 to 3 and of 0.03 to 1, for 100,000 classes and a slim width of 16; the
# full width was still gaining.
SLIM_RATE, FULL_RATE = 1.0, 1.0


class Rows:
    """One row of every class in random order, or some; the same for a seed."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        rows = random.normal(size=(CLASSES, DIM)).astype(np.float32)
        self.classes = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def draw(self, count, seed):
        random = np.random.default_rng(seed)
        y = random.permutation(CLASSES)[:count]
        noise = random.normal(size=(count, DIM)).astype(np.float32)
        return self.classes[y] + SIGMA / DIM**0.5 * noise, y

    def of_epoch(self, epoch, seed):
        return self.draw(CLASSES, (seed, 1, epoch % EPOCHS))

    def some(self, epochs, seed):
        parts = [self.of_epoch(epoch, seed) for epoch in range(epochs)]
        return tuple(np.concatenate(part) for part in zip(*parts))


def fit(head, rows, steps, seed, rate):
    """Trains; CPU seconds of it, without drawing the rows."""
    import keras
    import tensorflow as tf

    import tfxclass

    model = keras.Sequential([keras.Input([DIM]), head])
    rate = keras.optimizers.schedules.CosineDecay(rate, steps)
    model.compile(tfxclass.optimizers.LazyAdam(rate), loss=head.loss)
    seconds, of_epoch = 0.0, CLASSES // BATCH
    for epoch, done in enumerate(range(0, steps, of_epoch)):
        x, y = rows.of_epoch(epoch, seed)
        batches = tf.data.Dataset.from_tensor_slices((x, y))
        batches = batches.batch(BATCH, drop_remainder=True)
        start = time.process_time()
        count = min(of_epoch, steps - done)
        model.fit(batches, steps_per_epoch=count, verbose=0)
        seconds += time.process_time() - start
    return model, seconds


def accuracy(matrix, x, y):
    found = [(part @ matrix.T).argmax(axis=1) for part in np.array_split(x, 20)]
    return float(np.mean(np.concatenate(found) == y))


def full_head(seed, kernel=None):
    import tfxclass

    head = tfxclass.layers.SampledSoftmax(
        CLASSES, num_sampled=NEGATIVES, sampler="uniform", seed=seed
    )
    head.build((None, DIM))
    if kernel is not None:
        head.kernel.assign(kernel)
    return head


def child(seed):
    import keras

    import tfxclass

    keras.utils.set_random_seed(seed)
    rows = Rows(seed)
    test = rows.draw(TEST, (seed, 2))
    head = tfxclass.layers.ProjectedSoftmax(
        CLASSES,
        WIDTH,
        sampler="uniform",
        num_sampled=NEGATIVES,
        seed=seed,
    )
    steps = EPOCHS * (CLASSES // BATCH)
    model, slim = fit(head, rows, steps, seed, SLIM_RATE)
    found = {}
    for method, options in (("lift", {}), ("step", {"num_sampled": NEGATIVES})):
        data = rows.some(PASSED, seed) if method == "step" else None
        start = time.process_time()
        full = tfxclass.recovery.recover(
            model, data, method=method, verbose=0, batch_size=BATCH, **options
        )
        took = time.process_time() - start
        kernel = full.layers[-1].kernel.numpy()
        found[method] = accuracy(kernel, *test), slim + took
        if method == "lift":
            lifted = kernel
    means = np.zeros((CLASSES, DIM), np.float32)
    np.add.at(means, data[1], data[0])
    found["means"] = accuracy(means, *test), 0.0
    del means, data, kernel
    found["in full width"] = as_long(
        full_head(seed), rows, slim + took, seed, test
    )
    quality, more = as_long(full_head(seed, lifted), rows, took, seed, test)
    found["lift, then in full width"] = quality, slim + more
    return found


def as_long(head, rows, seconds, seed, test):
    """`(accuracy, CPU seconds)` of training for about so many seconds."""
    start = head.kernel.numpy()
    _, of_some = fit(head, rows, 200, seed, FULL_RATE)
    _, of_more = fit(head, rows, 400, seed, FULL_RATE)
    head.kernel.assign(start)
    steps = max(1, int(seconds / (of_more - of_some) * 200))
    _, took = fit(head, rows, steps, seed, FULL_RATE)
    return accuracy(head.kernel.numpy(), *test), took


def row(name, values):
    qualities, seconds = zip(*values)
    return {
        "row": name,
        "accuracy": float(np.mean(qualities)),
        "deviation": float(np.std(qualities)),
        "cpu_s": float(np.mean(seconds)),
        "seeds": len(values),
    }


def main(args):
    found = measure.jobs_done(
        NAME, __file__, [((), None)], args.seeds, None, args.cached
    )[()]
    names = found[0]
    measure.save(NAME, [row(name, [x[name] for x in found]) for name in names])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(int(sys.argv[2]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--seeds", type=int, default=3)
        parser.add_argument("--cached", action="store_true")
        main(parser.parse_args())
