"""Accuracy on verses: 31,077 classes, three translations to learn from.

    python benchmarks/verses.py DATA [method ...] [--epochs 12]

DATA is a folder with kjv, asv, dar and ylt as `verse<TAB>text` .tsv.xz files.
The fourth translation (ylt) is the test. Encoder: mean of 128-wide word
embeddings, plain or idf-weighted. Each method in a fresh process: accuracy and
training time after each epoch, of the clock and of the CPU, which other jobs on
the machine hardly change. "--figures" alone draws the committed rows.
"""

import argparse
import json
import os
import sys
import time

import figure_style
import measure
import notes
import numpy as np
from verses_data import LENGTH
from verses_data import load

DIM, BATCH, RATE = 128, 256, 3e-3
WORD_DROPOUT = 0.5
FULL, SELECTIVE = "FullSoftmax", "SelectiveSoftmax"
SAMPLED = {"similarity": "cosine", "num_sampled": 2048}
# name: (head, head options, optimizer, idf-weighted)
METHODS = {
    "full dot": (FULL, {}, "adam", False),
    "full cosine": (FULL, {"similarity": "cosine"}, "adam", False),
    "full cosine idf": (FULL, {"similarity": "cosine"}, "adam", True),
    "selective cosine": (SELECTIVE, SAMPLED, "lazy", False),
    "selective cosine, dense adam": (SELECTIVE, SAMPLED, "adam", False),
    "selective cosine idf": (SELECTIVE, SAMPLED, "lazy", True),
    "selective cosine, the paper's": (
        SELECTIVE,
        {
            "similarity": "cosine",
            "sampler": {
                "num_sampled": 2048,
                "neighbor_fraction": 1.0,
                "correct_fill": False,
                "num_candidates": None,
            },
        },
        "lazy",
        False,
    ),
    "sampled uniform cosine": ("SampledSoftmax", SAMPLED, "lazy", False),
}

LABELS = {
    "full dot": "exact, dot product",
    "full cosine": "exact",
    "full cosine idf": "exact, weighted words",
    "selective cosine": "selective",
    "selective cosine, catch_up": "selective, late updates",
    "selective cosine, dense adam": "selective, dense Adam",
    "selective cosine idf": "selective, weighted words",
    "selective cosine, the paper's": "selective, paper's rule",
    "sampled uniform cosine": "sampled uniformly",
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
    if "sampler" in options:  # its arguments
        sampler = tfxclass.samplers.HashingForestSampler(
            seed=0, **options["sampler"]
        )
        options = {**options, "sampler": sampler}
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
    rows = []
    for method in args.methods:
        command = [args.data, method, "--epochs", args.epochs, "--child"]
        found = measure.in_fresh_process(__file__, *command)
        if "error" in found:
            rows.append({"method": method, "error": found["error"]})
            continue
        row = {"method": method, "epochs": args.epochs}
        for epoch in sorted({1, 2, args.epochs}):
            row[f"accuracy_{epoch}"] = found["history"][epoch - 1][2]
        seconds, cpu_seconds, _ = found["history"][-1]
        rows.append({**row, "seconds": seconds, "cpu_seconds": cpu_seconds})
        print(rows[-1], flush=True)
    measure.save("verses", rows)
    draw(rows)


def draw(rows):
    """verses.png: accuracy and CPU time of each method, best first."""
    rows = [row for row in rows if "error" not in row]
    last = f"accuracy_{rows[0]['epochs']}"
    rows = sorted(rows, key=lambda row: row[last])
    figure, axes = figure_style.new_figure(rows=2, height=3.4)
    names = [LABELS.get(row["method"], row["method"]) for row in rows]
    panels = {
        f"accuracy in percent after {rows[0]['epochs']} epochs": [
            100 * row[last] for row in rows
        ],
        "CPU seconds of training": [row["cpu_seconds"] for row in rows],
    }
    for one, (label, values) in zip(axes, panels.items()):
        bars = one.barh(names, values, color="lightgray")
        digits = 1 if max(values) <= 100 else 0
        one.bar_label(bars, [f" {value:,.{digits}f}" for value in values])
        one.set(xlabel=label, xlim=(0, 1.25 * max(values)))
        one.grid(visible=False)
    path = os.path.join(measure.RESULTS, "verses.png")
    figure_style.save(figure, path, _conclusion(rows, last))


def _conclusion(rows, last):
    found = {row["method"]: row for row in rows}
    ours, full = found["selective cosine"], found["full cosine"]
    share = 100 * ours["cpu_seconds"] / full["cpu_seconds"]
    return (
        f"SelectiveSoftmax reaches {100 * ours[last]:.0f} % as the exact "
        f"softmax does, in {share:.0f} % of its CPU time"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--figures"]:
        draw(notes.results("verses"))
    else:
        main()
