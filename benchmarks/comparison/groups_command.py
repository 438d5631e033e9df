"""A command that runs jobs of `groups.py` and keeps a table of how they end."""

import argparse
import json
import os

from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison.groups_results import FOLDER


def run(module, description, make_jobs, rows_of, argv=None, draw=None):
    """Runs jobs without a result and writes `<out>/<module>.json`.

    Args:
        module: str, name of the command in `benchmarks.comparison`.
        description: str, of its help.
        make_jobs: function of a list of seeds, that returns `GroupsJob`s.
        rows_of: function of a list of `(job, result)`, that returns rows.
        argv: list of str, or None for the command line's.
        draw: function of `(rows, path of a .png)`, or None.

    Returns:
        int, the exit status: 1 where a job failed or none has a result.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.comparison.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--figures",
        action="store_true",
        help="run nothing; without results of jobs, draw the committed rows",
    )
    parser.add_argument("--out", default=FOLDER)
    args = parser.parse_args(argv)
    jobs = make_jobs(args.seeds)
    pending = [] if args.figures else kept_jobs.pending(jobs)
    failed = kept_jobs.run_all(pending, groups.TRAIN)
    found = kept_jobs.read(jobs)
    path = os.path.join(args.out, module)
    if not found:
        return 0 if args.figures and redraw(path, draw) else 1
    rows = rows_of(found)
    write(path + ".json", rows, found, parser.prog, args.seeds)
    if draw:
        draw(rows, path + ".png")
    return 1 if failed else 0


def redraw(path, draw):
    """Draws the rows of `<path>.json`. Returns whether there was one."""
    if draw is None or not os.path.exists(path + ".json"):
        return False
    with open(path + ".json") as f:
        draw(json.load(f)["rows"], path + ".png")
    return True


def write(path, rows, found, command, seeds):
    """Writes a table and what made it, and prints it.

    Args:
        path: str, of the .json.
        rows: list of dicts.
        found: list of `(job, result)`; date and machine are the first's.
        command: str, without its `--seeds`.
        seeds: ints.
    """
    record = {key: found[0][1][key] for key in ("date", "machine")}
    record["command"] = f"{command} --seeds {' '.join(map(str, seeds))}"
    measure.write(path, {**record, "rows": rows})
    print(measure.table(rows))
