"""No arguments of an op end the process: known calls, and random ones."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests.fuzz_ops import __main__ as fuzzer
from tests.fuzz_ops.calls import Call
from tests.fuzz_ops.calls import run
from tests.fuzz_ops.known import KNOWN
from tests.support import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "custom_ops" / "kernels"


def output_of(folder, *command):
    """What a module prints, in a process that has not used TensorFlow."""
    code, output = processes.run(list(command), folder)
    assert code == 0, output
    return output


@pytest.fixture(scope="module")
def known_outcomes(tmp_path_factory):
    output = output_of(tmp_path_factory.mktemp("known"), "tests.fuzz_ops.known")
    (results,) = (x for x in output.splitlines() if x.startswith("{"))
    return json.loads(results)


@pytest.mark.parametrize("name", KNOWN)
def test_what_once_ended_the_process_is_an_error(name, known_outcomes):
    assert known_outcomes[name] == KNOWN[name][1]


@pytest.mark.parametrize(
    "calls", [500, pytest.param(2000, marks=pytest.mark.slow)]
)
def test_random_calls_are_refused_or_right(calls, tmp_path):
    options = ["--calls", str(calls), "--seed", "0"]
    output = output_of(tmp_path, "tests.fuzz_ops", *options)
    assert re.search(rf"^{calls} calls of \d+ ops, 0 failures$", output, re.M)


def test_every_op_is_described():
    names = fuzzer.op_names()
    assert "tfxclass_top_k_block" in names
    assert set(names) == set(fuzzer.DESCRIPTIONS)


@pytest.mark.parametrize("number", range(30))
def test_a_call_is_code_that_repeats_it(number):
    call = fuzzer.draw_call(0, number)[0]
    seen = []
    scope = {"recorded": lambda call: seen.append(call)}
    exec(call.snippet().replace("run(Call(", "recorded(Call("), scope)
    assert isinstance(seen[0], Call)
    assert seen[0].snippet() == call.snippet()


def test_a_broken_promise_is_no_refusal():
    def check(args, outputs, live):
        raise ValueError("not like it")

    call = fuzzer.draw_call(0, 0)[0]._replace(
        op="tfxclass_empty_like", args={"like": [[1.0]]}, in_graph=False
    )
    with pytest.raises(fuzzer.BrokenPromise, match="not like it"):
        run(call, check)


JOBS = """
import os, signal, time
import tensorflow
from tests.fuzz_ops import forks

jobs = [
    lambda: 1,
    lambda: signal.raise_signal(signal.SIGSEGV),
    lambda: time.sleep(600),
    lambda: any(iter(int, 1)),
    lambda: len(bytearray(2**34)),
    lambda: 2,
]
print(list(forks.run_jobs(jobs, patience=4, idle=5)))
"""


@pytest.mark.slow
def test_a_job_that_dies_or_hangs_is_told_and_the_rest_goes_on():
    done = subprocess.run(
        [sys.executable, "-c", JOBS], capture_output=True, text=True, cwd=ROOT
    )
    told = done.stdout.splitlines()[-1]
    expected = [1, {"died": "SIGSEGV"}] + 2 * [{"died": "hang"}]
    expected += [{"died": "an exit"}, 2]
    assert told == repr(list(enumerate(expected))), done.stderr
    # What the silent ones did.
    assert done.stderr.count("most recent call first") >= 2


#: What must not occur in the kernels, and what does it safely. (Distinct rows
#: are never more than the gradients.)
UNSAFE = {
    r"\bREGISTER_KERNEL_BUILDER": "TFXCLASS_REGISTER",
    r"allocate_output\(\w+, *\{": "AllocateOutput",
    r"\bTensorShape\(\{[^}]*,": "AddDimWithStatus",
    r"\bset_dim\((?!0, (groups\.size|num_unique))": "SetDimWithStatus",
}


@pytest.mark.parametrize("pattern", UNSAFE)
def test_kernels_use_what_cannot_end_the_process(pattern):
    found = [
        (path.name, match.group())
        for path in sorted(SOURCES.glob("*"))
        if path.suffix in (".h", ".cc") and path.name != "kernel_utils.h"
        for match in re.finditer(pattern, path.read_text())
    ]
    assert not found, f"use {UNSAFE[pattern]}"
