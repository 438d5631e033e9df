"""Which jobs there are, and running those that have no result yet."""

import os
from typing import NamedTuple

from benchmarks import measure
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.sets import SETS

#: What is varied besides each method's curve: methods, an option, its values.
#: `num_sampled` has the value of the data set.
PARTS = {
    "curves": ((), None, ()),
    "num_sampled": (
        (
            "uniform",
            "random_paper",
            "top_k",
            "top_k_paper",
            "forest",
            "forest_paper",
            "lsh_embedding",
            "lsh_label",
        ),
        "num_sampled",
        (),
    ),
    # HF-A's threshold starts at 0.6.
    "tau_cp": (
        ("forest_adaptive_paper", "forest_adaptive_labels_in_m"),
        "tau_cp_end",
        (0.7, 0.9, 0.95, 0.99),
    ),
}


def text_of(options):
    """What is varied, in a word: `num_trees=5`."""
    return ",".join(f"{name}={value}" for name, value in options.items())


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
    settings = [(name, {}) for name in methods if "curves" in parts]
    for part in parts:
        settings += varied(part, SETS[set_name], methods)
    jobs = [
        Job(set_name, method, options, seed, epochs)
        for method, options in settings
        for seed in seeds
    ]
    return list({job.name: job for job in jobs}.values())


def varied(part, set_up, methods):
    """`(method, options)`; no options where the method does that anyway."""
    swept, option, values = PARTS[part]
    found = []
    for method in filter(methods.__contains__, swept):
        usual = METHODS[method].options.get(option)
        if option == "num_sampled":
            values, usual = set_up.sampled_sweep, set_up.num_sampled
        found += [
            (method, {} if value == usual else {option: value})
            for value in values
        ]
    return found


def in_this_process(job, path):
    """The result of a job, or `{"error": line}`.

    With many short jobs, a process each would cost as much as the training.
    """
    import keras

    from benchmarks.comparison import rows
    from benchmarks.comparison import train

    keras.backend.clear_session()
    try:
        return train.run(job, rows.load(path))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[-1]}


def ends_of(jobs, folder, run=None):
    """Runs jobs without a result one after the other, and reads all results.

    A job that fails is told of and leaves no result, so that the next run
    tries it again.

    Args:
        jobs: list of `Job`.
        folder: where results go.
        run: function of a job that returns its result; None runs nothing.

    Returns:
        list of `(job, result)`, without those that failed.
    """
    found = []
    for i, job in enumerate(jobs):
        path = job.path(folder)
        if os.path.exists(path) or run is None:
            result = measure.read(path)
        else:
            result = measure.kept(path, lambda job=job: run(job))
            failed = "error" in result
            told = f"FAILED: {result['error']}" if failed else summary(result)
            print(f"{i + 1}/{len(jobs)} {job.set} {job.name}: {told}")
        if result is not None and "error" not in result:
            found.append((job, result))
    return found


def summary(result):
    last = result["curve"][-1]
    return (
        f"P@1 {last['precision@1']:.3f}, {last['epochs']:.2f} epochs, "
        f"{last['cpu_seconds']:.0f} s of CPU"
    )
