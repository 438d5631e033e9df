"""The C++ tests of custom_ops/core/, with the sanitizers on."""

import glob
import os
import subprocess

import pytest

from custom_ops import build

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = sorted(glob.glob(os.path.join(TESTS, "cc", "*_test.cc")))
FLAGS = [
    "-std=c++17",
    # Compiling takes longer than running: nothing is optimised.
    "-O0",
    "-g1",
    "-Wall",
    "-Werror",
    "-Wno-psabi",
    *build.machine_flags(),
    "-pthread",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-I" + os.path.join(os.path.dirname(TESTS), "custom_ops"),
    "-I" + os.path.join(TESTS, "cc"),
]


@pytest.mark.parametrize(
    "source", SOURCES, ids=[os.path.basename(path) for path in SOURCES]
)
def test_core(source, tmp_path):
    binary = str(tmp_path / "test")
    compiler = os.environ.get("CXX", "g++")
    for command in ([compiler, *FLAGS, source, "-o", binary], [binary]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
