"""The tagger next to Omikuji, PECOS, napkinXC, LibMultiLabel and fastText.

    python -m benchmarks.tagging [--sets ...] [--tools ...]
    python -m benchmarks.tagging --figures

Each tool trains in a process of its own (on one thread, but for ours), in an
environment that is made when it is first needed (benchmarks/cache/tagging).
What has a result is not run again, so that the comparison may be stopped and
resumed. A tool that cannot be installed or fails is told of in the table.
`--figures` draws the committed rows.
"""

import argparse
import json
import os
import subprocess
import sys

import numpy as np

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.tagging import sets as sets_lib
from benchmarks.tagging import tools as tools_lib
from benchmarks.tagging.tools import TOOLS
from tfxclass import metrics

PEER = os.path.join(os.path.dirname(__file__), "peer.py")
MODULE = "benchmarks.tagging.ours"


def run(name, tools, data):
    """Trains what has no result yet; the number of failures."""
    failures = 0
    for tool in tools:
        path = path_of(name, tool)
        if os.path.exists(path) and "error" not in read(path):
            continue
        result = run_one(name, tool, data)
        if result is None:
            continue
        measure.write(path + ".part", result)
        os.replace(path + ".part", path)
        failures += "error" in result
        print(name, tool, result, flush=True)
    return failures


def path_of(name, tool):
    """The result of a tool on a set."""
    return os.path.join(tools_lib.CACHE, name, f"{tool}.json")


def read(path):
    with open(path) as f:
        return json.load(f)


def run_one(name, tool, folder):
    """The result of a job, a dict; `{"error": line}`; None if not tried."""
    cache = os.path.join(tools_lib.CACHE, name)
    os.makedirs(cache, exist_ok=True)
    rows = os.path.join(cache, "rows.npz")
    if not os.path.exists(rows):
        sets_lib.prepare(name, folder, rows)
    data = np.load(rows)
    if data["num_labels"] > TOOLS[tool].most_labels:
        return None
    answers = os.path.join(cache, f"{tool}.npz")
    try:
        python = tools_lib.python_of(TOOLS[tool])
    except tools_lib.NotInstalled as e:
        return {"error": f"not installed: {e}"}
    command = [python, PEER, tool, rows, answers]
    is_ours = not TOOLS[tool].packages
    if is_ours:
        command = [python, "-m", MODULE, tool, name, folder, answers]
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


def rows_of(name):
    """The table of a set: all tools, what was not run included."""
    rows = []
    for key, tool in TOOLS.items():
        path = path_of(name, key)
        found = read(path) if os.path.exists(path) else {"error": "not run"}
        rows.append({"tool": tool.label, **found})
    return rows


def draw(name):
    """<set>.png: P@1 and P@5 of the tools, best first, with CPU seconds."""
    rows = measure.finished(f"tagging/{name}")
    rows = [row for row in rows if "cpu_s" in row]
    figure, axes = figure_style.new_figure(rows=2, width=5.6, height=3.7)
    for axis, measured in zip(axes, ("P@1", "P@5")):
        for row in sorted(rows, key=lambda row: row[measured]):
            is_ours = row["tool"].startswith("Tagger")
            color = "tab:blue" if is_ours else "lightgray"
            axis.barh(row["tool"], 100 * row[measured], color=color)
            axis.text(
                0,
                row["tool"],
                f" {100 * row[measured]:.1f} %, {row['cpu_s']:,.3g} s",
                va="center",
                color="white" if is_ours else "black",
                fontsize=9,
            )
        axis.grid(visible=False)
        axis.tick_params(axis="y", length=0, labelsize=10)
        axis.set_xlabel(f"{measured} in percent, CPU seconds of training")
    best = max(rows, key=lambda row: row["P@1"])["tool"]
    title = f"{sets_lib.SETS[name].title}: {best} has the highest P@1"
    path = os.path.join(measure.RESULTS, "tagging", name + ".png")
    figure_style.save(figure, path, title)


def main(argv=None):
    """Trains the tools and saves their rows; 1 where a tool failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--sets", nargs="+", choices=sets_lib.SETS, default=[*sets_lib.SETS])
    add("--tools", nargs="+", choices=TOOLS, default=[*TOOLS])
    add("--figures", action="store_true", help="run nothing, only draw")
    args = parser.parse_args(argv)
    failures = 0
    for name in args.sets:
        if not args.figures:
            failures += run(name, args.tools, args.data)
            command = f"python -m benchmarks.tagging --sets {name}"
            rows = rows_of(name)
            measure.save(f"tagging/{name}", rows, command=command)
            if not any("cpu_s" in row for row in rows):
                continue
        draw(name)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
