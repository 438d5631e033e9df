"""The CUDA kernels on the processor, and that they compile for GPUs."""

import json
import subprocess

import pytest

from custom_ops import build as ops
from custom_ops.gpu_tests import build
from tfxclass.ops import library


@pytest.fixture(scope="module")
def program():
    return build.build(emulate=True)


# Each in a process of its own: a kernel that goes wrong ends it.
@pytest.mark.parametrize(
    "part",
    [
        "Active",
        "DeviceRows",
        "Emulator",
        "ForestQuery",
        "Hash",
        "LshTables",
        "Row",
        "Softmax",
        "TopK",
        "TreePath",
        "Write",
    ],
)
def test_kernels_emulated(program, part):
    done = subprocess.run([program, part], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"passed {part}" in done.stdout


def test_all_parts_are_run(program):
    named = subprocess.run([program, "--list"], capture_output=True, text=True)
    parts = test_kernels_emulated.pytestmark[0].args[1]
    missed = [
        name
        for name in named.stdout.split()
        if not any(part in name for part in parts)
    ]
    assert not missed


def test_the_ops_were_built_for_gpus_where_nvcc_is():
    if ops.nvcc() is None:
        pytest.skip("no nvcc here, or TFXCLASS_CUDA=0")
    with open(library.BUILD_INFO) as f:
        assert json.load(f)["cuda"]


@pytest.mark.gpu
def test_kernels_on_a_gpu():
    program = build.build(emulate=False)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
