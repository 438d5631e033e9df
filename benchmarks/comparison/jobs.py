"""Which jobs there are, and running those that have no result yet."""

import json
import os
from typing import NamedTuple

from benchmarks import measure
from benchmarks.comparison.sets import SETS
from benchmarks.comparison.sweeps import PARTS
from benchmarks.comparison.sweeps import text_of


class Job(NamedTuple):
    """A model to train, in a process of its own.

    Attributes:
        set: str, name in `SETS`.
        method: str, name in `METHODS`.
        options: dict, what is varied.
        seed: int.
        epochs: float, the budget.
        optimizer: str, arguments of `LazyAdam`, or "".
        set_up: str, fields of the set's `SetUp` that differ, or "".
        points: int, of the curve; 1 is the end alone.
    """

    set: str
    method: str
    options: dict = {}
    seed: int = 0
    epochs: float = 1.0
    optimizer: str = ""
    set_up: str = ""
    points: int = 8

    @property
    def name(self):
        """Of the result's file, without `.json`."""
        seed = f"seed={self.seed}" if self.seed else ""
        parts = self.method, text_of(self.options), seed, self.optimizer
        parts += (self.set_up,)
        return ",".join(part for part in parts if part)

    @property
    def budget(self):
        """Of the result's folder: results of two budgets are kept apart."""
        return f"{self.epochs:g}epochs"

    def path(self, folder):
        name = f"{self.name}.json"
        return os.path.join(folder, self.set, self.budget, name)


def make_jobs(set_name, methods, parts, seeds, epochs):
    """The jobs of a data set, each once.

    Args:
        set_name: str.
        methods: names in `METHODS`.
        parts: names in `PARTS`.
        seeds: ints.
        epochs: float.
    """
    settings = []
    if "curves" in parts:
        settings += [(name, {}) for name in methods]
    for sweep in (sweep for part in parts for sweep in PARTS[part]):
        for method in filter(methods.__contains__, sweep.methods):
            varied = sweep.settings(SETS[set_name], method).values()
            settings += [(method, options) for options in varied]
    jobs = [
        Job(set_name, method, options, seed, epochs)
        for method, options in settings
        for seed in seeds
    ]
    return list({job.name: job for job in jobs}.values())


def in_fresh_process(job, path):
    """The result of a job, or `{"error": line}`."""
    module = "benchmarks.comparison.train"
    return measure.in_fresh_process(
        "-m", module, json.dumps(job._asdict()), path
    )


def in_this_process(job, path):
    """As `in_fresh_process`, without the seconds that TensorFlow loads for."""
    import keras

    from benchmarks.comparison import rows
    from benchmarks.comparison import train

    keras.backend.clear_session()
    try:
        return train.run(job, rows.load(path))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[-1]}


def run_jobs(jobs, folder, paths, run=in_fresh_process):
    """Runs jobs one after the other and stores their results.

    A job that fails is told of and leaves no result, so that the next run
    tries it again.

    Args:
        jobs: list of `Job`.
        folder: where results go.
        paths: dict of a set's name to its data file.
        run: function of `(job, path)`.

    Returns:
        dict of failed jobs' names to their error lines.
    """
    errors = {}
    for i, job in enumerate(jobs):
        result = measure.kept(
            job.path(folder), lambda job=job: run(job, paths[job.set])
        )
        name = f"{job.set} {job.name}"
        if "error" in result:
            errors[name] = result["error"]
            told = "FAILED: " + result["error"]
        else:
            told = summary(result)
        print(f"{i + 1}/{len(jobs)} {name}: {told}", flush=True)
    return errors


def ends_of(jobs, folder, paths, run=in_this_process):
    """Runs jobs without a result here, and reads how all of them ended.

    With many short jobs, a process each would cost as much as the training.

    Args:
        jobs, folder, run: as for `run_jobs`.
        paths: as for `run_jobs`; an empty dict runs nothing.

    Returns:
        list of `(job, result)`, without those that failed.
    """
    pending = [
        job
        for job in jobs
        if job.set in paths and not os.path.exists(job.path(folder))
    ]
    run_jobs(pending, folder, paths, run)
    found = [(job, measure.read(job.path(folder))) for job in jobs]
    return [(job, result) for job, result in found if result is not None]


def summary(result):
    last = result["curve"][-1]
    return (
        f"P@1 {last['precision@1']:.3f}, {last['epochs']:.2f} epochs, "
        f"{last['cpu_seconds']:.0f} s of CPU"
    )
