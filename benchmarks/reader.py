"""Rows a second of the extreme-classification reader, against peers.

    python benchmarks/reader.py [FILE]

FILE is a data set in the extreme-classification text format; by default
eurlex57k's training file beside the checkout. Each method in a fresh process
reads all of it three times. `cpu_s` is of one pass, all threads: other jobs on
the machine hardly change it. What the data feed is a step at batch 256, which
takes some 10 ms: 25,000 rows a second.
"""

import json
import lzma
import os
import statistics
import sys
import time

import measure
import numpy as np

FILE = "../shared/data/eurlex57k/train.xc.txt.xz"
BATCH = 256


def decompression(path):
    with lzma.open(path) as f:
        while f.read(1 << 20):
            pass


def plain_python(path):
    """The parser one would write in an afternoon: padded NumPy batches."""
    with lzma.open(path, "rt") as f:
        f.readline()
        while rows := [row for _, row in zip(range(BATCH), f, strict=False)]:
            parts = [row.rstrip("\n").split(" ") for row in rows]
            pairs = [[p.split(":") for p in row[1:]] for row in parts]
            width = max(len(row) for row in pairs)
            ids = np.zeros((len(rows), width), np.int64)
            values = np.zeros((len(rows), width), np.float32)
            for i, row in enumerate(pairs):
                ids[i, : len(row)] = [int(p[0]) for p in row]
                values[i, : len(row)] = [float(p[1]) for p in row]
            labels = [[int(c) for c in row[0].split(",")] for row in parts]
            padded = np.full((len(rows), max(map(len, labels))), -1)
            for i, row in enumerate(labels):
                padded[i, : len(row)] = row


def sklearn_svmlight(path):
    """All of the file at once, as a CSR matrix and tuples of labels."""
    from sklearn.datasets import load_svmlight_file

    with lzma.open(path) as f:
        _, num_features, _ = map(int, f.readline().split())
        load_svmlight_file(
            f, n_features=num_features, multilabel=True, zero_based=True
        )


def batches(path, **options):
    import tfxclass

    for _ in tfxclass.data.XCFile(path).batches(BATCH, **options):
        pass


def counts(path):
    import tfxclass

    tfxclass.data.XCFile(path).counts()


METHODS = {
    "decompression alone": decompression,
    "plain Python, batches": plain_python,
    "sklearn load_svmlight_file, all at once": sklearn_svmlight,
    "XCFile.batches": batches,
    "XCFile.batches, shuffled": lambda path: batches(
        path, shuffle_buffer_size=10_000
    ),
    "XCFile.counts": counts,
}


def child(method, path):
    read = METHODS[method]
    read(path)  # imports, tracing
    times, cpu = [], []
    for _ in range(3):
        start, cpu_start = time.perf_counter(), time.process_time()
        read(path)
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    with lzma.open(path) as f:
        num_rows = int(f.readline().split()[0])
    return {
        "rows_per_s": num_rows / statistics.median(times),
        "cpu_s": statistics.median(cpu),
        "peak_gb": measure.peak_gb(),
    }


def main(path):
    rows = []
    for method in METHODS:
        found = measure.in_fresh_process(__file__, "--child", method, path)
        rows.append({"method": method, **found})
        print(rows[-1], flush=True)
    measure.save("reader", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:])))
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    elif os.path.exists(FILE):
        main(FILE)
    else:
        print(f"Left out: no {FILE}. Usage: python benchmarks/reader.py FILE")
