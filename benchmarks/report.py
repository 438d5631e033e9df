"""Writes RESULTS.md, pages/*.md and docs/papers: python benchmarks/report.py.

RESULTS.md is the index. Each page of pages/ answers a question: its answer is
in pages/answers/<page>.md, its tables are results/*.json. What a table says is
in a file with it, results/<name>.md, as notes.py reads it; for a figure
<name>_<part>.png of the comparison, in <name>_<part>.md. A table that no page
names is in the appendix. papers/*.md are the texts of docs/papers.
"""

import json
import os
import re

import measure
import notes

#: What tables call the methods of scripts.
METHODS = {
    "keras_dense_adam": "Keras `Dense`, Adam",
    "keras_dense_sgd": "Keras `Dense`, SGD",
    "keras_dense_adam_bf16": "Keras `Dense`, Adam, `mixed_bfloat16`",
    "tf_sampled_softmax_adam": "`tf.nn.sampled_softmax_loss`, Adam",
    "tf_sampled_softmax_sgd": "`tf.nn.sampled_softmax_loss`, SGD",
    "full_softmax_adam": "`FullSoftmax`, Keras Adam",
    "full_softmax_lazy_adam": "`FullSoftmax`, `LazyAdam`",
    "full_softmax_lazy_adam_bf16": "`FullSoftmax`, `mixed_bfloat16`",
    "sampled_uniform_lazy_adam": '`SampledSoftmax(sampler="uniform")`',
    "sampled_auto_lazy_adam": "`SampledSoftmax`, `LazyAdam`",
    "sampled_head_adam": "`SampledSoftmax`, `HeadAdam`",
    "selective_lazy_adam": "`SelectiveSoftmax`, rebuilds included",
    "lsh_simhash_lazy_adam": "`LSHSoftmax`, SimHash, refreshes included",
    "lsh_dwta_lazy_adam": "`LSHSoftmax`, DWTA, refreshes included",
    "small_uniform": '`SampledSoftmax(sampler="uniform")`',
    "small_auto": "`SampledSoftmax`",
}
TITLES = {
    "jobs/job_titles": "Job titles to occupations: taggers",
    "jobs/library_titles": "Subjects of library titles: taggers",
    "jobs/short_texts": "Readings of Japanese names: taggers",
    "jobs/library_titles_600000": "Subjects of library titles: all titles",
    "jobs/identities": "Characters as identities: each head at its best rate",
    "jobs/demo": "The demo: words by their descriptions",
    "jobs/two_towers": "Job titles to occupations: two towers and peers",
    "readme_optimizers": "README's example with other optimizers",
    "readme_step": "A training step of README's model, as a user runs it",
    "step_time_large": "A training step, 670,091 classes",
    "step_time": "A training step, fewer classes",
    "floors": "Training steps and their lower bounds",
    "exact_step": "The exact softmax: a training step in both policies",
    "mixed_policy": "The exact softmax: accuracy in both policies",
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
    "lsh": "LSH tables: the cost of a sample",
    "lsh_probability": "LSH tables: how often they find a vector",
    "hierarchical/eurlex57k": (
        "Hierarchical softmax, its trees and fastText: the n most frequent "
        "labels of EU law"
    ),
    "hierarchical/paper_settings": (
        "Hierarchical softmax: the settings of the paper's Table I"
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
    "local_sgd_speedup": "Local SGD: steps of K replicas to an accuracy",
    "local_sgd_training": "Local SGD: accuracy, time and bytes of K processes",
    "local_sgd_table_5": "Local SGD: accuracy of K replicas, 3,453 classes",
    "local_sgd_stages": "Local SGD: the stages of Theorem 2 on digits",
    "projected_steps": "Random projection: a step with 2,048-wide features",
    "recovery_digits": "Recovery on digits: a gradient step, and the dual",
    "recovery_trigram": "Recovery after usual training: King James trigrams",
    "recovery_trigram_epochs": (
        "Recovery on trigrams: the step's gain against epochs of slim training"
    ),
    "recovery_million": "Recovery of a million classes",
    "recovery": "Dual recovery: error against the projected width",
    "penn_treebank": "Random projection on Penn Treebank",
    "language_model": "Random projection on a language model",
    "language_model_small": "Recovery on a small language model",
    "verification": "Random projection: embedding quality on verses",
    "verification_small": "Recovery: embedding quality, every third verse",
    "verses": "Accuracy on verses: 31,077 classes, another translation kept",
    "small_rows": "Half-size rows and compact slots: accuracy",
    "dropmax": "DropMax: the paper's table, on data that can be had",
    "dropmax_retained": "DropMax: which classes are retained",
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
    "comparison/groups_lsh": "Classes in groups: the LSH paper's rule",
    "comparison/groups_sweeps": "Classes in groups: trees, tables, rebuilds",
    "comparison/groups_constant": "What a constant of AutoSampler would cost",
    "glyphs": "Characters as classes: CJK fonts of Debian, some kept",
    "glyphs_shared": "Characters as classes: one second moment for all rows",
    "glyphs_8000": "Characters as classes, twice as many steps",
    "comparison/verses": "The papers' methods: verses, 31,077 classes",
    "comparison/verses_steps": "The papers' methods in equal steps: verses",
    "comparison/verses_steps_papers": (
        "The papers' own settings in equal steps: verses"
    ),
    "comparison/eurlex57k_steps_papers": (
        "The papers' own settings in equal steps: EU law"
    ),
    "comparison/eurlex57k_lsh": "The LSH paper's rule at its best rate: EU law",
    "comparison/eurlex57k_steps_lsh": (
        "The LSH paper's rule in equal steps: EU law"
    ),
    "comparison/lsh_adapts": (
        "How samples of hash tables follow the softmax: EU law"
    ),
    "comparison/word2vec_steps_papers": (
        "The papers' own settings in equal steps: skip-gram"
    ),
    "comparison/eurlex57k_rates": (
        "The papers' methods, each at its best rate: EU law"
    ),
    "comparison/eurlex57k_steps_sweeps": (
        "The papers' methods with more and fewer classes: EU law"
    ),
    "comparison/eurlex57k_steps_selective": (
        "The selective softmax paper's own rules: EU law"
    ),
    "comparison/verses_steps_selective": (
        "The selective softmax paper's own rules: verses"
    ),
    "comparison/eurlex57k_steps_tau": (
        "HF-A's threshold, labels counted: EU law, three seeds"
    ),
    "comparison/labels_in_m": "HF-A with the labels in M: earlier runs",
    "comparison/open_set": "Verses that were never trained on",
    "comparison/one_percent": (
        "Why a few classes do not equal the full softmax: every third verse"
    ),
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
    "defaults/cells": "The default optimizer on 32 tasks",
    "defaults/kept_back": "The default optimizer on tasks that were kept back",
    "defaults/rates": "Fixed optimizers and rates on 32 tasks",
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
# Parts of a table's figures, a figure each.
PARTS = {
    "mb": "Against what a replica sent",
    "convergence": "Cross-entropy against training steps (figure 3)",
    "contours": "Three classes in a plane (figure 2)",
    "curves": "Precision at 1 against time and against iterations",
    "num_sampled": "Against the number of active classes",
    "overlap": "Against the overlap with the optimal selection",
    "index": "Against the settings of the indexes",
}
#: Pages: their title, and the tables that they have, in this order.
PAGES = {
    "which_head": (
        "Which head, optimizer and sampler",
        (
            "defaults/cells",
            "defaults/kept_back",
            "defaults/tuned",
            "defaults/rates",
            "defaults/rates_kept_back",
            "defaults/frequency",
            "defaults/embeddings",
            "defaults/samplers",
            "readme_optimizers",
            "comparison/groups",
            "glyphs",
            "jobs/identities",
            "jobs/demo",
        ),
    ),
    "how_fast": (
        "How fast",
        (
            "readme_step",
            "step_time_large",
            "floors",
            "step_time",
            "growth",
            "exact_step",
            "mixed_policy",
            "gpu_steps",
            "gpu",
            "lsh",
            "projected_steps",
            "hierarchical/step_time",
            "serving",
            "exact_answers",
            "hierarchical/serving",
            "selection",
            "forest",
            "fallback",
            "reader",
        ),
    ),
    "memory": (
        "How much memory",
        ("loss_memory", "small_rows", "widening", "sharded"),
    ),
    "tagging": (
        "Tagging",
        (
            "jobs/job_titles",
            "jobs/library_titles",
            "jobs/library_titles_600000",
            "jobs/short_texts",
            "tagging/bibtex",
            "tagging/delicious",
            "tagging/eurlex57k",
            "tagging/eurlex57k_xc",
            "tagging/reverse_dictionary",
            "long_tail/eurlex57k",
            "long_tail/reverse_dictionary",
        ),
    ),
    "recommendation": (
        "Recommendation and retrieval",
        ("jobs/next_item", "jobs/two_towers"),
    ),
    "scale": (
        "Many classes, devices and processes",
        (
            "ten_million",
            "scale",
            "mirrored",
            "processes",
            "local_sgd_processes",
            "growing_trees",
        ),
    ),
    "papers": (
        "The papers' own experiments",
        (
            "comparison/concentration",
            "comparison/verses_steps",
            "comparison/verses_steps_papers",
            "comparison/eurlex57k_steps",
            "comparison/eurlex57k_steps_papers",
            "comparison/eurlex57k_rates",
            "comparison/eurlex57k_steps_sweeps",
            "comparison/eurlex57k_steps_selective",
            "comparison/verses_steps_selective",
            "comparison/eurlex57k_steps_tau",
            "comparison/labels_in_m",
            "comparison/open_set",
            "comparison/one_percent",
            "comparison/word2vec_steps",
            "comparison/word2vec_steps_papers",
            "comparison/reverse_dictionary_steps",
            "comparison/eurlex57k_lsh",
            "comparison/eurlex57k_steps_lsh",
            "comparison/lsh_adapts",
            "lsh_probability",
            "comparison/groups_lsh",
            "verification",
            "verification_small",
            "penn_treebank",
            "language_model",
            "language_model_small",
            "recovery",
            "recovery_digits",
            "recovery_trigram",
            "recovery_trigram_epochs",
            "recovery_million",
            "local_sgd",
            "local_sgd_loss",
            "local_sgd_accuracy",
            "local_sgd_speedup",
            "local_sgd_training",
            "local_sgd_table_5",
            "local_sgd_stages",
            "hierarchical/eurlex57k",
            "hierarchical/paper_settings",
            "hierarchical/reverse_dictionary",
            "dropmax",
            "dropmax_retained",
        ),
    ),
}
APPENDIX = "appendix", "Other tables"
INDEX = os.path.join(measure.FOLDER, "RESULTS.md")
FOLDER = os.path.join(measure.FOLDER, "pages")
PAPERS = os.path.join(measure.FOLDER, "papers")
DOCS = os.path.join(os.path.dirname(measure.FOLDER), "docs", "papers")
_CIRCUMSTANCES = (
    "Medians, each method of a table in the same run, TensorFlow 2.21 with "
    "oneDNN on, unless a table says otherwise. The machines are shared: "
    "compare the rows of one table, not two tables."
)


def called(row):
    """A row with its method's name in words."""
    return {**row, "method": METHODS.get(row["method"], row["method"])}


def section(name, title):
    path = file_of(name, ".json")
    if not os.path.exists(path):
        told = NOT_RUN.get(name)
        return [f"## {title}", "", told, ""] if told else []
    with open(path) as f:
        record = json.load(f)
    rows = record["rows"]
    shown = [called(row) if "method" in row else row for row in rows]
    lines = [
        f"## {title}",
        "",
        *note(name, rows),
        *circumstances(record),
        "",
        measure.table(shown),
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
    if text is None:
        return []
    # Notes link to tables by their titles, and to docs as the index does.
    for page in _titles():
        for title in map(TITLES.get, tables_of(page)):
            link = f"](#{anchor(title)})"
            text = text.replace(link, f"]({page}.md#{anchor(title)})")
    return [text.replace("](../docs/", "](../../docs/"), ""]


def picture(name, title):
    if not os.path.exists(file_of(name, ".png")):
        return []
    return [f"![{title}](../results/{name}.png)", ""]


def tables_of(page):
    """The tables of a page, names in `TITLES`."""
    if page != APPENDIX[0]:
        return tuple(name for name in PAGES[page][1] if name in TITLES)
    placed = {name for _, names in PAGES.values() for name in names}
    return tuple(name for name in TITLES if name not in placed)


def answer(page):
    """The text of pages/answers/<page>.md, if there is one."""
    path = os.path.join(FOLDER, "answers", page + ".md")
    return [written(path), ""] if os.path.exists(path) else []


def written(path):
    """A text with its figures computed."""
    with open(path) as f:
        return notes.filled_from_files(f.read())


def page_text(page, title):
    lines = [f"# {title}", "", *answer(page), _CIRCUMSTANCES, ""]
    for name in tables_of(page):
        lines += section(name, TITLES[name])
    return "\n".join(lines)


def index():
    """What RESULTS.md holds: a title for each table, and where it is."""
    lines = [
        "# Measured",
        "",
        "Each page answers a question, and has the tables behind the answer. "
        "Each table names its command, its machine and its date. What the five "
        "papers claim, and how our runs agree, is in "
        "[docs/papers](../docs/papers/selective_softmax.md).",
        "",
    ]
    for page, title in _titles().items():
        lines += [f"## [{title}](pages/{page}.md)", ""]
        for name in tables_of(page):
            if section(name, TITLES[name]):
                link = f"pages/{page}.md#{anchor(TITLES[name])}"
                lines.append(f"- [{TITLES[name]}]({link})")
        lines.append("")
    return "\n".join(lines)


def _titles():
    titles = {page: title for page, (title, _) in PAGES.items()}
    return titles | dict([APPENDIX])


def anchor(title):
    """What a heading is linked by."""
    kept = re.sub(r"[^\w\- ]", "", title.lower())
    return kept.strip().replace(" ", "-")


def pages():
    """`{path: text}` of the index, of all pages, and of docs/papers."""
    found = {INDEX: index()}
    for page, title in _titles().items():
        found[os.path.join(FOLDER, page + ".md")] = page_text(page, title)
    for name in sorted(os.listdir(PAPERS)):
        text = written(os.path.join(PAPERS, name))
        found[os.path.join(DOCS, name)] = text + "\n"
    return found


def main():
    for path, text in pages().items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
