"""The tagger beside Omikuji, PECOS, napkinXC, LibMultiLabel and fastText.

    python -m benchmarks.tagging [--sets ...] [--tools ...]

Each tool trains in a process of its own (on one thread, but for ours), in an
environment that is made when it is first needed (benchmarks/cache/tagging).
What has a result is not run again, so that the comparison may be stopped and
resumed; a tool that cannot be installed or fails is told of in the table.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

from benchmarks import measure
from benchmarks.tagging import figures
from benchmarks.tagging import sets as sets_lib
from benchmarks.tagging import tools as tools_lib
from benchmarks.tagging.tools import CACHE
from benchmarks.tagging.tools import TOOLS
from tfxclass import metrics

PEER = os.path.join(os.path.dirname(__file__), "peer.py")
MODULE = "benchmarks.tagging.ours"


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tagging", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--sets", nargs="+", choices=sets_lib.SETS, default=[*sets_lib.SETS])
    add("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    add("--figures", action="store_true", help="run nothing, only draw")
    add("--jobs", default=CACHE, help="folder of their results")
    add("--out", default=measure.RESULTS, help="folder of tables and figures")
    return parser.parse_args(argv)


def run(args):
    """Trains what has no result yet; the number of failures."""
    failures = 0
    for name in args.sets:
        for tool in args.tools:
            path = path_of(args, name, tool)
            if os.path.exists(path) and "error" not in read(path):
                continue
            result = run_one(args, name, tool)
            if result is None:
                continue
            measure.write(path + ".part", result)
            os.replace(path + ".part", path)
            failures += "error" in result
            print(name, tool, result, flush=True)
            tabulate(args, name)
    return failures


def path_of(args, name, tool):
    return os.path.join(args.jobs, name, f"{tool}.json")


def read(path):
    with open(path) as f:
        return json.load(f)


def run_one(args, name, tool):
    """The result of a job, a dict; `{"error": line}`; None if not tried."""
    os.makedirs(os.path.join(args.jobs, name), exist_ok=True)
    rows = os.path.join(args.jobs, name, "rows.npz")
    if not os.path.exists(rows):
        sets_lib.prepare(name, args.data, rows)
    data = np.load(rows)
    if data["num_labels"] > TOOLS[tool].most_labels:
        return None
    answers = os.path.join(args.jobs, name, f"{tool}.npz")
    try:
        python = tools_lib.python_of(TOOLS[tool])
    except tools_lib.NotInstalled as e:
        return {"error": f"not installed: {e}"}
    command = [python, PEER, tool, rows, answers]
    is_ours = not TOOLS[tool].packages
    if is_ours:
        command = [python, "-m", MODULE, tool, name, args.data, answers]
    result = in_process(command)
    if "error" in result:
        return result
    # Ours reads the texts itself; to the others that is added.
    if not is_ours:
        result["cpu_s"] = round(result["cpu_s"] + float(data["tf_idf_s"]), 1)
    return {**scores(data, np.load(answers)["ids"]), **result}


def in_process(command):
    """The JSON of a command's last line, or `{"error": line}`."""
    one = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **one}
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": (lines or [f"status {done.returncode}"])[-1][:160]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def scores(data, ids):
    """P@k, PSP@k and nDCG@k of answers `[rows, 5]`; -1 is no answer."""
    counts = np.bincount(data["y_1"], minlength=int(data["test_y_1"].max()) + 1)
    ranking = metrics.RankingScores(
        (1, 3, 5), metrics.propensities(counts, len(data["y_0"]) - 1)
    )
    splits = data["test_y_0"]
    longest = max(int(np.diff(splits).max()), 1)
    labels = np.full((len(ids), longest), -1, np.int64)
    for row, begin, end in zip(labels, splits, splits[1:]):
        row[: end - begin] = data["test_y_1"][begin:end]
    ranking.update(ids, labels)
    found = ranking.result()
    names = {"P": "precision", "PSP": "psp", "nDCG": "ndcg"}
    return {
        f"{short}@{k}": round(float(found[f"{long}_at_{k}"]), 4)
        for short, long in names.items()
        for k in ((3, 5) if short == "nDCG" else (1, 3, 5))
    }


def tabulate(args, name):
    """Writes tagging/<set>.json and .png of what there is, and the figure."""
    paths = {key: path_of(args, name, key) for key in TOOLS}
    if not any(map(os.path.exists, paths.values())):
        return
    rows = [
        {
            "tool": TOOLS[key].label,
            **(read(path) if os.path.exists(path) else {"error": "not run"}),
        }
        for key, path in paths.items()
    ]
    folder = os.path.join(args.out, "tagging")
    os.makedirs(folder, exist_ok=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": f"python -m benchmarks.tagging --sets {name}",
        "rows": rows,
    }
    measure.write(os.path.join(folder, name + ".json"), record)
    figures.draw_set(folder, name)
    figures.draw_all(folder)


def main(argv=None):
    args = parse_arguments(argv)
    failures = 0 if args.figures else run(args)
    for name in args.sets:
        tabulate(args, name)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
