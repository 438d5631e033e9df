"""Asks fasttext_peer.py, which runs in another Python."""

import json
import os
import tempfile

from benchmarks import files
from benchmarks import measure
from benchmarks.hierarchical import fasttext_peer
from benchmarks.hierarchical.data import scores
from benchmarks.hierarchical.methods import DIM

METHODS = {"fastText softmax": "softmax", "fastText hs": "hs"}


def write_text(path, rows, with_labels):
    """A row a line, in fastText's format."""
    with open(path, "w") as f:
        for ids, values, labels in zip(*rows):
            words = [f"w{i}" for i in ids[values > 0].tolist()]
            names = [f"__label__{c}" for c in labels[labels >= 0].tolist()]
            f.write(" ".join([*(names if with_labels else []), *words]) + "\n")


def run(method, data, rate, epochs, python, dim=DIM, seed=0):
    """As `methods.run`, with the end of the curve alone."""
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "train": os.path.join(folder, "train.txt"),
            "test": os.path.join(folder, "test.txt"),
            "loss": METHODS[method],
            "dim": dim,
            "rate": rate,
            "epochs": epochs,
            "seed": seed,
            "k": min(max(data.k, 10), data.num_classes),
        }
        write_text(job["train"], data.train, with_labels=True)
        write_text(job["test"], data.test, with_labels=False)
        path = os.path.join(folder, "job.json")
        with open(path, "w") as f:
            json.dump(job, f)
        result = measure.in_fresh_process(
            fasttext_peer.__file__, path, python=python
        )
    if "error" in result:
        raise RuntimeError(f"fastText failed: {result['error']}")
    # Rows may have fewer than k labels; none where training diverged.
    predicted = files.padded(result.pop("predicted"))
    found = scores(data.test.labels, predicted, data.num_classes, data.k)
    return {"curve": [{"epoch": epochs, **result, **found}]}
