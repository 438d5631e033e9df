"""Writes RESULTS.md from results/*.json: python benchmarks/report.py.

What the figures say is in a file beside them, results/<name>.md, as notes.py
reads it; for a figure <name>_<part>.png of the comparison, in <name>_<part>.md.
"""

import json
import os

import measure
import notes

TITLES = {
    "jobs/job_titles": "Job titles to occupations: taggers",
    "jobs/library_titles": "Subjects of library titles: taggers",
    "jobs/demo": "The demo: words by their descriptions",
    "jobs/two_towers": "Job titles to occupations: two towers and peers",
    "readme_optimizers": "README's example with other optimizers",
    "step_time_large": "A training step, 670,091 classes",
    "step_time": "A training step, fewer classes",
    "exact_step": "The exact softmax: a training step in both policies",
    "fallback": "Compiled and fallback ops: CPU seconds of the same work",
    "growth": "Growth with the number of classes",
    "loss_memory": "The exact loss: time and memory",
    "growing_trees": "New classes in trees, before any training",
    "ten_million": "Ten and thirty million classes on one machine",
    "selection": "Exact selection of the 100 best for 256 queries",
    "forest": "Hashing forest against annoy, 1M clustered rows",
    "serving": "Serving: exported models, exact and approximate",
    "widening": "Exact answers: float32 from smaller numbers",
    "exact_answers": "Exact answers of exports, by the layout of the rows",
    "reader": "Reading the extreme-classification text format",
    "lsh": "LSH tables: sampling, refreshing, and a step with them",
    "hierarchical/eurlex57k": (
        "Hierarchical softmax, its trees and fastText: the n most frequent "
        "labels of EU law"
    ),
    "hierarchical/reverse_dictionary": (
        "Hierarchical softmax and fastText: reverse dictionary, 147,306 words"
    ),
    "hierarchical/step_time": "Hierarchical softmax: a training step",
    "hierarchical/serving": (
        "Hierarchical softmax: a query of the exported model, one core"
    ),
    "mirrored": "MirroredStrategy: one device and two",
    "sharded": "ShardedSoftmax: memory of a replica and what it receives",
    "processes": "Two workers, and two with parameter servers",
    "scale": "Plans against processes",
    "local_sgd": "Local SGD: what a replica sends in a step",
    "local_sgd_processes": "Local SGD: what two workers send in a step",
    "local_sgd_loss": "Local SGD: loss on digits, four replicas",
    "local_sgd_accuracy": "Local SGD: accuracy of K replicas, 10,359 classes",
    "cluster": "The cluster index: build, query and recall",
    "projected_steps": "Random projection: a step with 2,048-wide features",
    "recovery_digits": "Recovery on digits: a gradient step, and the dual",
    "recovery_trigram": "Recovery after usual training: King James trigrams",
    "recovery_trigram_epochs": (
        "Recovery on trigrams: the step's gain against epochs of slim training"
    ),
    "recovery_million": "Recovery of a million classes",
    "recovery": "Dual recovery: error against the projected width",
    "language_model": "Random projection on a language model",
    "language_model_small": "Recovery on a small language model",
    "verification": "Random projection: embedding quality on verses",
    "verification_small": "Recovery: embedding quality, every third verse",
    "verses": "Accuracy on verses: 31,077 classes, another translation kept",
    "small_rows": "Half-size rows and compact slots: accuracy",
    "catch_up": "Lazy Adam with skipped steps applied later: accuracy",
    "dropmax": "DropMax: the paper's table, on data that can be had",
    "long_tail/eurlex57k": "Losses for long tails: EU law, 4,271 labels",
    "long_tail/reverse_dictionary": (
        "Losses for long tails: reverse dictionary, 147,306 words"
    ),
    "tagging/bibtex": "Linear taggers: Bibtex, 159 labels",
    "tagging/delicious": "Linear taggers: Delicious, 983 labels",
    "tagging/eurlex57k": "Linear taggers: EURLEX57K, title and text",
    "tagging/eurlex57k_xc": "Linear taggers: EURLEX57K, the XC file",
    "tagging/reverse_dictionary": (
        "Linear taggers: the reverse dictionary, 147,306 words"
    ),
    "jobs/next_item": "The next item of sessions and of users",
    "reverse_dictionary": "Equal epochs on 147,306 words: selective and full",
    "comparison/concentration": (
        "How few classes carry the softmax and its gradient (HF-A, Fig. 1)"
    ),
    "comparison/groups": "Classes in groups: selection and uniform draws",
    "comparison/groups_sweeps": "Classes in groups: trees, tables, rebuilds",
    "comparison/groups_optimizers": (
        "Classes in groups: optimizers of class rows"
    ),
    "comparison/row_moves": "Classes in groups: how far a step moves rows",
    "comparison/text_optimizers": "Text: optimizers of class rows",
    "comparison/groups_constant": "What a constant of AutoSampler would cost",
    "glyphs": "Characters as classes: CJK fonts of Debian, some kept",
    "glyphs_shared": "Characters as classes: one second moment for all rows",
    "glyphs_8000": "Characters as classes, twice as many steps",
    "comparison/verses": "The papers' methods: verses, 31,077 classes",
    "comparison/verses_steps": "The papers' methods in equal steps: verses",
    "comparison/eurlex57k": "The papers' methods: EU law, 4,271 labels",
    "comparison/eurlex57k_steps": "The papers' methods in equal steps: EU law",
    "comparison/word2vec": "The papers' methods: skip-gram, 12,261 words",
    "comparison/word2vec_steps": (
        "The papers' methods in equal steps: skip-gram"
    ),
    "comparison/reverse_dictionary": (
        "The papers' methods: reverse dictionary, 147,306 words"
    ),
    "comparison/reverse_dictionary_steps": (
        "The papers' methods in equal steps: reverse dictionary"
    ),
    "defaults/cells": "The default optimizer on 30 tasks",
    "defaults/kept_back": "The default optimizer on tasks that were kept back",
    "defaults/rates": "Fixed optimizers and rates on 30 tasks",
    "defaults/rates_kept_back": (
        "Fixed optimizers and rates on tasks that were kept back"
    ),
    "defaults/tuned": "Optimizers at the best rate of each task",
    "defaults/frequency": "Optimizers by the frequency of the classes",
    "defaults/embeddings": "Embeddings by Adam and by Adagrad",
    "defaults/samplers": "Samplers with the default optimizer",
    "gpu": "CUDA kernels on a GPU",
    "gpu_steps": "Training steps on a GPU",
}
# Said where there is no file.
NOT_RUN = {
    "gpu": "Not run: `make gpu-test` on a machine with a GPU measures it."
}
# Parts of the comparison and of DropMax's table, a figure each.
PARTS = {
    "steps": "Against steps",
    "mb": "Against what a replica sent",
    "convergence": "Error on validation rows against training steps",
    "retain": "Mean retain probabilities of test rows, by their class",
    "curves": "Precision at 1 against time and against iterations",
    "num_sampled": "Against the number of active classes",
    "overlap": "Against the overlap with the optimal selection",
    "index": "Against the settings of the indexes",
}
PAGE = os.path.join(measure.FOLDER, "RESULTS.md")


def section(name, title):
    path = file_of(name, ".json")
    if not os.path.exists(path):
        told = NOT_RUN.get(name)
        return [f"## {title}", "", told, ""] if told else []
    with open(path) as f:
        record = json.load(f)
    rows = record["rows"]
    lines = [
        f"## {title}",
        "",
        *note(name, rows),
        *circumstances(record),
        "",
        measure.table(rows),
        "",
    ]
    lines += picture(name, title)
    for part, part_title in PARTS.items():
        shown = picture(f"{name}_{part}", part_title)
        if shown:
            of_part = note(f"{name}_{part}", rows)
            lines += [f"### {part_title}", "", *of_part, *shown]
    return lines


def circumstances(record):
    """Lines that say how the rows were measured; each its own, if it does."""
    told = [row.get("measured", record) for row in record["rows"]] or [record]
    lines = [f"`{x['command']}`, {x['date']}, {x['machine']}." for x in told]
    return list(dict.fromkeys(lines))


def file_of(name, ending):
    return os.path.join(measure.RESULTS, name + ending)


def note(name, rows):
    text = notes.note(name, rows)
    return [] if text is None else [text, ""]


def picture(name, title):
    if not os.path.exists(file_of(name, ".png")):
        return []
    return [f"![{title}](results/{name}.png)", ""]


def page():
    """What RESULTS.md holds."""
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
    return "\n".join(lines)


def main():
    text = page()
    with open(PAGE, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
