"""Builds the tests of the CUDA kernels.

`python custom_ops/gpu_tests/build.py` builds and runs them on this machine's
GPU (needs nvcc and nothing else of the project); `--emulate` builds the same
kernels and tests by a C++ compiler and runs them on the processor.
"""

import argparse
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EMULATED = [
    "-std=c++17",
    "-O1",
    "-g",
    "-Wall",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-Wno-psabi",
    "-DTFXCLASS_EMULATE_CUDA",
    "-I" + ROOT,
]


def sources(emulate):
    """Kernels and tests."""
    found = glob.glob(os.path.join(ROOT, "kernels", "*.cu.cc"))
    found += glob.glob(os.path.join(HERE, "*.cc"))
    emulator = os.path.join(HERE, "cuda_emulator.cc")
    return sorted(path for path in found if emulate or path != emulator)


def build(folder, emulate):
    """Builds the program in `folder` and returns its path."""
    if emulate:
        compiler = os.environ.get("CXX", "g++")
        command = [compiler, *EMULATED]
        of_kernel = ["-x", "c++"]
    else:
        compiler = os.environ.get("NVCC", "nvcc")
        command = [compiler, "-std=c++17", "-O3", "-arch=native", "-I" + ROOT]
        of_kernel = ["-x", "cu"]
    if shutil.which(compiler) is None:
        raise RuntimeError(
            f"{compiler!r} was not found. Fix: install it, or set "
            f"{'CXX' if emulate else 'NVCC'}."
        )

    def compile_one(source):
        target = os.path.join(folder, os.path.basename(source) + ".o")
        kind = of_kernel if source.endswith(".cu.cc") or not emulate else []
        run([*command, *kind, "-c", source, "-o", target])
        return target

    os.makedirs(folder, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources(emulate)))
    program = os.path.join(folder, "gpu_tests")
    run([compiler, *objects, "-o", program])
    return program


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument(
        "--folder", default=os.path.join(os.path.dirname(ROOT), "build", "gpu")
    )
    args, rest = parser.parse_known_args()
    if not args.emulate and not has_gpu():
        sys.exit(
            "There is no NVIDIA GPU here (nvidia-smi found none). The kernels' "
            "results can be tested without: "
            "python custom_ops/gpu_tests/build.py --emulate"
        )
    folder = args.folder + ("-emulated" if args.emulate else "")
    program = build(folder, args.emulate)
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
