"""EU laws in the order of time: a tagger that grows, and new ones.

    python -m benchmarks.jobs.laws_by_year FOLDER

FOLDER has EURLEX57K as it was published (`laws` of `benchmarks.jobs.tags`). The
earlier half of the laws are learned, and then five batches, one after another.
The laws of the next batch are asked each time. `never again` has learned the
first half alone, and `new fit` learns all laws so far anew.
"""

import os
import warnings

from benchmarks import measure
from benchmarks.jobs import tags
from tfxclass_text import Tagger

NAME, BATCHES, KS = "jobs/laws_by_year", 5, (1, 3, 5)
METHODS = ("never again", "partial_fit", "new fit")


def read(folder):
    """Lists of `(title, text, concepts)`: the first half, and six batches."""
    laws = []
    for part in ("train", "dev", "test"):
        columns, concepts, numbers = tags.laws(os.path.join(folder, part))
        laws += zip(numbers, columns["title"], columns["text"], concepts)
    rows = [row[1:] for row in sorted(laws)]
    half = len(rows) // 2
    size = half // (BATCHES + 1)
    starts = range(half, half + (BATCHES + 1) * size, size)
    return [rows[:half], *(rows[start : start + size] for start in starts)]


def columns_of(rows):
    titles, texts, concepts = map(list, zip(*rows, strict=True))
    return {"title": titles, "text": texts}, concepts


def child(folder, method):
    first, *batches = read(folder)
    rows, learned, tagger = [], list(first), Tagger(effort="fast", verbose=0)
    for number, (own, asked) in enumerate(zip([[], *batches], batches)):
        learned += own
        with measure.Stopwatch() as watch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not own or method == "new fit":
                tagger.fit(*columns_of(learned))
            elif method == "partial_fit":
                tagger.partial_fit(*columns_of(own))
        texts, concepts = columns_of(asked)
        answers = tagger.predict(texts, k=max(KS))
        best = [[tag for tag, _ in row] for row in answers]
        found = tags.scores(
            best, list(map(set, concepts)), [x for *_, x in learned], KS, False
        )
        row = {"batch": number} | {f"P@{k}": found[f"P@{k}"] for k in KS}
        rows.append({**row, "CPU s": round(watch.cpu, 1)})
    return [{**row, "GB": round(measure.peak_gb(), 2)} for row in rows]


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, first=["folder"])
    rows = []
    for method in METHODS:
        found = measure.ask(args.folder, method)
        rows += [{"method": method, **row} for row in found]
        measure.save(NAME, rows)


if __name__ == "__main__":
    main()
