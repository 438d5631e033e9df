"""Writes exports of some heads, with what the live models answer.

    python -m tests.versions.exports FOLDER

FOLDER gets a folder for each model: `1`, the SavedModel; `inputs.npz`, a
request; `expected.npz`, the ids and scores of the live model.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import tfxclass  # noqa: E402

CLASSES, DIM, TOP_K = 300, 8, 5
TEXTS = ["a red fox", "a grey hare", "eggs and milk", "flour and eggs"]
TAGS = [["animal", "red"], ["animal"], ["food", "egg"], ["food", "egg"]]


def heads():
    layers = tfxclass.layers
    return {
        "FullSoftmax": layers.FullSoftmax(CLASSES),
        "SampledSoftmax": layers.SampledSoftmax(CLASSES, num_sampled=100),
        "SelectiveSoftmax": layers.SelectiveSoftmax(CLASSES, num_sampled=100),
        "HierarchicalSoftmax": layers.HierarchicalSoftmax(
            CLASSES, counts=np.arange(1, CLASSES + 1)
        ),
    }


def export_head(head, folder):
    """Trains a step, exports, and asks the live model."""
    model = keras.Sequential([keras.Input([DIM], name="x"), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.1), loss=head.loss)
    x = np.random.default_rng(0).normal(size=(64, DIM)).astype(np.float32)
    model.fit(x, np.arange(64), verbose=0)
    tfxclass.export.saved_model(model, folder, top_k=TOP_K)
    ids, scores = tfxclass.top_k(model, TOP_K).predict(x, verbose=0)
    write(folder, {"x": x}, ids, scores)


def export_tagger(folder):
    tagger = tfxclass.text.Tagger(effort="fast", verbose=0).fit(TEXTS, TAGS)
    tagger.export(folder, k=2)
    answers = tagger.predict(TEXTS, k=2)
    (column,) = tagger.model.input
    ids = [[tagger.tags.index(tag) for tag, _ in row] for row in answers]
    scores = [[score for _, score in row] for row in answers]
    write(folder, {column: np.array(TEXTS, "S")}, ids, scores)


def write(folder, inputs, ids, scores):
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "expected.npz", ids=ids, scores=scores)


def main(folder):
    keras.utils.set_random_seed(0)
    for name, head in heads().items():
        export_head(head, folder / name)
    export_tagger(folder / "Tagger")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
