"""The papers' methods, each with a learning rate chosen on validation rows.

    python -m benchmarks.comparison.rates --set eurlex57k --epochs 3

The set's rate and twice the rate are tried, with seed 0, on nine training rows
in ten; where the best of them is at an edge, more. The rate with the best P@1
on the tenth row trains on all rows for as many epochs, with three seeds. What
has a result in benchmarks/cache/comparison is not run again. With
`--curves` the curves are drawn, too, in results/comparison/SET_SUFFIX.png.
"""

import statistics
import sys

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS

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
MOST_RATES = 5


def chosen(trial, job, score_of, seeds, folder, name="comparison"):
    """`(tried, ends)`: scores by rate, and the jobs at the best rate.

    `trial` is the job that chooses, and `score_of` is a function of its result.
    """

    def score(rate):
        ends = train.ends_of([trial._replace(rate=rate)], folder, name)
        return score_of(ends[0][1]) if ends else None

    first = sets_lib.SETS[job.set].first_rate
    best, tried = measure.best_rate([first, 2 * first], score, 2, MOST_RATES)
    jobs = [job._replace(rate=best, seed=seed) for seed in seeds]
    return tried, train.ends_of(jobs, folder, name) if tried else []


def row_of(tried, ends, rates):
    # `rates` are all that some method tried.
    results = [result for _, result in ends]
    lasts = [result["curve"][-1] for result in results]
    sizes = [result.get("classes_per_row") for result in results]
    precisions = [last["precision@1"] for last in lasts]
    return {
        "method": METHODS[ends[0][0].method].label,
        "rate": ends[0][0].rate,
        **{f"validation {rate:g}": tried.get(rate, "") for rate in rates},
        "seeds": len(ends),
        "precision@1": statistics.fmean(precisions),
        "standard error": measure.standard_error(precisions),
        **measure.means(lasts, "precision@5", "cpu_seconds"),
        "classes_per_row": "" if None in sizes else statistics.fmean(sizes),
    }


def main(argv=None):
    measure.run_child(train.child)
    args = measure.arguments(
        __doc__,
        argv,
        choices={"set": sets_lib.SETS, "methods": METHODS},
        data="../shared/data",
        set="eurlex57k",
        methods=CHOSEN,
        epochs=3.0,
        seeds=[0, 1, 2],
        curves=False,
        suffix="rates",
    )
    sets_lib.load(args.set, args.data)
    found, failed = [], False
    for method in args.methods:
        job = train.Job(args.set, method, epochs=args.epochs)
        tried, ends = chosen(
            job._replace(points=1, validation=True),
            job,
            lambda result: result["curve"][-1]["precision@1"],
            args.seeds,
            args.data,
        )
        failed |= len(ends) < len(args.seeds)
        if ends:
            found.append((tried, ends))
    every = sorted({rate for tried, _ in found for rate in tried})
    rows = [row_of(tried, ends, every) for tried, ends in found]
    ended = [end for _, ends in found for end in ends]
    name = f"comparison/{args.set}_{args.suffix}"
    save(name, rows, ended[0][1])
    if args.curves:
        draw(name, rows, ended)
    return int(failed)


def draw(name, rows, ended):
    """Draws P@1 on test rows against CPU time and steps, means of the seeds."""
    figure, axes = figure_style.new_figure(rows=2, height=4)
    titles = {"cpu_seconds": "CPU seconds of training", "step": "steps"}
    for one, (column, xlabel) in zip(axes, titles.items(), strict=True):
        for method in dict.fromkeys(job.method for job, _ in ended):
            own = [r["curve"] for job, r in ended if job.method == method]
            points = measure.mean_curve(own, column, "precision@1")
            x = [point[column] for point in points]
            percent = [100 * point["precision@1"] for point in points]
            one.plot(x, percent, ".-", label=METHODS[method].label)
        one.set(xlabel=xlabel, xscale="log", ylim=(30, 90))
        one.set(ylabel="precision at 1, in percent")
        figure_style.plain_ticks(one.xaxis)
    # Below the axes, so that it covers no point.
    axes[1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    worst, *_, best = sorted(rows, key=lambda row: row["precision@1"])
    title = f"{best['method']} ends highest, {worst['method']} lowest"
    figure_style.save(figure, measure.result_path(name + ".png"), title)


def save(name, rows, result):
    told = {key: result[key] for key in ("date", "machine")}
    measure.save(name, rows, **told)


if __name__ == "__main__":
    sys.exit(main())
