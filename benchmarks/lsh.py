"""Hash tables: what a sample costs, and how often a class is found.

    python benchmarks/lsh.py [num_classes ...]
    python benchmarks/lsh.py --probability

Cost: CPU ms of `sampler.sample` on one thread, for 256 queries in 128
dimensions; class vectors and queries are normal. The rules take turns in one
process, so that other work on the machine changes their ratios little. Nothing
is built or probed for drift while time is taken. `--probability` compares how
often tables find a vector with the papers' formula, where p is measured, too.
"""

import statistics
import sys

import figure_style
import measure
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass.ops.library import ops

BATCH, DIM, ACTIVE = 256, 128, 6_700
PAPER = {"negatives": "sample", "neighbor_fraction": 1.0, "correction": "none"}
SIMHASH = {"num_hashes": 9, "num_tables": 50}
DWTA = {"hash_family": "dwta", "num_hashes": 6, "num_tables": 400}
ALL = {"bucket_size": None}
OURS = "ours, the default"
# Options of the tables, and of the sampler.
RULES = {
    "paper, SimHash K=9 L=50": ({**SIMHASH, **ALL}, PAPER),
    "paper, DWTA K=6 L=400": ({**DWTA, **ALL}, PAPER),
    "ours, all rows searched": (SIMHASH, {"query_fraction": 1.0}),
    OURS: (SIMHASH, {}),
}
MAX_DWTA = 20_000  # classes; 400 tables of more would take gigabytes
DRAWN = {
    "paper, SimHash K=9 L=50": "the paper's rule",
    "ours, all rows searched": "ours, all rows searched",
    OURS: "ours, one row in 16 searched",
}


def make_sampler(rule, num_classes, kernel):
    """`(sampler, CPU seconds to build its tables)`."""
    of_tables, options = RULES[rule]
    sampler = tfxclass.samplers.LSHSampler(
        num_classes if rule.startswith("paper") else ACTIVE,
        tfxclass.samplers.LSHTables(**of_tables, rebuild_interval=50),
        **options,
    )
    head = tfxclass.layers.LSHSoftmax(
        num_classes, sampler=sampler, kernel_initializer="zeros"
    )
    head.build((None, DIM))
    sampler = head.sampler
    with measure.Stopwatch() as clock:
        sampler.index.build(kernel)
    sampler.index.advance = lambda *args, **kwargs: None
    return sampler, clock.cpu


def child(num_classes):
    measure.use_one_thread()
    random = tf.random.Generator.from_seed(0)
    kernel = tf.Variable(random.normal([num_classes, DIM]))
    queries = random.normal([BATCH, DIM])
    labels = random.uniform([BATCH, 1], 0, num_classes, tf.int64)
    rows, samples = [], {}
    for rule in RULES:
        if "DWTA" in rule and num_classes > MAX_DWTA:
            continue
        sampler, spent = make_sampler(rule, num_classes, kernel)
        row = {"rule": rule, "build_cpu_s": spent}
        row["tables_mb"] = sampler.index.state()["ready"].nbytes / 1e6
        samples[rule] = tf.function(
            lambda s=sampler: s.sample(queries, labels, kernel)
        )
        mask = samples[rule]().mask
        row["classes_per_row"] = ACTIVE
        if mask is not None:
            row["classes_per_row"] = float(mask.numpy().sum(axis=1).mean())
        rows.append(row)
    times = {rule: [] for rule in samples}
    for _ in range(10 if num_classes < 500_000 else 4):
        for rule, sample in samples.items():
            with measure.Stopwatch() as clock:
                sample()
            times[rule].append(1e3 * clock.cpu)
    for row in rows:
        own = times[row["rule"]]
        ratios = [a / b for a, b in zip(own, times[OURS], strict=True)]
        row["cpu_ms"] = statistics.median(own)
        row["times_ours"] = statistics.median(ratios)
    return rows


def pairs(cosine, count, random):
    """Two float32 `[count, DIM]` whose rows have this cosine."""
    a, b = random.normal(size=(2, count, DIM))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    b -= (a * b).sum(axis=1, keepdims=True) * a
    b /= np.linalg.norm(b, axis=1, keepdims=True)
    b = cosine * a + (1 - cosine**2) ** 0.5 * b
    return a.astype(np.float32), b.astype(np.float32)


def found_by_tables(family, num_hashes, num_tables, cosine):
    """How often one of the tables has two vectors in a bucket, a row."""

    def codes(x, num_hashes, num_tables, seed):
        sizes = {"num_hashes": num_hashes, "num_tables": num_tables}
        return ops.tfxclass_lsh_hash(x, seed, hash=family, **sizes).numpy()

    a, b = pairs(cosine, 64, np.random.default_rng(0))
    single, tables = [], []
    for seed in range(40):
        both = [codes(x, 1, 2_000, seed) for x in (a, b)]
        single.append((both[0] == both[1]).mean(axis=0))
        both = [codes(x, num_hashes, num_tables, 100 + seed) for x in (a, b)]
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
    measure.save("lsh_probability", rows)


def main():
    cases = measure.cases(classes=measure.numbers(20_000, 100_000, 670_091))
    rows = measure.compare("lsh", child, cases)
    lines = []
    for rule, label in DRAWN.items():
        own = [row for row in rows if row["rule"] == rule]
        x, y = ([row[key] for row in own] for key in ("classes", "cpu_ms"))
        lines.append((x, y, {"marker": "o", "label": label}))
    figure_style.curves(
        lines,
        measure.result_path("lsh.png"),
        "A cut of the buckets keeps the cost of a sample",
        xlabel="number of classes",
        ylabel="CPU ms to sample for a batch of 256",
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--probability"]:
        probabilities()
    else:
        main()
