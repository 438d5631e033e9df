"""Memory of long training, and of many models one after the other.

    python -m tests.support.memory_growth [--models 30] [--steps 2000]

Prints the resident memory of the process in MiB. Each model has a matrix of
100,000 x 64 (24.4 MiB) and as much again for each slot of its optimizer.
"""

import argparse
import gc
import re

import keras
import numpy as np

import tfxclass
from tfxclass import layers

CLASSES, DIM, BATCH = 100_000, 64, 32
HEADS = {
    "full": layers.FullSoftmax,
    "sampled": lambda n: layers.SampledSoftmax(n, num_sampled=1_000),
    "selective": lambda n: layers.SelectiveSoftmax(n, num_sampled=1_000),
    "lsh": lambda n: layers.LSHSoftmax(n, num_sampled=1_000),
    "hierarchical": lambda n: layers.HierarchicalSoftmax(n, tree="balanced"),
}


def resident():
    """MiB, int."""
    with open("/proc/self/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) // 1024


def train(make_head, steps):
    random = np.random.default_rng(0)
    rows = min(steps, 500) * BATCH
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, rows)
    head = make_head(CLASSES)
    model = keras.Sequential([keras.layers.Dense(DIM), head])
    optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    model.compile(optimizer, loss=head.loss)
    found = []
    for _ in range(max(steps // 500, 1)):
        model.fit(x, y, batch_size=BATCH, verbose=0)
        found.append(resident())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=HEADS)
    args = parser.parse_args()
    for name in args.heads:
        make_head = HEADS[name]
        after = []
        for _ in range(args.models):
            train(make_head, 2)
            keras.utils.clear_session(free_memory=True)
            gc.collect()
            after.append(resident())
        print(f"{name}: after models 1, 2, ...: {after}", flush=True)
        if name != "full":
            found = train(make_head, args.steps)
            print(f"{name}: after each 500 steps: {found}", flush=True)


if __name__ == "__main__":
    main()
