"""LSH tables: sampling a batch, building and refreshing, and a step with them.

    python benchmarks/lsh.py [num_classes ...]
    python benchmarks/lsh.py --figures
    python benchmarks/lsh.py --probability

Sampling: `LSHSampler.sample` for 256 queries in 128 dimensions, 6,700 classes
a step whatever the number of classes, 50 tables; rows and queries are normal.
A refresh hashes 100,000 touched rows again (half of the rows at most). Steps
are step_time.py's, at 670,091 classes or the greatest size asked for up to
that, mean over 1,000 steps with all refreshes.

`--probability` compares how often tables find a vector with the papers'
formula 1 - (1 - p^K)^L, where p is measured, too: 64 pairs of normal vectors
in 128 dimensions at each cosine, 40 draws of the functions.
"""

import json
import os
import sys
import time

import figure_style
import measure
import notes

BATCH, DIM, ACTIVE = 256, 128, 6700
KINDS = {
    "simhash, K=9": {"hash_family": "simhash", "num_hashes": 9},
    "sparse_simhash, K=9": {"hash_family": "sparse_simhash", "num_hashes": 9},
    "dwta, K=6": {"hash_family": "dwta", "num_hashes": 6},
}
LABELS = {
    "simhash, K=9": "SimHash, 9 functions a table",
    "sparse_simhash, K=9": "sparse SimHash, 9 functions a table",
    "dwta, K=6": "DWTA, 6 functions a table",
}
COLORS = dict(zip(KINDS, ("tab:purple", "tab:cyan", "tab:olive"), strict=True))
STEPS = (
    "keras_dense_adam",
    "tf_sampled_softmax_adam",
    "tf_sampled_softmax_sgd",
    "lsh_simhash_lazy_adam",
    "lsh_dwta_lazy_adam",
)


def seconds(work):
    """By the clock, and of this process's processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def make_sampler(kind, num_classes):
    import tensorflow as tf

    import tfxclass

    head = tfxclass.layers.LSHSoftmax(
        num_classes,
        min(ACTIVE, num_classes),
        sampler_options=KINDS[kind],
        kernel_initializer="zeros",
    )
    head.build((None, DIM))
    random = tf.random.Generator.from_seed(0)
    for start in range(0, num_classes, 100_000):
        ids = tf.range(start, min(start + 100_000, num_classes))
        rows = random.normal([len(ids), DIM])
        head.kernel.value.scatter_update(tf.IndexedSlices(rows, ids))
    return head, random


def child(kind, num_classes):
    import tensorflow as tf

    head, random = make_sampler(kind, num_classes)
    sampler, index = head.sampler, head.sampler.index
    build = seconds(head.rebuild)

    def refresh():
        # Begun at step 0 and waited for at step 1.
        for step in (0, 1):
            steps = (tf.constant(n, tf.int64) for n in (step, 10**9, 1))
            index.advance(head.kernel, *steps)

    touched = min(100_000, num_classes // 2)
    index.mark(tf.range(touched, dtype=tf.int64))
    refreshed = seconds(refresh)
    index.advance = lambda *args, **kwargs: None
    queries = random.normal([BATCH, DIM])
    labels = random.uniform([BATCH, 1], 0, num_classes, tf.int64)
    sample = tf.function(lambda: sampler.sample(queries, labels, head.kernel))
    found = sample().log_expected_count
    return {
        "sample_ms": measure.median_ms(sample, 30)["median_ms"],
        "build_s": build[0],
        "build_cpu_s": build[1],
        "refresh_s": refreshed[0],
        "refresh_cpu_s": refreshed[1],
        "tables_mb": index.state()["ready"].nbytes / 1e6,
        "from_tables": int(tf.reduce_sum(tf.cast(found == 0, tf.int64))),
    }


def pairs(cosine, count, random):
    """Two float32 `[count, DIM]` whose rows have this cosine."""
    import numpy as np

    a, b = random.normal(size=(2, count, DIM))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    b -= (a * b).sum(axis=1, keepdims=True) * a
    b /= np.linalg.norm(b, axis=1, keepdims=True)
    b = cosine * a + (1 - cosine**2) ** 0.5 * b
    return a.astype(np.float32), b.astype(np.float32)


def found_by_tables(family, num_hashes, num_tables, cosine):
    """How often one of the tables has two vectors in a bucket, a row."""
    import numpy as np

    from tfxclass.ops import lsh

    a, b = pairs(cosine, 64, np.random.default_rng(0))
    single, tables = [], []
    for seed in range(40):
        both = [
            lsh.hash_codes(x, 1, 2_000, hash=family, seed=seed).numpy()
            for x in (a, b)
        ]
        single.append((both[0] == both[1]).mean(axis=0))
        both = [
            lsh.hash_codes(
                x, num_hashes, num_tables, hash=family, seed=100 + seed
            ).numpy()
            for x in (a, b)
        ]
        tables.append((both[0] == both[1]).any(axis=0))
    # p depends on the pair for "dwta", and on its cosine alone for "simhash".
    p = np.mean(single, axis=0)
    formula = np.mean(1 - (1 - p**num_hashes) ** num_tables)
    return {"found": float(np.mean(tables)), "formula": float(formula)}


def probabilities():
    rows = []
    for family, hashes, tables in (
        ("simhash", 9, 50),
        ("dwta", 5, 350),
        ("dwta", 6, 400),
    ):
        for cosine in (0.0, 0.2, 0.4, 0.6, 0.8):
            row = found_by_tables(family, hashes, tables, cosine)
            row["difference"] = row["found"] - row["formula"]
            rows.append(
                {"family": family, "K": hashes, "L": tables, "cosine": cosine}
                | row
            )
            print(rows[-1], flush=True)
    measure.save("lsh_probability", rows)


def main(sizes):
    rows = []
    for num_classes in sizes:
        for kind in KINDS:
            result = measure.in_fresh_process(
                __file__, "--child", kind, num_classes
            )
            rows.append({"classes": num_classes, "what": kind, **result})
            print(rows[-1], flush=True)
    largest = max(n for n in sizes if n <= 670_091 or n == min(sizes))
    script = os.path.join(measure.FOLDER, "step_time.py")
    for method in STEPS:
        result = measure.in_fresh_process(script, "--child", method, largest)
        step = {"step_ms": result.pop("median_ms", "")}
        rows.append({"classes": largest, "what": method, **step, **result})
        print(rows[-1], flush=True)
    measure.save("lsh", rows)
    draw_figure(rows)


def draw_figure(rows):
    """The time to sample against the number of classes: the paper's Fig. 3."""

    def draw(axes):
        for kind, color in COLORS.items():
            own = [row for row in rows if row["what"] == kind]
            sizes = [row["classes"] for row in own]
            times = [row["sample_ms"] for row in own]
            axes.plot(sizes, times, "o-", label=LABELS[kind], color=color)
        axes.set(title=title_of(rows), xscale="log", ylim=(0, 3))
        figure_style.plain_ticks(axes.xaxis)

    measure.plot("lsh", draw, "number of classes", "ms to sample for a batch")


def title_of(rows):
    """The conclusion of the figure."""
    times = [row["sample_ms"] for row in rows if row["what"] in KINDS]
    return (
        f"Sampling takes {min(times):.1f} to {max(times):.1f} ms,\n"
        "whatever the number of classes"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        found = child(sys.argv[2], int(sys.argv[3]))
        print(json.dumps({**found, "peak_gb": measure.peak_gb()}))
    elif sys.argv[1:2] == ["--probability"]:
        probabilities()
    elif sys.argv[1:] == ["--figures"]:
        draw_figure(notes.results("lsh"))
    else:
        main([int(n) for n in sys.argv[1:]] or [100_000, 670_091, 2_000_000])
