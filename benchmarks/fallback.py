"""CPU seconds of the same work with compiled and with fallback ops.

    python benchmarks/fallback.py [word ...]

Each number comes from a process of its own, with one warm-up where the work is
short. With words, only the tasks are measured that have one in their name; the
other rows of results/fallback.json stay.
"""

import os
import sys
import time

import measure

CLASSES, DIM, BATCH = 100_000, 64, 256


def _model(head):
    import keras

    import tfxclass

    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    return model


def _rows(steps=10):
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(steps * BATCH, DIM)).astype("float32")
    return x, random.integers(0, CLASSES, len(x))


def _steps(make_head):
    import tfxclass

    model = _model(make_head(tfxclass.layers))
    x, y = _rows()
    return lambda: model.fit(x, y, batch_size=BATCH, verbose=0)


def _answers(make_head):
    import tfxclass

    model = _model(make_head(tfxclass.layers))
    x, _ = _rows(1)
    best = tfxclass.top_k(model, 10)
    return lambda: best.predict(x, verbose=0)


#: A function that prepares the work and returns a function that does it.
TASKS = {
    "SampledSoftmax, uniform, 10 steps": lambda: _steps(
        lambda layers: layers.SampledSoftmax(CLASSES, 1_000, "uniform")
    ),
    "SampledSoftmax, auto, 10 steps": lambda: _steps(
        lambda layers: layers.SampledSoftmax(CLASSES, 1_000)
    ),
    "FullSoftmax, top_k of 256 rows": lambda: _answers(
        lambda layers: layers.FullSoftmax(CLASSES)
    ),
}


def child(task, fallback):
    """CPU seconds of a task, the second time where it is short."""
    os.environ["TFXCLASS_FALLBACK"] = fallback
    run = TASKS[task]()
    # What takes longer is run once: its first run is what a user waits for.
    if not task.startswith("Tagger"):
        run()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main():
    """Measures tasks and saves all rows."""
    measure.run_child(child)
    wanted = sys.argv[1:]
    for task in TASKS:
        if wanted and not any(word in task for word in wanted):
            continue
        row = {"task": task}
        row["compiled_s"] = measure.ask(task, "0")
        row["fallback_s"] = measure.ask(task, "1")
        row["times"] = row["fallback_s"] / row["compiled_s"]
        rows = measure.with_earlier("fallback", [row], ["task"])
        measure.save("fallback", rows)


if __name__ == "__main__":
    main()
