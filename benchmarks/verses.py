"""Accuracy on verses: 31,077 classes, three translations to learn from.

    python benchmarks/verses.py DATA [method ...] [--epochs 12]

DATA is a folder with kjv, asv, dar and ylt as `verse<TAB>text` .tsv.xz files.
The fourth translation (ylt) is the test. Encoder: mean of 128-wide word
embeddings, plain or idf-weighted. Each method in a fresh process: accuracy and
training time after each epoch, of the clock and of the CPU, which other jobs on
the machine hardly change.
"""

import argparse
import json
import time

import measure
import numpy as np
from verses_data import LENGTH
from verses_data import load

DIM, BATCH, RATE = 128, 256, 3e-3
WORD_DROPOUT = 0.5
FULL, SELECTIVE = "FullSoftmax", "SelectiveSoftmax"
# name: (head, head options, optimizer, idf-weighted)
METHODS = {
    "full dot": (FULL, {}, "adam", False),
    "full cosine": (FULL, {"similarity": "cosine"}, "adam", False),
    "full cosine idf": (FULL, {"similarity": "cosine"}, "adam", True),
    "selective cosine": (
        SELECTIVE,
        {"similarity": "cosine", "num_sampled": 2048},
        "lazy",
        False,
    ),
    "selective cosine, dense adam": (
        SELECTIVE,
        {"similarity": "cosine", "num_sampled": 2048},
        "adam",
        False,
    ),
    "selective cosine idf": (
        SELECTIVE,
        {"similarity": "cosine", "num_sampled": 2048},
        "lazy",
        True,
    ),
    "selective cosine, the paper's": (
        SELECTIVE,
        {
            "similarity": "cosine",
            "num_sampled": 2048,
            "sampler_options": {
                "neighbor_fraction": 1.0,
                "correct_fill": False,
                "num_candidates": None,
            },
        },
        "lazy",
        False,
    ),
    "sampled uniform cosine": (
        "SampledSoftmax",
        {"similarity": "cosine", "num_sampled": 2048},
        "lazy",
        False,
    ),
}


def make_model(method, num_classes, idf):
    import keras

    import tfxclass

    name, options, optimizer, weighted = METHODS[method]
    inputs = keras.Input([LENGTH], dtype="int32")
    vectors = keras.layers.Embedding(len(idf), DIM)(inputs)
    weights = idf if weighted else (idf > 0).astype(np.float32)
    table = keras.layers.Embedding(
        len(idf), 1, weights=[weights[:, None]], trainable=False
    )
    weight = table(inputs)
    if weighted:
        # Rare words weigh most and would be learned by heart.
        weight = keras.layers.Dropout(WORD_DROPOUT)(weight)
    total = keras.ops.sum(vectors * weight, axis=1)
    features = total / (keras.ops.sum(weight, axis=1) + 1e-6)
    head = getattr(tfxclass.layers, name)(num_classes, seed=0, **options)
    model = keras.Model(inputs, head(features))
    made = {
        "adam": lambda: keras.optimizers.Adam(RATE),
        "lazy": lambda: tfxclass.optimizers.LazyAdam(RATE),
    }[optimizer]()
    model.compile(made, loss=head.loss)
    return model


def child(folder, method, epochs):
    import keras

    import tfxclass

    keras.utils.set_random_seed(0)
    x, y, test_x, test_y, idf = load(folder)
    model = make_model(method, int(test_y.max()) + 1, idf)
    answer = tfxclass.top_k(model, k=1)
    seconds, cpu_seconds, history = 0.0, 0.0, []
    for _ in range(epochs):
        start, cpu_start = time.perf_counter(), time.process_time()
        model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
        seconds += time.perf_counter() - start
        cpu_seconds += time.process_time() - cpu_start
        ids, _ = answer.predict(test_x, batch_size=512, verbose=0)
        accuracy = float((ids[:, 0] == test_y).mean())
        history.append([seconds, cpu_seconds, accuracy])
    return {"history": history}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    if args.child:
        found = child(args.data, args.methods[0], args.epochs)
        print(json.dumps(found))
        return
    rows, curves = [], {}
    for method in args.methods:
        command = [args.data, method, "--epochs", args.epochs, "--child"]
        found = measure.in_fresh_process(__file__, *command)
        if "error" in found:
            rows.append({"method": method, "error": found["error"]})
            continue
        curves[method] = found["history"]
        row = {"method": method, "epochs": args.epochs}
        for epoch in sorted({1, 2, args.epochs}):
            row[f"accuracy_{epoch}"] = curves[method][epoch - 1][2]
        seconds, cpu_seconds, _ = curves[method][-1]
        rows.append({**row, "seconds": seconds, "cpu_seconds": cpu_seconds})
        print(rows[-1], flush=True)
    measure.save("verses", rows)

    def draw(axes):
        for method, history in curves.items():
            _, cpu_seconds, accuracy = zip(*history, strict=True)
            axes.plot(cpu_seconds, accuracy, ".-", label=method)

    measure.plot("verses", draw, "training, seconds of CPU", "accuracy, ylt")


if __name__ == "__main__":
    main()
