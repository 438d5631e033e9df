"""Training steps and their lower bounds, in turns on one machine.

    python benchmarks/floors.py [--turns 3]

Run it alone, and on each kind of processor: the rows of others stay. The
environment ONEDNN_MAX_CPU_ISA=AVX2 limits oneDNN and our ops. Batch 256, 128
dimensions, 670,091 classes, 6,700 sampled. Small steps: batch 128, 10,000
classes, 228 sampled, alone or 32 in one call, the last rows with one thread.

The floor is the time of three products at the rate of one large product (256 x
128 x 670,091), and the time to read and write class vectors and two moments
once at the rate of a copy. Steps on a sample move their logits, too, and are
means of 1,000, rebuilds of an index included. Rows are medians over the turns.
A goal bounds `ms` over the floor, the uniform step of the turn, or 1 ms.
"""

import statistics

import measure
import numpy as np
import step_time
import tensorflow as tf

CLASSES, SAMPLED = 670_091, 6_700
SMALL_CLASSES, SMALL_SAMPLED, SMALL_BATCH = 10_000, 228, 128
#: Row: its method, what it is divided by, and the most that it may be then.
ROWS = {
    "uniform": ("sampled_uniform_lazy_adam", "floor", 1.2),
    "auto": ("sampled_auto_lazy_adam", "uniform", None),
    "Selective": ("selective_lazy_adam", "uniform", 1.15),
    "LSH, SimHash": ("lsh_simhash_lazy_adam", "uniform", 1.2),
    "LSH, DWTA": ("lsh_dwta_lazy_adam", "uniform", 1.2),
    "exact, float32": ("full_softmax_lazy_adam", "floor", None),
    "exact, float32, kept": ("full_softmax_kept_lazy_adam", "floor", 1.12),
    "small, uniform": ("sampled_uniform_lazy_adam", "ms", 0.3),
    "small, auto": ("sampled_auto_lazy_adam", "ms", 0.45),
    "small, uniform, 32 a call": ("sampled_uniform_lazy_adam", "ms", None),
    "small, auto, 32 a call": ("sampled_auto_lazy_adam", "ms", None),
    "small, uniform, 32, 1 thread": ("sampled_uniform_lazy_adam", "ms", None),
    "small, auto, 32, 1 thread": ("sampled_auto_lazy_adam", "ms", None),
}


def rates():
    """GFLOP/s of a product, and GB/s that a copy reads and writes."""
    x, _ = step_time.random_batch(CLASSES)
    rows = tf.random.normal([CLASSES, step_time.DIM])
    product = measure.median_ms(
        lambda: tf.linalg.matmul(x, rows, transpose_b=True), 9
    )
    source = np.ones(2**27, np.float32)
    target = np.empty_like(source)
    copy = measure.median_ms(lambda: np.copyto(target, source), 9)
    flops = 2 * step_time.BATCH * step_time.DIM * CLASSES
    return {
        "gflops": flops / product["median_ms"] / 1e6,
        "gb_s": 2 * source.nbytes / copy["median_ms"] / 1e6,
    }


def floor_ms(row, found):
    """The floor of a row's step, at the `rates` found."""
    dim, batch, rows = step_time.DIM, step_time.BATCH, SAMPLED
    if row.startswith("small"):
        batch, rows = SMALL_BATCH, SMALL_SAMPLED
    rows = CLASSES if row.startswith("exact") else rows
    moved = 4 * (6 * rows * dim + 2 * batch * rows * (rows < CLASSES))
    products = 3 * 2 * batch * dim * rows / found["gflops"]
    return (products + moved / found["gb_s"]) / 1e6


def small_ms(row):
    if "1 thread" in row:
        tf.config.threading.set_inter_op_parallelism_threads(1)
    method, steps = ROWS[row][0], 32 if "32" in row else 1
    head = step_time.make_head(method, SMALL_CLASSES, SMALL_SAMPLED)
    optimizer = step_time.make_optimizer(method)
    model = step_time.make_model(head, optimizer, dense=False)
    batch = step_time.random_batch(SMALL_CLASSES, SMALL_BATCH)

    @tf.function
    def run():
        for _ in tf.range(steps) if steps > 1 else range(1):
            model.train_step(batch)

    found = measure.median_ms(run, 2000 // steps, warmup=200 // steps)
    return found["median_ms"] / steps


def child(row):
    if row == "rates":
        return rates()
    method = ROWS[row][0]
    if row.startswith("small"):
        return {"ms": small_ms(row)}
    if row.startswith("exact"):
        return {"ms": step_time.of_methods(CLASSES, method)["median_ms"]}
    step = step_time.make_step(method, CLASSES)
    step()
    return {"ms": measure.mean_ms(step, step_time.LONG_RUN)[0]}


def table(turns):
    """Rows of the results; `turns` are dicts of what `child` found."""
    found = []
    for row, (_, against, goal) in ROWS.items():
        times = [turn[row]["ms"] for turn in turns]
        floors = [floor_ms(row, turn["rates"]) for turn in turns]
        bases = {"floor": floors, "ms": [1.0] * len(turns)}
        bases["uniform"] = [turn["uniform"]["ms"] for turn in turns]
        ratios = [ms / base for ms, base in zip(times, bases[against])]
        found.append(
            {
                "processor": measure.machine().split(", ")[-1],
                "row": row,
                "ms": statistics.median(times),
                "floor_ms": statistics.median(floors),
                "over": against,
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "goal": goal or "",
            }
        )
    return found


def main():
    turns = []
    for _ in range(measure.arguments(__doc__, turns=3).turns):
        turns.append({row: measure.ask(row) for row in ["rates", *ROWS]})
        print(turns[-1]["rates"], flush=True)
        measure.save("floors", table(turns), keys=("processor", "row"))


if __name__ == "__main__":
    measure.run_child(child)
    main()
