"""Runs what has no result yet: rates to choose from, then the final models."""

import glob
import json
import os
import tempfile
from typing import NamedTuple

from benchmarks import files
from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import fasttext_peer
from benchmarks.hierarchical import methods

HS, FULL = "fastText hs", "softmax"
#: fastText's methods and their losses.
FASTTEXT = {"fastText softmax": "softmax", HS: "hs"}
# Of LazyAdam and of fastText's SGD.
RATES = {"ours": (0.1, 0.3, 0.03, 0.01), "fastText": (1.0, 2.0, 0.5, 0.2)}
# The slowest last.
METHODS = [HS, *methods.METHODS, "fastText softmax"]


class Group(NamedTuple):
    """The jobs of a data set, which are its results' files.

    Attributes:
        folder: of the results.
        data: `data.Set`.
        epochs: int.
        fasttext: path of a Python with fastText, or None.
        dim: int, numbers of a word.
        evaluate_every: int, epochs between two scores of our models.
        seed: int, of fastText.
    """

    folder: str
    data: data_lib.Set
    epochs: int
    fasttext: str | None = None
    dim: int = methods.DIM
    evaluate_every: int = 1
    seed: int = 0

    def best_rate(self, method):
        """The one with the best macro-F1 on validation rows; all are tried."""
        data = data_lib.for_search(self.data)
        found = {
            rate: self._result(method, rate, "search", data)["curve"][-1]["f1"]
            for rate in RATES["fastText" if method in FASTTEXT else "ours"]
        }
        return max(found, key=found.get)

    def final(self, method, rate):
        return self._result(method, rate, "final", self.data)

    def _result(self, method, rate, kind, data):
        path = os.path.join(self.folder, f"{method}, {rate:g}, {kind}.json")

        def run():
            ask = self._of_fasttext if method in FASTTEXT else self._ours
            result = ask(method, rate, data)
            print(f"{path}: {result['curve'][-1]}", flush=True)
            return {**result, "method": method, "rate": rate}

        return measure.kept(path, run)

    def _ours(self, method, rate, data):
        return methods.run(
            method, data, rate, self.epochs, self.dim, self.evaluate_every
        )

    def _of_fasttext(self, method, rate, data):
        """As `methods.run`, with the end of the curve alone."""
        with tempfile.TemporaryDirectory() as folder:
            job = {
                "train": os.path.join(folder, "train.txt"),
                "test": os.path.join(folder, "test.txt"),
                "loss": FASTTEXT[method],
                "dim": self.dim,
                "rate": rate,
                "epochs": self.epochs,
                "seed": self.seed,
                "k": min(max(data.k, 10), data.num_classes),
            }
            write_text(job["train"], data.train, with_labels=True)
            write_text(job["test"], data.test, with_labels=False)
            path = os.path.join(folder, "job.json")
            with open(path, "w") as f:
                json.dump(job, f)
            result = measure.in_fresh_process(
                fasttext_peer.__file__, path, python=self.fasttext
            )
        if "error" in result:
            raise RuntimeError(f"fastText failed: {result['error']}")
        # Rows may have fewer than k labels; none where training diverged.
        predicted = files.padded(result.pop("predicted"))
        found = data_lib.scores(
            data.test.labels, predicted, data.num_classes, data.k
        )
        return {"curve": [{"epoch": self.epochs, **result, **found}]}


def write_text(path, rows, with_labels):
    """A row a line, in fastText's format."""
    with open(path, "w") as f:
        for ids, values, labels in zip(*rows):
            words = [f"w{i}" for i in ids[values > 0].tolist()]
            names = [f"__label__{c}" for c in labels[labels >= 0].tolist()]
            f.write(" ".join([*(names if with_labels else []), *words]) + "\n")


def rows_of(folder, size):
    """A row for each method with a result in the folder of a `Group`."""
    paths = glob.glob(os.path.join(glob.escape(str(folder)), "*, final.json"))
    # Of two rates the one that was chosen last.
    results = [measure.read(x) for x in sorted(paths, key=os.path.getmtime)]
    by_method = {result["method"]: result for result in results}
    curves = {name: result["curve"] for name, result in by_method.items()}
    rows = []
    for method, curve in sorted(curves.items()):
        row = {"n": size, "method": method, "rate": by_method[method]["rate"]}
        row |= curve[-1]
        if HS in curves:
            f1 = curves[HS][-1]["f1"]
            row["cpu_s_to_fasttext_hs_f1"] = seconds_to(curve, f1)
        if FULL in curves:
            row["softmax_cpu_s_to_f1"] = seconds_to(curves[FULL], row["f1"])
        rows.append(row)
    return rows


def seconds_to(curve, f1):
    """When a curve reaches `f1`, of the CPU; "" if it never does."""
    reached = [p["cpu_seconds"] for p in curve if p["f1"] >= f1]
    return reached[0] if reached else ""
