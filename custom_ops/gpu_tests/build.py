"""Builds the tests of the CUDA kernels.

`python -m custom_ops.gpu_tests.build --emulate [part of a name ...]` builds
kernels and tests by a C++ compiler and runs them on the processor. With
--compile-only, nothing is run, and the ops of GPUs are built, too: what
`make test` needs. run.py has the kernels on a GPU.
"""

import argparse
import glob
import os
import shutil
import subprocess
import sys

from custom_ops import build as ops

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EMULATED = [
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-Wall",
    "-Werror",
    "-Wno-psabi",
    "-Wno-unknown-pragmas",
    *ops.machine_flags(),
    "-DTFXCLASS_EMULATE_CUDA",
    "-I" + ROOT,
    # Its cuda_runtime.h is the emulator.
    "-I" + os.path.join(HERE, "emulator"),
]


def build(emulate):
    """Builds the program of the tests and returns its path."""
    tests = glob.glob(os.path.join(HERE, "*_test.cc"))
    tests.append(os.path.join(HERE, "harness.cc"))
    if emulate:
        objects = emulated_kernels()
        compiler = [os.environ.get("CXX", "g++")]
        objects += ops.compile_all(
            ops.compile_jobs([*compiler, *EMULATED], tests)
        )
    else:
        if ops.nvcc() is None:
            raise RuntimeError("nvcc was not found. Fix: set NVCC to its path.")
        compiler = [ops.nvcc(), "-arch=native"]
        command = [*compiler, "-std=c++17", "-O3", "-I" + ROOT, "-x", "cu"]
        cuda = ops.sources(with_cuda=True)[1]
        objects = ops.compile_all(ops.compile_jobs(command, [*cuda, *tests]))
    name = "gpu_tests_emulated" if emulate else "gpu_tests"
    program = os.path.join(os.path.dirname(ROOT), "build", name)
    # At once: another process may run what was there.
    part = f"{program}.{os.getpid()}"
    ops.run([*compiler, *objects, "-o", part])
    os.replace(part, program)
    return program


def emulated_kernels():
    """Objects of the kernels and of what runs them on the processor."""
    compiler = os.environ.get("CXX", "g++")
    cuda = ops.sources(with_cuda=True)[1]
    emulator = os.path.join(HERE, "cuda_emulator.cc")
    jobs = ops.compile_jobs([compiler, *EMULATED, "-x", "c++"], cuda)
    jobs += ops.compile_jobs([compiler, *EMULATED], [emulator])
    return ops.compile_all(jobs)


def build_emulated_ops(output):
    """Builds the ops of the GPU for the processor, as kernels "emulated"."""
    compiler = os.environ.get("CXX", "g++")
    version, compile_flags, link_flags = ops.tensorflow_flags()
    command = [compiler, *ops.op_flags(compile_flags)]
    command += ["-O1", "-DTFXCLASS_EMULATE_CUDA"]
    of_gpu = [os.path.join(ROOT, "units", "gpu.cc")]
    objects = emulated_kernels()
    objects += ops.compile_all(ops.compile_jobs(command, of_gpu, key=version))
    ops.run([compiler, "-shared", "-o", output, *objects, *link_flags])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", action="store_true", required=True)
    parser.add_argument("--compile-only", action="store_true")
    args, rest = parser.parse_known_args()
    program = build(emulate=True)
    if args.compile_only:
        build_emulated_ops(os.path.join(ops.BUILD, "emulated_ops.so"))
        return
    sys.exit(subprocess.run([program, *rest]).returncode)


def has_gpu():
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True
    )
    return listed.returncode == 0 and "GPU" in listed.stdout


if __name__ == "__main__":
    main()
