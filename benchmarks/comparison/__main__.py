"""Every method on every data set: how a training of some epochs ends.

    python -m benchmarks.comparison --data ../shared/data --epochs 4

Each job is one model on one data set. Its result is kept in
benchmarks/cache/comparison, and a job that has one is not run again. Then, for
each data set, each method at the end: results/comparison/SET_steps.json. With
`--batch` a step has as many rows, and the rate is scaled by the root of the
ratio.
"""

import statistics
import sys

from benchmarks import measure
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS

#: What is varied besides each method's curve: an option, the methods that have
#: it, and its values, without the usual ones. `num_sampled` is EU law's.
PARTS = {
    "curves": (),
    "num_sampled": (
        "num_sampled",
        ("random_paper", "top_k_paper", "forest_paper"),
        (480, 1024, 2048),
    ),
    # 1 and 10 % of the classes of `verses_third`.
    "percent": ("num_sampled", ("random_paper", "top_k_paper"), (103, 1036)),
    # HF-A's threshold starts at 0.6, and ends at 0.95 where it is not varied.
    "tau_cp": (
        "tau_cp_end",
        ("forest_adaptive_paper", "forest_adaptive_labels_in_m"),
        (0.7, 0.9, 0.99),
    ),
}
COLUMNS = ("precision@1", "precision@5", "accuracy@10", "epochs")
COLUMNS += ("seconds", "cpu_seconds")
GOOD = 0.9  # of the best P@1: how soon a method gets there is in the table


def jobs_of(name, methods, parts, seeds, epochs, batch=0):
    rate = None
    if batch:
        set_up = sets_lib.SETS[name]
        rate = set_up.first_rate * (batch / set_up.batch_size) ** 0.5
    # What is varied has its usual value in the curve.
    settings = [(method, {}) for method in methods]
    for part in filter(PARTS.get, parts):
        option, swept, values = PARTS[part]
        settings += [
            (method, {option: value})
            for method in swept
            if method in methods
            for value in values
        ]
    return [
        train.Job(name, method, options, seed, epochs, rate, batch or None)
        for method, options in settings
        for seed in seeds
    ]


def rows_of(ended, with_settings):
    """A row for each method and setting: means over the `(job, result)`."""
    found = {}
    for job, result in ended:
        key = job.method, train.text_of(job.options)
        found.setdefault(key, []).append(result)
    best = max(
        mean(result["curve"][-1]["precision@1"] for result in results)
        for results in found.values()
    )
    rows = []
    for (method, setting), results in found.items():
        row = {"measured": measured(results), "method": METHODS[method].label}
        if with_settings:
            row["setting"] = setting
        rows.append(row | numbers_of(results, GOOD * best))
    return rows


def numbers_of(results, good):
    """Means over the seeds, and the time to a P@1 that is good."""
    curves = [result["curve"] for result in results]
    ends = [curve[-1] for curve in curves]
    firsts = [end["precision@1"] for end in ends]
    return {
        "seeds": len(results),
        "precision@1 +-": statistics.stdev(firsts) if firsts[1:] else "",
        "num_sampled": mean(result["num_sampled"] for result in results),
        **measure.means(ends, *COLUMNS),
        "peak_gb": mean(result["peak_gb"] for result in results),
        "overlap": mean(p["overlap"] for curve in curves for p in curve),
        f"cpu_s_to_{GOOD:.0%}": measure.seconds_to(good, curves, "precision@1"),
    }


def measured(results):
    """The last day and the machines of some results, and this command."""
    return {
        "date": max(result["date"] for result in results),
        "machine": "; ".join(sorted({r["machine"] for r in results})),
        "command": measure.command(),
    }


def mean(values):
    """ "" where there is none; whole numbers stay what they are."""
    values = [value for value in values if value is not None]
    if not values:
        return ""
    found = statistics.fmean(values)
    return int(found) if isinstance(values[0], int) else found


def main(argv=None):
    measure.run_child(train.child)
    args = measure.arguments(
        __doc__,
        argv,
        choices={"sets": sets_lib.SETS, "methods": METHODS, "parts": PARTS},
        data="../shared/data",
        sets=sets_lib.USUAL,
        methods=list(METHODS),
        parts=["curves"],
        epochs=4.0,
        seeds=[0],
        batch=0,
        suffix=None,
    )
    failed = 0
    for name in args.sets:
        sets_lib.load(name, args.data)
        jobs = jobs_of(
            name, args.methods, args.parts, args.seeds, args.epochs, args.batch
        )
        ended = train.ends_of(jobs, args.data)
        failed += len(jobs) - len(ended)
        rows = rows_of(ended, args.parts != ["curves"])
        suffix = f"_{args.suffix}" if args.suffix else ""
        # Rows of methods that were not run this time stay.
        table = f"comparison/{name}_steps{suffix}"
        measure.save(table, rows, ("method", "setting"))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
