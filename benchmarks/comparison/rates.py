"""The papers' methods, each with a learning rate chosen on validation rows.

    python -m benchmarks.comparison.rates --set eurlex57k --epochs 3

The set's rate and twice the rate are tried, with seed 0, on nine training rows
in ten; where the best of them is at an edge, more. The rate
with the best P@1 on the tenth row trains on all rows, with three seeds. Both
take `--epochs`, in which the rate falls to nothing, for other budgets may have
other best rates. What has a result, under benchmarks/cache/rates, is not run
again. Into benchmarks/results/comparison/SET_SUFFIX.json.
"""

import argparse
import functools
import os
import statistics
import sys
import tempfile

import numpy as np

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import results
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.methods import METHODS

CACHE = os.path.join(measure.CACHE, "rates")
CHOSEN = (
    "full",
    "random_paper",
    "uniform",
    "log_uniform",
    "top_k_paper",
    "forest_adaptive_paper",
    "pca_hash",
    "k_means",
    "nce",
)
FACTORS = (1.0, 2.0)  # of the set's own rate
MOST_RATES = 5
POINTS = 8  # of a curve on the test
ONE_IN = 10  # training rows, for validation


def job_of(args, method, rate, seed=0, points=1):
    return jobs_lib.Job(
        args.set,
        method,
        seed=seed,
        epochs=args.epochs,
        optimizer=f"learning_rate={rate:g}",
        points=points,
    )


def prepare(args, folder):
    """Files of the data set for the search and for the test."""
    whole, part = (os.path.join(folder, f"{n}.npz") for n in ("all", "part"))
    sets_lib.prepare(args.set, args.data, whole)
    rows_lib.save(part, rows_lib.validation(rows_lib.load(whole), ONE_IN))
    return part, whole


def search(first, score_of):
    """Tries rates until the best is no edge, or `MOST_RATES`.

    Args:
        first: float, the set's own rate.
        score_of: function of a rate: its score, or None if there is no run.

    Returns:
        dict of rates to scores.
    """
    tried, pending = {}, [factor * first for factor in FACTORS]
    while pending:
        rate = pending.pop(0)
        score = score_of(rate)
        if score is not None:
            tried[rate] = score
            if not pending and (more := beyond(tried)):
                pending.append(more)
    return tried


def best_of(found):
    return max(found, key=found.get)


def beyond(found):
    """The next rate where the best one is at an edge, or None.

    Args:
        found: dict of rates to P@1.
    """
    if len(found) >= MOST_RATES or not found:
        return None
    best = best_of(found)
    if best == min(found):
        return best / 2
    return 2 * best if best == max(found) else None


def error_of(values):
    """The standard error of a mean, "" for a single value."""
    if len(values) == 1:
        return ""
    return statistics.stdev(values) / len(values) ** 0.5


def row_of(method, found, results):
    """A row of the table.

    Args:
        method: str.
        found: dict of rates to P@1 on validation rows.
        results: dicts, the jobs of the test, a seed each.
    """
    ends = [result["curve"][-1] for result in results]
    sizes = [result.get("classes_per_row") for result in results]
    precisions = [end["precision@1"] for end in ends]
    return {
        "method": METHODS[method].label,
        "rate": best_of(found),
        **{f"validation {rate:g}": found[rate] for rate in sorted(found)},
        "seeds": len(ends),
        "precision@1": statistics.fmean(precisions),
        "standard error": error_of(precisions),
        "precision@5": statistics.fmean(end["precision@5"] for end in ends),
        "cpu_seconds": statistics.fmean(end["cpu_seconds"] for end in ends),
        "classes_per_row": "" if None in sizes else statistics.fmean(sizes),
    }


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--set", default="eurlex57k", choices=sets_lib.SETS)
    add("--methods", nargs="+", choices=METHODS, default=list(CHOSEN))
    add("--epochs", type=float, default=3.0)
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--kept", action="store_true", help="run nothing, read what is kept")
    add("--curves", action="store_true", help="draw SET_SUFFIX.png, too")
    add("--suffix", default="rates", help="of the files' names")
    args = parser.parse_args(argv)
    measure.use_one_thread()
    first = sets_lib.SETS[args.set].first_rate
    rows, ended, failed = [], [], False
    with tempfile.TemporaryDirectory() as folder:
        runs = None, None
        if not args.kept:
            # On rows of the search, and of the test.
            runs = [
                functools.partial(jobs_lib.in_this_process, path=path)
                for path in prepare(args, folder)
            ]
        for method in args.methods:

            def score_of(rate, method=method):
                return validated(job_of(args, method, rate), runs[0])

            found = search(first, score_of)
            jobs = [
                job_of(args, method, best_of(found), seed, POINTS)
                for seed in args.seeds
                if found
            ]
            ends = jobs_lib.ends_of(jobs, os.path.join(CACHE, "test"), runs[1])
            failed |= len(ends) < len(args.seeds)
            if ends:
                rows.append(row_of(method, found, [end for _, end in ends]))
            ended += ends
    columns = dict.fromkeys(key for row in rows for key in row)
    shown = sorted(columns, key=_place)
    rows = [{key: row.get(key, "") for key in shown} for row in rows]
    save(f"{args.set}_{args.suffix}", rows, ended[0][1])
    if args.curves:
        draw(args, rows, ended)
    return int(failed)


def validated(job, run):
    """P@1 of a job on validation rows, or None without a result."""
    ends = jobs_lib.ends_of([job], os.path.join(CACHE, "search"), run)
    return ends[0][1]["curve"][-1]["precision@1"] if ends else None


def draw(args, rows, ended):
    """P@1 on the test against CPU time and steps, means of the seeds."""
    figure, axes = figure_style.new_figure(rows=2, height=4)
    titles = {"cpu_seconds": "CPU seconds of training", "step": "steps"}
    for one, (column, xlabel) in zip(axes, titles.items(), strict=True):
        for method in args.methods:
            own = [r["curve"] for job, r in ended if job.method == method]
            label = METHODS[method].label
            one.plot(*mean_curve(own, column), ".-", label=label)
        one.set(xlabel=xlabel, xscale="log", ylim=(30, 90))
        one.set(ylabel="precision at 1, in percent")
        figure_style.plain_ticks(one.xaxis)
    # Below the axes, so that it covers no point.
    axes[1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    worst, *_, best = sorted(rows, key=lambda row: row["precision@1"])
    title = f"{best['method']} ends highest, {worst['method']} lowest"
    path = os.path.join(results.FOLDER, f"{args.set}_{args.suffix}.png")
    figure_style.save(figure, path, title)


def mean_curve(curves, column):
    """`(x, P@1)`, the means of the seeds at each point."""
    points = list(zip(*curves))
    x = [np.mean([point[column] for point in at]) for at in points]
    return x, [100 * np.mean([p["precision@1"] for p in at]) for at in points]


def _place(column):
    """Rates rise from left to right; other columns stay where they are."""
    name, _, rate = column.partition(" ")
    if name == "validation":
        return 1, float(rate)
    return (0, 0.0) if column in ("method", "rate") else (2, 0.0)


def save(name, rows, result):
    """Saves a table of the comparison, with date and machine of a result."""
    told = {key: result[key] for key in ("date", "machine")}
    command = measure.command().replace(" --kept", "")
    measure.save(f"comparison/{name}", rows, command=command, **told)


if __name__ == "__main__":
    sys.exit(main())
