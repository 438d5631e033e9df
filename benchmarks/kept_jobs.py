"""Jobs of a benchmark, each in a process of its own; results are kept.

A job is a NamedTuple with a `path`, where its result is: a curve, whose points
tell "accuracy" and "cpu_s", and what else the process prints.
"""

import json
import os
import time

from benchmarks import measure


def path_of(folder, job):
    """Of the result: its fields tell a job from others; "" tells nothing."""
    fields = job._asdict().items()
    name = ",".join(f"{k}={v}" for k, v in fields if v != "")
    return os.path.join(folder, name + ".json")


def run(job, module, *arguments):
    """Runs `python -m module arguments... JOB`; a line about the result.

    An error leaves no result, so that the job is tried again.
    """
    text = json.dumps(job._asdict())
    found = measure.in_fresh_process("-m", module, *arguments, text)
    if "error" in found:
        return f"FAILED: {found['error']}"
    about = {
        "job": job._asdict(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
    }
    measure.write(job.path + ".part", {**about, **found})
    os.replace(job.path + ".part", job.path)
    last = found["curve"][-1]
    return f"accuracy {last['accuracy']:.3f}, {last['cpu_s']:.0f} s of CPU"


def pending(jobs):
    """Those without a result."""
    return [job for job in jobs if not os.path.exists(job.path)]


def run_all(jobs, module, *arguments, after=lambda: None):
    """Runs jobs, tells of each, and calls `after`; how many failed."""
    failed = 0
    for i, job in enumerate(jobs):
        told = run(job, module, *arguments)
        failed += told.startswith("FAILED")
        name = os.path.basename(job.path).removesuffix(".json")
        print(f"{i + 1}/{len(jobs)} {name}: {told}", flush=True)
        after()
    return failed


def read(jobs):
    """`(job, result)` of the jobs that have one, a list."""
    found = []
    for job in jobs:
        if os.path.exists(job.path):
            with open(job.path) as f:
                found.append((job, json.load(f)))
    return found
