"""Writes RESULTS.md from results/*.json: python benchmarks/report.py."""

import json
import os

import measure

TITLES = {
    "step_time_large": "A training step, 670,091 classes",
    "step_time": "A training step, fewer classes",
    "growth": "Growth with the number of classes",
    "loss_memory": "The exact loss: time and memory",
    "selection": "Exact selection of the 100 best for 256 queries",
    "forest": "Hashing forest against annoy, 1M clustered rows",
    "lsh": "LSH tables: sampling, refreshing, and a step with them",
    "verses": "Accuracy on verses: 31,077 classes, another translation kept",
}
PAGE = os.path.join(measure.FOLDER, "RESULTS.md")


def section(name, title):
    path = os.path.join(measure.RESULTS, name + ".json")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        record = json.load(f)
    lines = [f"## {title}", ""]
    if record["note"]:
        lines += [record["note"], ""]
    lines += [
        f"`{record['command']}`, {record['date']}, {record['machine']}.",
        "",
        measure.table(record["rows"]),
        "",
    ]
    if os.path.exists(os.path.join(measure.RESULTS, name + ".png")):
        lines += [f"![{title}](results/{name}.png)", ""]
    return lines


def main():
    lines = [
        "# Measured",
        "",
        "Medians, each method of a table in the same run, TensorFlow 2.21 "
        "with oneDNN on. The machine is a shared one: read the ratios. "
        "What the figures mean, and what fell short, is under each title "
        "where it needs saying.",
        "",
    ]
    for name, title in TITLES.items():
        lines += section(name, title)
    with open(PAGE, "w") as f:
        f.write("\n".join(lines))


if __name__ == "__main__":
    main()
