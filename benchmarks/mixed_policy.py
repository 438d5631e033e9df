"""The exact softmax on EU laws, in float32 and with `mixed_bfloat16`.

    python benchmarks/mixed_policy.py [DATA]

DATA is ../shared/data by default. The model of examples/lsh_extreme_text.py
with a `FullSoftmax`, 3 seeds. It shows whether products of bfloat16 numbers,
which processors with AMX have, cost accuracy.
"""

import os
import sys
import time

import measure

POLICIES, SEEDS, EPOCHS = ("float32", "mixed_bfloat16"), 3, 4


def child(policy, seed, folder):
    """Loss, accuracy and CPU seconds of a training."""
    sys.path.insert(0, os.path.dirname(measure.FOLDER))
    import keras
    import numpy as np

    import tfxclass
    from examples import lsh_extreme_text
    from tfxclass.ops import exact_softmax

    keras.mixed_precision.set_dtype_policy(policy)
    keras.utils.set_random_seed(seed)
    train, held = (
        tfxclass.data.XCFile(os.path.join(folder, name))
        for name in ("train.xc.txt.xz", "dev.xc.txt.xz")
    )
    head = tfxclass.layers.FullSoftmax(train.num_classes)
    model = lsh_extreme_text.make_model(train, train.counts()[0], head)
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    start = time.process_time()
    losses = model.fit(train.batches(256), epochs=EPOCHS, verbose=0)
    cpu_s = time.process_time() - start
    ids, _ = tfxclass.top_k(model, 5).predict(held.batches(512), verbose=0)
    labels = [
        set(row) for _, batch in held.batches(512) for row in np.asarray(batch)
    ]
    right = [
        [i in those for i in row]
        for row, those in zip(ids, labels, strict=True)
    ]
    return {
        "bfloat16_products": policy != "float32"
        and exact_softmax.multiplies_bfloat16(),
        "loss": losses.history["loss"][-1],
        "precision_at_1": np.mean(right, axis=0)[0],
        "precision_at_5": np.mean(right),
        "cpu_s": cpu_s,
    }


def main():
    """Means over seeds, and the range of each figure."""
    folder, *_ = sys.argv[1:] or [os.path.join("..", "shared", "data")]
    folder = os.path.abspath(os.path.join(folder, "eurlex57k"))
    cases = [
        {"policy": policy, "seed": seed, "folder": folder}
        for seed in range(SEEDS)
        for policy in POLICIES
    ]
    *_, found = measure.rows_of(child, cases)
    rows = []
    for policy in POLICIES:
        runs = [row for row in found if row["policy"] == policy]
        row = {"policy": policy, "seeds": SEEDS}
        row["bfloat16_products"] = runs[0]["bfloat16_products"]
        for name in ("loss", "precision_at_1", "precision_at_5", "cpu_s"):
            values = [run[name] for run in runs]
            row[name] = sum(values) / SEEDS
            row[f"{name}_range"] = max(values) - min(values)
        rows.append(row)
    measure.save("mixed_policy", rows)


if __name__ == "__main__":
    main()
