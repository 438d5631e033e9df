"""What class rows in bfloat16 and compact slots cost in accuracy.

    python -m benchmarks.small_rows DATA [set ...]

Uniform sampled softmax and `LazyAdam` on the sets of the comparison, their
encoders and rates, a few epochs: float32, `kernel_dtype="bfloat16"`, compact
slots (`second_moment="row"`, `slot_dtype="bfloat16"`), and both. The batches,
the first weights and the samples are the same in all four.
"""

import keras

import tfxclass
from benchmarks import measure
from benchmarks.comparison import sets
from benchmarks.comparison import train

EPOCHS = {"verses": 4.0, "eurlex57k": 3.0, "reverse_dictionary": 1.0}
KINDS = ("float32", "both", "bfloat16 rows", "compact slots")


def make_model(data, set_up, kind):
    """A compiled model of a set; `kind` is of `KINDS`."""
    options, small = {}, {}
    if set_up.scale:
        options["similarity"] = tfxclass.layers.Cosine(scale=set_up.scale)
    if kind in ("both", "bfloat16 rows"):
        options["kernel_dtype"] = "bfloat16"
    if kind in ("both", "compact slots"):
        small = {"second_moment": "row", "slot_dtype": "bfloat16"}
    sampled = min(set_up.num_sampled, data.num_classes)
    head = tfxclass.layers.SampledSoftmax(
        data.num_classes, sampled, "uniform", seed=0, **options
    )
    rate = set_up.learning_rate
    return train.make_model(data, set_up, head, rate, **small)


def child(name, kind, folder):
    keras.utils.set_random_seed(0)
    data, set_up = sets.load(name, folder), sets.SETS[name]
    model = make_model(data, set_up, kind)
    source = train.batches(data, set_up.batch_size, 0)
    epochs = EPOCHS.get(name, 1.0)
    steps = round(epochs * data.train.num_rows / set_up.batch_size)
    seconds = measure.train(model, source, steps)
    search = train.make_search(model, data.num_classes)
    found = train.precisions(search, data)
    names = ("precision@1", "precision@5", "accuracy@10")
    figures = {name: found[name] for name in names}
    return {"epochs": epochs, **figures, "cpu_s": seconds}


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, first=["data", "sets"], sets=list(EPOCHS))
    rows = []
    for name in args.sets:
        for kind in KINDS:
            found = measure.ask(name, kind, args.data)
            rows.append({"set": name, "rows and slots": kind, **found})
            measure.save("small_rows", rows)


if __name__ == "__main__":
    main()
