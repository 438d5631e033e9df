"""The models: of this library, and of fastText; what has no result runs."""

import json
import os
import tempfile
from typing import NamedTuple

import keras
import numpy as np

import tfxclass
from benchmarks import files
from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import fasttext_peer
from tfxclass import trees

BATCH, STEPS_PER_EXECUTION = 512, 8
LABEL_DIM = 64
#: name: (tree, multi_label, use_bias); None is the full softmax.
OURS = {
    "softmax": None,
    "hs huffman, one label drawn": ("huffman", "pick_one", False),
    "hs huffman": ("huffman", "all", False),
    "hs clustered": ("clustered", "all", False),
    "hs clustered, wide": ("wide", "all", False),
    "plt huffman": ("huffman", "plt", True),
    "plt clustered": ("clustered", "plt", True),
    "plt clustered, wide": ("wide", "plt", True),
}
HS, FULL = "fastText hs", "softmax"
#: fastText's methods and their losses.
FASTTEXT = {"fastText softmax": "softmax", HS: "hs"}
# Of LazyAdam and of fastText's SGD.
RATES = {"ours": (0.1, 0.3, 0.03, 0.01), "fastText": (1.0, 2.0, 0.5, 0.2)}
# The slowest last.
METHODS = [HS, *OURS, "fastText softmax"]


def make_tree(name, data):
    if name == "huffman":
        labels = data.train.labels
        return trees.huffman(
            np.bincount(labels[labels >= 0], minlength=data.num_classes)
        )
    options = {"arity": 16, "leaf_size": 32} if name == "wide" else {}
    return trees.clustered(label_vectors(data), **options)


def label_vectors(data):
    """The mean TF-IDF of the rows of each label, in a random projection."""
    ids, values, labels = data.train
    counts = np.bincount(ids[values > 0], minlength=data.num_words)
    idf = np.log(len(ids) / np.maximum(counts, 1))
    parts = [slice(i, i + BATCH) for i in range(0, len(ids), BATCH)]
    batches = (
        ({"feature_ids": ids[at], "feature_values": values[at]}, labels[at])
        for at in parts
    )
    return trees.class_vectors(
        batches,
        data.num_words,
        data.num_classes,
        dim=LABEL_DIM,
        feature_weights=idf,
    )


def make_model(method, data, rate, epochs, dim):
    if OURS[method] is None:
        head = tfxclass.layers.FullSoftmax(data.num_classes)
    else:
        tree, multi_label, use_bias = OURS[method]
        head = tfxclass.layers.HierarchicalSoftmax(
            data.num_classes,
            make_tree(tree, data),
            multi_label=multi_label,
            use_bias=use_bias,
            seed=0,
        )
    ids = keras.Input([None], dtype="int64")
    values = keras.Input([None])
    features = tfxclass.layers.SparseDense(
        data.num_words,
        dim,
        use_bias=False,
        # As fastText's.
        kernel_initializer=keras.initializers.RandomUniform(
            -1 / dim, 1 / dim, seed=0
        ),
    )(ids, values)
    model = keras.Model([ids, values], head(features))
    steps = epochs * -(-len(data.train.ids) // BATCH)
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    model.compile(
        tfxclass.optimizers.LazyAdam(schedule),
        loss=head.loss,
        steps_per_execution=STEPS_PER_EXECUTION,
    )
    return model


class Group(NamedTuple):
    folder: str  # of the results, in the cache
    data: data_lib.Set
    epochs: int
    trained: tuple  # methods; of others there is what was kept
    fasttext: str | None = None  # a Python with fastText
    dim: int = 100  # numbers of a word
    evaluate_every: int = 1  # epochs between two scores of our models
    seed: int = 0  # of fastText

    def best_rate(self, method):
        """The one with the best macro-F1 on validation rows; all are tried."""
        data = data_lib.for_search(self.data)

        def score_of(rate):
            found = self._result(method, rate, "search", data)
            return found and found["curve"][-1]["f1"]

        rates = RATES["fastText" if method in FASTTEXT else "ours"]
        return measure.best_rate(rates, score_of)[0]

    def final(self, method, rate):
        if rate is not None:
            return self._result(method, rate, "final", self.data)

    def _result(self, method, rate, kind, data):
        of_peer = method in FASTTEXT

        def run(_):
            train = self._of_fasttext if of_peer else self._ours
            result = train(method, rate, data)
            return {**result, "method": method, "rate": rate}

        runs = method in self.trained and (self.fasttext or not of_peer)
        job = f"{method}, {rate:g}, {kind}"
        return measure.once(self.folder, job, run=run if runs else None)

    def _ours(self, method, rate, data):
        """The curve: seconds of training, with the tree and tracing; scores."""
        keras.utils.set_random_seed(0)
        with measure.Stopwatch() as clock:
            model = make_model(method, data, rate, self.epochs, self.dim)
        best = tfxclass.top_k(model, _answers_of(data))
        curve = []
        for epoch in range(1, self.epochs + 1):
            with clock:
                model.fit(
                    list(data.train[:2]), data.train.labels, BATCH, verbose=0
                )
            if epoch % self.evaluate_every and epoch < self.epochs:
                continue
            ids, _ = best.predict(
                list(data.test[:2]), batch_size=BATCH, verbose=0
            )
            point = {"seconds": clock.wall, "cpu_seconds": clock.cpu}
            curve.append({"epoch": epoch, **point, **scores_of(data, ids)})
        return {"curve": curve}

    def _of_fasttext(self, method, rate, data):
        """As `_ours`, with the end of the curve alone."""
        with tempfile.TemporaryDirectory() as folder:
            job = {
                "train": os.path.join(folder, "train.txt"),
                "test": os.path.join(folder, "test.txt"),
                "loss": FASTTEXT[method],
                "dim": self.dim,
                "rate": rate,
                "epochs": self.epochs,
                "seed": self.seed,
                "k": _answers_of(data),
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
        point = {"epoch": self.epochs, **result}
        return {"curve": [point | scores_of(data, predicted)]}


def _answers_of(data):
    """How many labels are predicted for a row."""
    return min(max(data.k, 10), data.num_classes)


def scores_of(data, predicted):
    return data_lib.scores(
        data.test.labels, predicted, data.num_classes, data.k
    )


def write_text(path, rows, with_labels):
    """A row a line, in fastText's format."""
    with open(path, "w") as f:
        for ids, values, labels in zip(*rows):
            words = [f"w{i}" for i in ids[values > 0].tolist()]
            names = [f"__label__{c}" for c in labels[labels >= 0].tolist()]
            f.write(" ".join([*(names if with_labels else []), *words]) + "\n")


def rows_of(results, size):
    """A row for each method, of `{method: result}`; None is no result."""
    curves = {name: found["curve"] for name, found in results.items() if found}
    rows = []
    for method, curve in sorted(curves.items()):
        row = {"n": size, "method": method, "rate": results[method]["rate"]}
        row |= curve[-1]
        if HS in curves:
            row["cpu_s_to_fasttext_hs_f1"] = measure.seconds_to(
                curves[HS][-1]["f1"], [curve], "f1"
            )
        if FULL in curves:
            row["softmax_cpu_s_to_f1"] = measure.seconds_to(
                row["f1"], [curves[FULL]], "f1"
            )
        rows.append(row)
    return rows
