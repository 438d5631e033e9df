"""Features of slim models that K replicas train and average every I steps.

    python benchmarks/local_sgd_features.py DATA [--seeds 3]

Table 5 and figure 4 of the RP paper (Yuan et al., 2020), by its measure. The
model, the data and the measure come from verification.py. The optimizer is
plain SGD, as in the paper's Algorithm 1, and a step of a replica has 32 rows. A
replica has a K-th of the rows, drawn once, a K-th of the steps, and K times the
rate of one replica. That rate is chosen for RP and for the full softmax on
validation identities. Replicas take turns in one process, and their models are
averaged as `LocalSGD` does it. With I = 1 their mean is one step with the rows
of all replicas. Rows with a lower rate are of the commit that they name.
"""

import functools
import itertools
import statistics

import files
import measure
import numpy as np
import verification

from tfxclass import optimizers

NAME = "local_sgd_features"
BATCH, EPOCHS = 32, 8
FULL, RP = "full", "RP(100)"
REPLICAS, INTERVALS = (2, 4, 8), (1, 4, 8, 32)
FIRST_RATES = (0.25, 1.0, 4.0)
#: Method, replicas and interval of each row.
JOBS = [(FULL, 1, 1), (RP, 1, 1)]
JOBS += [(RP, *job) for job in itertools.product(REPLICAS, INTERVALS)]


def batches(num_rows, replicas, batch_size, seed):
    """Row numbers `[replicas, steps, batch_size]`; epochs are shuffled."""
    random = np.random.default_rng(seed)
    size = num_rows // replicas
    parts = random.permutation(num_rows)[: size * replicas]
    used = size // batch_size * batch_size
    rows = [
        [random.permutation(part)[:used] for _ in range(EPOCHS)]
        for part in parts.reshape(replicas, size)
    ]
    return np.reshape(rows, [replicas, -1, batch_size])


def train(model, inputs, labels, replicas, interval, seed):
    batch_size = BATCH
    if interval == 1:
        batch_size, replicas = BATCH * replicas, 1
    rows = batches(len(labels), replicas, batch_size, seed)

    def train_on(rows):
        for batch in rows:
            model.train_on_batch([x[batch] for x in inputs], labels[batch])

    if replicas == 1:
        return train_on(rows[0])
    variables = model.trainable_variables
    for first in range(0, rows.shape[1], interval):
        start = [variable.numpy() for variable in variables]
        mean = [np.zeros_like(value) for value in start]
        for replica in rows[:, first : first + interval]:
            for variable, value in zip(variables, start, strict=True):
                variable.assign(value)
            train_on(replica)
            for value, variable in zip(mean, variables, strict=True):
                value += variable.numpy() / replicas
        for variable, value in zip(variables, mean, strict=True):
            variable.assign(value)


def result_of(data, method, replicas, interval, rate, seed):
    def train_replicas(model, inputs, labels):
        sgd = optimizers.LazySGD(rate * replicas)
        model.compile(sgd, model.layers[-1].loss)
        train(model, inputs, labels, replicas, interval, seed)

    width = verification.WIDTHS[method]
    return verification.trained(data, width, rate, seed, train_replicas)


def main():
    args = measure.arguments(__doc__, first=["folder"], seeds=3)
    run = functools.partial(result_of, files.verses(args.folder))

    def validation(method, rate):
        found = measure.once(NAME, method, 1, 1, rate, 0, run=run)
        return found["validation"]["accuracy"]

    rates, rows = {}, []
    for method in (FULL, RP):
        score = functools.partial(validation, method)
        rates[method], _ = measure.best_rate(FIRST_RATES, score, factor=4)
    for method, replicas, interval in JOBS:
        row = {"method": method, "replicas": replicas, "interval": interval}
        row["rate"] = rates[method]
        found = measure.of_all_seeds(
            NAME, *row.values(), seeds=range(args.seeds), run=run
        )
        row |= measure.of_seeds([one["test"] for one in found])
        validation = [one["validation"]["accuracy"] for one in found]
        row["validation accuracy"] = statistics.fmean(validation)
        rows.append(row)
    measure.save(NAME, rows, ("method", "replicas", "interval"))


if __name__ == "__main__":
    main()
