"""A table of how jobs end, of those that have a result."""

import os
import statistics

from benchmarks import measure
from benchmarks.comparison.jobs import text_of
from benchmarks.comparison.methods import METHODS

FOLDER = os.path.join(measure.RESULTS, "comparison")
GOOD = 0.9  # of the best P@1: how soon a method gets there is in the table


def rows_of(ended, with_settings):
    """A row for each method and setting: the means of its seeds.

    Args:
        ended: list of `(job, result)`, as `jobs.ends_of` returns them.
        with_settings: bool, whether a row says what was varied.
    """
    found = {}
    for job, result in ended:
        key = job.method, text_of(job.options)
        found.setdefault(key, []).append(result)
    ends = {
        key: [result["curve"][-1] for result in results]
        for key, results in found.items()
    }
    best = max(
        statistics.fmean(end["precision@1"] for end in of_key)
        for of_key in ends.values()
    )
    rows = []
    for (method, setting), results in found.items():
        own = ends[method, setting]
        firsts = [end["precision@1"] for end in own]
        points = [point for result in results for point in result["curve"]]
        row = {"measured": measured(results), "method": METHODS[method].label}
        if with_settings:
            row["setting"] = setting
        row |= {
            "seeds": len(results),
            "precision@1 +-": statistics.stdev(firsts) if firsts[1:] else "",
            "num_sampled": mean(result["num_sampled"] for result in results),
        }
        for column in ("precision@1", "precision@5", "accuracy@10", "epochs"):
            row[column] = mean(end[column] for end in own)
        row |= {
            "seconds": mean(end["seconds"] for end in own),
            "cpu_seconds": mean(end["cpu_seconds"] for end in own),
            "peak_gb": mean(result["peak_gb"] for result in results),
            "overlap": mean(point["overlap"] for point in points),
            f"cpu_s_to_{GOOD:.0%}": seconds_to(GOOD * best, results),
        }
        rows.append(row)
    return rows


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


def seconds_to(precision, results):
    """CPU seconds to a P@1, a mean, or "" where a seed never gets there."""
    times = [
        next(
            (p for p in result["curve"] if p["precision@1"] >= precision), None
        )
        for result in results
    ]
    if None in times:
        return ""
    return statistics.fmean(point["cpu_seconds"] for point in times)
