"""`python -m tests.fuzz_ops --calls N --seed S`: fuzzes every op.

Call i of seed S is always the same. What fails is printed as code that
repeats it; the exit status is 1 then. `--only I` prints and runs call I.
"""

import argparse
import collections
import functools
import os
import sys

# A test that imports this would pass them on to all processes it starts.
if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # oneDNN's allocator waits 10 s for memory before it says there is none.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tests.fuzz_ops import block_ops  # noqa: E402, F401
from tests.fuzz_ops import forks  # noqa: E402
from tests.fuzz_ops import index_ops  # noqa: E402, F401
from tests.fuzz_ops import linear_ops  # noqa: E402, F401
from tests.fuzz_ops import row_ops  # noqa: E402, F401
from tests.fuzz_ops import search_ops  # noqa: E402, F401
from tests.fuzz_ops import tree_ops  # noqa: E402, F401
from tests.fuzz_ops.calls import REFUSALS  # noqa: E402
from tests.fuzz_ops.calls import BrokenPromise  # noqa: E402, F401
from tests.fuzz_ops.calls import Call  # noqa: E402
from tests.fuzz_ops.calls import ops  # noqa: E402
from tests.fuzz_ops.calls import run  # noqa: E402
from tests.fuzz_ops.descriptions import DESCRIPTIONS  # noqa: E402
from tests.fuzz_ops.values import Draw  # noqa: E402
from tests.fuzz_ops.values import changed  # noqa: E402

BATCH = 2000
GRAPHS = 0.005


def op_names():
    """Of all ops of the library, as Python has them."""
    return sorted(
        name
        for name in dir(ops)
        if name.startswith("tfxclass_") and not name.endswith("_fallback")
    )


def draw_call(seed, number):
    """`(call, check, whether it must succeed)`."""
    random = np.random.default_rng([seed, number])
    names = op_names()
    name = names[int(random.integers(len(names)))]
    d = Draw(random)
    valid = DESCRIPTIONS[name].draw(d)
    args = dict(valid)
    for _ in range(int(random.choice([0, 1, 1, 1, 2, 3]))):
        key = list(args)[int(random.integers(len(args)))]
        args[key] = changed(args[key], random)
    call = Call(name, args, bool(random.random() < GRAPHS))
    same = all(args[key] is valid[key] for key in args)
    check = DESCRIPTIONS[name].check if has_dtypes(args, valid) else None
    return call, check, same and not d.wild


def has_dtypes(args, valid):
    """Whether the arrays have those of a valid call; TensorFlow may cast."""
    return all(
        np.asarray(args[key]).dtype == value.dtype
        for key, value in valid.items()
        if isinstance(value, (np.ndarray, np.generic))
    )


def try_call(seed, number):
    """`[op, outcome, what is wrong or None]`."""
    call, check, is_valid = draw_call(seed, number)
    try:
        run(call, check)
    except REFUSALS as e:
        wrong = f"a valid call was refused: {e}" if is_valid else None
        return [call.op, type(e).__name__, wrong]
    except Exception as e:
        # TensorFlow's word for lists whose types do not go together.
        if isinstance(e, AssertionError) and str(e) == "Unreachable":
            return [call.op, "AssertionError", None]
        return [call.op, "failed", f"{type(e).__name__}: {e}"]
    return [call.op, "done", None]


def fuzz(calls, seed, first=0):
    """Prints what fails and a summary; how many calls failed."""
    outcomes, failures = collections.Counter(), 0
    for start in range(first, first + calls, BATCH):
        numbers = range(start, min(start + BATCH, first + calls))
        jobs = [functools.partial(try_call, seed, i) for i in numbers]
        for place, result in forks.run_jobs(jobs):
            number = numbers[place]
            if isinstance(result, dict):
                result = judge_death(jobs[place], result["died"])
            _, outcome, wrong = result
            outcomes[outcome] += 1
            if wrong:
                failures += 1
                report(seed, number, wrong)
        print(f"{numbers[-1] + 1 - first} calls", file=sys.stderr, flush=True)
    print(", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    print(f"{calls} calls of {len(op_names())} ops, {failures} failures")
    return failures


def judge_death(job, how):
    """The result of a job that ended its process; it runs again, alone.

    While a thread of an index holds all memory, TensorFlow cannot even log our
    error, and ends. With more memory such a call is as good as any other.
    """
    if how == "hang":
        return ["?", how, how]
    ((_, result),) = forks.run_jobs([job], memory=8 * forks.MEMORY)
    if isinstance(result, dict):
        return ["?", how, how]
    return [*result[:1], "out of memory", result[2]]


def report(seed, number, wrong):
    """Another process draws the call: this one must not use TensorFlow."""
    print(f"\nCall {number} of seed {seed}: {wrong}", flush=True)
    job = functools.partial(lambda: draw_call(seed, number)[0].snippet())
    for _, text in forks.run_jobs([job]):
        print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_ops")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # each call in a graph is a new one
    missing = set(op_names()) - set(DESCRIPTIONS)
    if missing:
        sys.exit(f"These ops are not described: {sorted(missing)}")
    if args.only is not None:
        print(draw_call(args.seed, args.only)[0].snippet(), flush=True)
        print(try_call(args.seed, args.only))
        return
    sys.exit(1 if fuzz(args.calls, args.seed, args.first) else 0)


if __name__ == "__main__":
    main()
