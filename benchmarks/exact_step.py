"""The exact softmax: a training step and its memory, in both policies.

    python benchmarks/exact_step.py [num_classes]

Batch 256, 128 dimensions, one Dense(128) before the head, as step_time.py;
each method in a fresh process. Rows that are in results/exact_step.json are not
measured again. `cpu_ms` is the time of all threads together: on a machine that
others use, too, it says more than the clock's.
"""

import json
import sys
import time

import measure
import step_time

METHODS = (
    "keras_dense_adam",
    "keras_dense_adam_bf16",
    "full_softmax_adam",
    "full_softmax_lazy_adam",
    "full_softmax_lazy_adam_bf16",
)
REPEATS = 7


def child(method, num_classes):
    """`mixed_bfloat16` where the name says so, float32 otherwise."""
    import keras

    is_half = method.endswith("_bf16")
    policy = "mixed_bfloat16" if is_half else "float32"
    keras.mixed_precision.set_dtype_policy(policy)
    step = step_time.make_step(method.removesuffix("_bf16"), num_classes)
    for _ in range(2):
        step()
    start = time.process_time()
    found = measure.median_ms(step, REPEATS, warmup=0)
    cpu_ms = (time.process_time() - start) * 1e3 / REPEATS
    return {**found, "cpu_ms": cpu_ms, "peak_gb": measure.peak_gb()}


def main(num_classes):
    rows = measure.finished("exact_step")
    done = {(row["classes"], row["method"]) for row in rows}
    for method in METHODS:
        if (num_classes, method) in done:
            continue
        found = measure.in_fresh_process(
            __file__, "--child", method, num_classes
        )
        rows.append({"classes": num_classes, "method": method, **found})
        measure.save("exact_step", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2], int(sys.argv[3]))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 670_091)
