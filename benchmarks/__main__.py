"""Runs benchmarks one after the other: python -m benchmarks [name ...]."""

import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
ALL = (
    "step_time",
    "growth",
    "selection",
    "forest",
    "lsh",
    "loss_memory",
    "lazy_optimizers",
    "reader",
    "serving",
)


def main(names):
    unknown = set(names) - set(ALL)
    if unknown:
        sys.exit(f"No benchmark {sorted(unknown)}. There are: {ALL}")
    for name in names or ALL:
        print(f"== {name}", flush=True)
        script = os.path.join(FOLDER, name + ".py")
        subprocess.run([sys.executable, script], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
