"""The C++ tests of custom_ops/core/: with sanitizers, and as the ops are built.

Their programs are kept in build/ until a source, a header or a flag changes.
"""

import glob
import os
import platform
import subprocess

import pytest

from custom_ops import build

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = sorted(glob.glob(os.path.join(TESTS, "cc", "*_test.cc")))
COMMON = ["-pthread", "-I" + os.path.join(TESTS, "cc"), "-I" + build.HERE]
FLAGS = {
    "sanitized": [
        "-std=c++17",
        # Compiling takes longer than running: nothing is optimised.
        "-O0",
        "-g1",
        "-Wall",
        "-Werror",
        "-Wno-psabi",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        *build.machine_flags(),
        *COMMON,
    ],
    # Sums are reordered and vectorised here alone.
    "library": [*build.op_flags([]), *COMMON],
    # The least of `make wheels`, whose registers are half as long as vectors.
    "x86-64-v2": [*build.op_flags([], "x86-64-v2"), *COMMON],
}
# Compiling the others takes a minute, and they hardly add numbers.
SUMS = ("class_tree", "exact_softmax", "hash_functions", "linear_groups")
SUMS += ("row_groups", "softmax_block", "sparse_scores", "sparsemax")
SUMS += ("text_embeddings",)
ON_X86 = ("exact_softmax", "softmax_block") * (platform.machine() == "x86_64")
NAMES = {"library": SUMS, "x86-64-v2": ON_X86}
CASES = {
    f"{name}-{kind}": (kind, source)
    for source in SOURCES
    for name in [os.path.basename(source).removesuffix("_test.cc")]
    for kind in FLAGS
    if name in NAMES.get(kind, [name])
}


@pytest.fixture(scope="module")
def programs(request):
    """Paths of the programs of the selected tests, built in parallel."""
    items = request.session.items
    selected = {x.callspec.id for x in items if x.originalname == "test_core"}
    paths = {}
    for kind, flags in FLAGS.items():
        cases = [x for x in CASES if x in selected and CASES[x][0] == kind]
        command = [build.compiler(), *flags]
        sources = [CASES[case][1] for case in cases]
        objects = build.compile_all(build.compile_jobs(command, sources))
        for case, path in zip(cases, objects, strict=True):
            paths[case] = linked(command, path)
    return paths


def linked(command, path):
    """The program of an object; it is newer than the object."""
    program = path.removesuffix(".o")
    built = os.path.exists(program) and os.path.getmtime(program)
    if built < os.path.getmtime(path):
        build.run([*command, path, "-o", program])
    return program


@pytest.mark.parametrize("case", CASES)
def test_core(case, programs):
    done = subprocess.run([programs[case]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
