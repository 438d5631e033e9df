"""CPU seconds of the same work with compiled and with fallback ops.

    python benchmarks/fallback.py

Each number comes from a process of its own, with one warm-up.
"""

import os

import measure

CLASSES, DIM, BATCH, STEPS = 100_000, 64, 256, 10
#: The head of a task, and whether it trains or answers.
TASKS = {
    "SampledSoftmax, uniform, 10 steps": ("uniform", True),
    "SampledSoftmax, auto, 10 steps": ("auto", True),
    "FullSoftmax, top_k of 256 rows": ("full", False),
}


def child(task, fallback):
    """CPU seconds of a task, the second time."""
    os.environ["TFXCLASS_FALLBACK"] = fallback
    import keras
    import numpy as np

    import tfxclass

    sampler, trains = TASKS[task]
    if sampler == "full":
        head = tfxclass.layers.FullSoftmax(CLASSES)
    else:
        head = tfxclass.layers.SampledSoftmax(CLASSES, 1_000, sampler)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    random = np.random.default_rng(0)
    count = STEPS * BATCH if trains else BATCH
    x = random.normal(size=(count, DIM)).astype("float32")
    y = random.integers(0, CLASSES, count)
    best = tfxclass.top_k(model, 10)
    for _ in range(2):
        with measure.Stopwatch() as clock:
            if trains:
                model.fit(x, y, batch_size=BATCH, verbose=0)
            else:
                best.predict(x, verbose=0)
    return clock.cpu


def main():
    measure.run_child(child)
    rows = []
    for task in TASKS:
        row = {"task": task}
        row["compiled_s"] = measure.ask(task, "0")
        row["fallback_s"] = measure.ask(task, "1")
        row["times"] = row["fallback_s"] / row["compiled_s"]
        rows.append(row)
        measure.save("fallback", rows)


if __name__ == "__main__":
    main()
