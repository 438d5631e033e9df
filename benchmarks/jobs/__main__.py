"""Runs one job: python -m benchmarks.jobs NAME [arguments of the job].

Each job is a module of this folder with `main(argv)`. It reads public data,
trains and evaluates our model and the peers, and writes
`benchmarks/results/jobs/NAME.json`.
"""

import importlib
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names():
    """The jobs: modules of this folder without a leading underscore."""
    files = (name.removesuffix(".py") for name in os.listdir(FOLDER))
    return sorted(name for name in files if name[0] not in "_.")


def main(argv):
    """Runs the job `argv[0]` with the remaining arguments."""
    if not argv or argv[0] not in names():
        given = f"received {argv[0]!r}" if argv else "no name was given"
        sys.exit(f"Name a job ({given}). Available: {', '.join(names())}.")
    job = importlib.import_module(f"benchmarks.jobs.{argv[0]}")
    job.main(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
