"""Classes in groups that are hard to tell apart: where selection pays.

    python -m benchmarks.comparison.groups [TABLE ...] [--seeds 0 1 2]

Each job is one head trained on one setting (classes, group size, negatives)
for so many steps, in a process of its own; what has a result in
benchmarks/cache/groups is not run again. Rows of a table in results/comparison
are means over the seeds of how the jobs end.
"""

import statistics
import sys
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import measure
from benchmarks.comparison.methods import cosine_head
from tfxclass.rows.blocks import effective_classes
from tfxclass.rows.class_matrix import ClassRows

METHODS = ("uniform", "auto", "lsh", "forest")
PAPERS = ("full", "random", "forest_paper", "lsh_uncorrected", "lsh_paper")
DIM, SCALE = 48, 24.0
WITHIN, NOISE = 0.45, 0.30
RATE = 1e-2
TESTED, PROBED = 2000, 64
POINTS = 12
# Rows that are drawn at a time.
_STRETCH = 100
#: What methods are called, where their name does not say it.
LABELS = {
    "full": "full softmax",
    "random": "the papers' random",
    "forest_paper": "the paper's forest",
    "lsh_uncorrected": "LSH, uncorrected",
    "lsh_paper": "the paper's LSH",
}
NAMES = {**LABELS, "forest": "SelectiveSoftmax", "lsh": "LSHSoftmax"}


class GroupsJob(NamedTuple):
    classes: int
    group: int  # classes of a group
    negatives: int  # sampled classes of a step, without the labels
    batch: int
    steps: int
    method: str  # in `METHODS` or `PAPERS`
    seed: int = 0
    option: str = ""  # of the method's sampler
    value: int = 0
    second_moment: str = "element"  # "matrix": one for all, recommended


class Groups:
    """Rows of classes whose means lie in groups, drawn without end.

    A class' mean is its group's, standard normal, and WITHIN times another
    normal; a row is its class' mean and NOISE times a third.
    """

    def __init__(self, num_classes, group):
        random = np.random.default_rng(0)
        of_group = random.normal(size=(-(-num_classes // group), DIM))
        own = random.normal(size=(num_classes, DIM))
        means = of_group[np.arange(num_classes) // group] + WITHIN * own
        self.means = means.astype(np.float32)

    def sample(self, count, seed):
        """`(x, y)`, float32 `[count, DIM]` and int64 `[count]`."""
        random = np.random.default_rng(seed)
        y = random.integers(0, len(self.means), count)
        noise = random.normal(size=(count, DIM))
        return (self.means[y] + NOISE * noise).astype(np.float32), y


def batches(groups, size, seed):
    """Endless batches `(x, y)`, the same for all methods."""
    number = 0
    while True:
        rows = groups.sample(size * _STRETCH, 100 + number + 10**6 * seed)
        for part in range(0, size * _STRETCH, size):
            yield tuple(each[part : part + size] for each in rows)
        number += _STRETCH


def make_model(job):
    """`(model, head)` of a `GroupsJob`, compiled."""
    keras.utils.set_random_seed(job.seed)
    option = {job.option: job.value} if job.option else {}
    num_sampled = job.batch + job.negatives
    head = cosine_head(
        job.method, job.classes, num_sampled, SCALE, job.seed, **option
    )
    encoder = keras.layers.Dense(DIM, kernel_initializer="identity")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    decay = keras.optimizers.schedules.CosineDecay(RATE, job.steps)
    optimizer = tfxclass.optimizers.LazyAdam(
        decay, second_moment=job.second_moment
    )
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return model, head


def measured(model, head, x, y, negatives):
    """Accuracy on a test, and v and the noise of a few rows, exactly."""
    ids, _ = tfxclass.top_k(model, 1)(tf.constant(x))
    found = effective_classes(
        head.queries(model.layers[0](x[:PROBED])),
        tf.constant(y[:PROBED, np.newaxis]),
        ClassRows(tf.convert_to_tensor(head.kernel), normalize=True),
    )
    k_eff, missed = (each.numpy() for each in found[:2])
    v = head.num_classes / (negatives * k_eff)
    return {
        "accuracy": float(np.mean(ids.numpy()[:, 0] == y)),
        "v": float(v.mean()),
        "noise": float((v * missed).mean()),
    }


def child(*job):
    """The curve of a `GroupsJob`, on one thread: seconds are of the steps."""
    measure.use_one_thread()
    job = GroupsJob(*job)
    model, head = make_model(job)
    groups = Groups(job.classes, job.group)
    x_test, y_test = groups.sample(TESTED, 9)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    step.get_concrete_function(*map(tf.constant, groups.sample(job.batch, 1)))
    marks = [job.steps * (i + 1) // POINTS for i in range(POINTS)]
    curve, source = [], batches(groups, job.batch, job.seed)
    clock = measure.Stopwatch()
    for number in range(job.steps):
        x, y = map(tf.constant, next(source))
        with clock:
            step(x, y)
        if number + 1 in marks:
            point = measured(model, head, x_test, y_test, job.negatives)
            curve.append({**point, "step": number + 1, "cpu_s": clock.cpu})
    return {"curve": curve}


# (classes, group, negatives): group sizes at 1 %, shares at a group of 50.
SMALL = [(10_000, 50, 100), (10_000, 1, 100), (10_000, 50, 10)]
SMALL += [(10_000, group, 100) for group in (10, 200)]
SMALL += [(10_000, 50, negatives) for negatives in (30, 300)]
# And the steps.
LARGE = [(100_000, group, 1000, 3000) for group in (50, 1, 10, 200)]
LARGE += [(100_000, 50, negatives, 3000) for negatives in (100, 300, 3000)]
LARGE += [(1_000_000, group, 1000, 20_000) for group in (50, 1, 10, 200)]
LARGE += [(1_000_000, 50, 3000, 20_000)]
PAPER = "forest_paper"  # the one that has all seeds in sweeps
FORESTS, HASHES = (PAPER, "forest"), ("lsh_uncorrected", "lsh")
SWEEPS = {
    "num_trees": (FORESTS, (2, 5, 10, 20, 50, 100, 200)),
    "leaf_size": (FORESTS, (25, 50, 100, 200, 400)),
    "rebuild_interval": (FORESTS, (50, 200, 500, 1000, 3000)),
    "num_tables": (HASHES, (10, 25, 50, 100)),
    "num_hashes": (HASHES, (5, 7, 9, 12)),
}


def usual_jobs(seeds):
    settings = [(*setting, 128, 3000, METHODS) for setting in SMALL]
    settings.append((*SMALL[0], 128, 3000, PAPERS))
    settings += [(*setting, 512, steps, METHODS) for *setting, steps in LARGE]
    return [
        GroupsJob(*setting, method, seed, second_moment="matrix")
        for *setting, methods in settings
        for method in methods
        for seed in seeds
    ]


def lsh_jobs(seeds):
    """The first setting by the LSH paper's rule."""
    return [
        GroupsJob(*SMALL[0], 128, 3000, method, seed, second_moment="matrix")
        for seed in seeds
        for method in ("uniform", "random", "lsh_uncorrected", "lsh_paper")
    ]


def sweep_jobs(seeds):
    """The first setting by the papers' rules and by ours."""
    jobs = [GroupsJob(*SMALL[0], 128, 3000, "random", seed) for seed in seeds]
    return jobs + [
        GroupsJob(*SMALL[0], 128, 3000, method, seed, option, value)
        for seed in seeds
        for option, (methods, values) in SWEEPS.items()
        for method in methods
        for value in values
        if seed == seeds[0] or method == PAPER
    ]


#: The jobs of a table, its columns, and what it calls methods.
TABLES = {
    "groups": (
        usual_jobs,
        ("classes", "group", "negatives", "method", "steps", "seeds")
        + ("accuracy", "accuracy +-", "v", "noise", "cpu_ms"),
        {},
    ),
    "groups_lsh": (
        lsh_jobs,
        ("method", "seeds", "accuracy", "cpu_s", "least", "most"),
        LABELS,
    ),
    "groups_sweeps": (
        sweep_jobs,
        ("option", "value", "method", "seeds", "accuracy", "cpu_ms"),
        NAMES,
    ),
}
#: Columns that a row is known by.
KEYS = ("classes", "group", "negatives", "option", "value", "method")


def row_of(table, job, results):
    """A row of a table: the mean of jobs that differ in their seed alone."""
    _, columns, names = TABLES[table]
    ends = [result["curve"][-1] for result in results]
    points = [point for result in results for point in result["curve"]]
    reached = [end["accuracy"] for end in ends]
    row = {
        **job._asdict(),
        "value": job.value or "",
        "method": names.get(job.method, job.method),
        "steps": ends[0]["step"],
        "seeds": len(ends),
        "accuracy": statistics.fmean(reached),
        "accuracy +-": statistics.stdev(reached) if reached[1:] else "",
        "least": min(reached),
        "most": max(reached),
        **measure.means(points, "v", "noise"),
        **measure.means(ends, "cpu_s"),
        "cpu_ms": statistics.fmean(
            1e3 * end["cpu_s"] / end["step"] for end in ends
        ),
    }
    return {column: row[column] for column in columns}


def tabulate(name, seeds):
    """Runs the jobs of a table, and saves its rows; how many jobs failed."""
    make_jobs, columns, _ = TABLES[name]
    found, failed = {}, 0
    for job in make_jobs(seeds):
        result = measure.once("groups", *job, run=measure.ask)
        if "error" in result:
            failed += 1
        else:
            found.setdefault(job._replace(seed=0), []).append(result)
    rows = [row_of(name, job, results) for job, results in found.items()]
    keys = [key for key in KEYS if key in columns]
    measure.save(f"comparison/{name}", rows, keys)
    return failed


def main(argv=None):
    measure.run_child(child)
    args = measure.arguments(
        __doc__, argv, first=["tables"], tables=list(TABLES), seeds=[0]
    )
    failed = [tabulate(name, args.seeds) for name in args.tables]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
