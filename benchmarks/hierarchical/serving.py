"""A query of an exported tree model: raw text to the best classes, one core.

The weights are trained on nothing but the labels' own words: each class is
named by three of 20,000 words, and the model learns to find it by them. So the
tree is as sure of the answers as a trained one, which the search depends on.
"""

import json
import os
import sys
import tempfile

import numpy as np

from benchmarks import measure
from benchmarks.hierarchical import tables

NUM_CLASSES = 147_306
WORDS, DIM, K, QUERIES = 20_000, 100, 10, 200
EPOCHS = 3


def make_model(num_classes, names):
    import keras

    import tfxclass

    words = [f"w{i}" for i in range(WORDS)]
    text = keras.layers.TextVectorization(
        vocabulary=words, output_sequence_length=8
    )
    vectors = np.random.default_rng(1).normal(size=(WORDS, 32))
    tree = tfxclass.trees.clustered(vectors[names].sum(axis=1))
    inputs = keras.Input([], dtype="string", name="text")
    ids = text(inputs)
    values = keras.ops.cast(ids > 0, "float32")
    features = tfxclass.layers.SparseDense(
        WORDS + 2, DIM, use_bias=False, kernel_initializer="random_normal"
    )(ids, values)
    head = tfxclass.layers.HierarchicalSoftmax(num_classes, tree)
    model = keras.Model(inputs, head(features))
    model.compile(tfxclass.optimizers.LazyAdam(0.02), loss=head.loss)
    return model


def train_and_export(num_classes, folder):
    import tensorflow as tf

    import tfxclass

    random = np.random.default_rng(0)
    names = random.integers(0, WORDS, (num_classes, 3))
    model = make_model(num_classes, names)
    texts = np.array([" ".join(f"w{i}" for i in row) for row in names])
    data = tf.data.Dataset.from_tensor_slices((texts, np.arange(num_classes)))
    batches = data.shuffle(num_classes, seed=0).batch(1024)
    model.fit(batches, epochs=EPOCHS, verbose=0)
    asked = random.permutation(num_classes)[:QUERIES]
    export = tfxclass.export.saved_model(
        model, folder, top_k=K, example_inputs=texts[asked[:8]]
    )
    ids, _ = tfxclass.top_k(model, K).predict(
        tf.constant(texts[asked]), verbose=0
    )
    return export, texts[asked].tolist(), ids


def ask(export, texts):
    """Times of single queries in ms, and the ids; on one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    serve = tf.saved_model.load(export).signatures["serving_default"]
    asked = [tf.constant([text]) for text in texts]
    at, ids = iter(asked * 3), []
    found = measure.median_ms(lambda: serve(text=next(at)), 2 * len(asked))
    for text in asked:
        ids.append(serve(text=text)["ids"].numpy()[0].tolist())
    return {**found, "ids": ids}


def main(out, num_classes):
    with tempfile.TemporaryDirectory() as folder:
        export, texts, exact = train_and_export(num_classes, folder)
        path = os.path.join(folder, "queries.json")
        with open(path, "w") as f:
            json.dump([export, texts], f)
        found = measure.in_fresh_process("-m", __spec__.name, path)
    row = {"classes": num_classes, **found}
    if "ids" in found:
        ids = np.array(row.pop("ids"))
        same = (ids[:, :, None] == exact[:, None, :]).any(axis=2)
        row[f"recall_at_{K}"] = float(same.mean())
    os.makedirs(out, exist_ok=True)
    tables.save(os.path.join(out, "serving.json"), [row])


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with open(sys.argv[1]) as f:
        print(json.dumps(ask(*json.load(f))))
