"""What class rows in bfloat16 and compact slots cost in accuracy.

    python -m benchmarks.small_rows DATA [set ...] [--seeds 1]

Uniform sampled softmax and `LazyAdam` on the sets of the comparison, their
encoders and rates, a few epochs: float32, `kernel_dtype="bfloat16"`, compact
slots (`second_moment="row"`, `slot_dtype="bfloat16"`), and both. The batches,
the first weights and the samples are the same in all four. Each run has a
process of its own. A run that has its row is not repeated. Deviations are
between seeds.
"""

import argparse
import json
import os
import sys
import tempfile

from benchmarks import measure

EPOCHS = {"verses": 4.0, "eurlex57k": 3.0, "reverse_dictionary": 1.0}
KINDS = {
    "float32": ("float32", False),
    "both": ("bfloat16", True),
    "bfloat16 rows": ("bfloat16", False),
    "compact slots": ("float32", True),
}
NAME = "small_rows"


def make_model(data, set_up, kind, seed):
    import tfxclass
    from benchmarks.comparison import model as models

    kernel_dtype, compact_slots = KINDS[kind]
    sampled = min(set_up.num_sampled, data.num_classes)
    options = {}
    if set_up.scale:
        options = {"similarity": "cosine", "scale": set_up.scale}
    head = tfxclass.layers.SampledSoftmax(
        data.num_classes,
        sampled,
        seed=seed,
        kernel_dtype=kernel_dtype,
        **options,
    )
    model = models.make_model(data, set_up, head)
    small = {"second_moment": "row", "slot_dtype": "bfloat16"}
    optimizer = tfxclass.optimizers.LazyAdam(
        set_up.learning_rate, **(small if compact_slots else {})
    )
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return model


def child(name, path, kind, seed):
    """The row of a run, a dict."""
    import keras
    import tensorflow as tf

    from benchmarks.comparison import rows
    from benchmarks.comparison import train
    from benchmarks.comparison.sets import SETS

    keras.utils.set_random_seed(seed)
    data, set_up = rows.load(path), SETS[name]
    model = make_model(data, set_up, kind, seed)
    source = train.batches(data, set_up.batch_size, seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    steps = round(EPOCHS[name] * data.train.num_rows / set_up.batch_size)
    clock = train.Stopwatch()
    for _ in range(steps):
        x, y = next(source)
        with clock:
            step(x, y)
    search = train.make_search(model, data.num_classes)
    found = train.precisions(search, data)
    return {
        "precision@1": found["precision@1"],
        "precision@5": found["precision@5"],
        "accuracy@10": found["accuracy@10"],
        "cpu_s": clock.cpu,
    }


def run(name, folder, seeds):
    """Adds the rows of a set that are missing."""
    from benchmarks.comparison import sets

    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "data.npz")
        for kind in KINDS:
            key = {"set": name, "rows and slots": kind, "seeds": seeds}
            done = measure.finished(NAME)
            if any(key.items() <= row.items() for row in done):
                continue
            if not os.path.exists(path):
                sets.prepare(name, folder, path)
            lines = [
                measure.in_fresh_process(
                    "-m", "benchmarks.small_rows", "--child", name, path,
                    kind, seed,
                )
                for seed in range(seeds)
            ]  # fmt: skip
            row = measure.of_seeds(lines)
            print(key, row, flush=True)
            if "error" not in row:
                row = {**key, "epochs": EPOCHS[name], **row}
                measure.save(NAME, [*measure.finished(NAME), row])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("sets", nargs="*", default=list(EPOCHS))
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    for name in args.sets:
        run(name, args.data, args.seeds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:5], int(sys.argv[5]))))
    else:
        main()
