"""Registers and spills of the CUDA kernels, as ptxas reported them.

`python -m custom_ops.gpu_tests.registers` prints a Markdown table. It needs
nvcc, and compiles what is not compiled yet. It needs no GPU.
"""

import os
import re
from typing import NamedTuple

from custom_ops import build

KERNELS = os.path.join(build.HERE, "kernels")
#: 32-bit registers of a multiprocessor, and those of a thread come in eights.
REGISTERS, STEP = 65_536, 8
#: A kernel without __launch_bounds__ has at most so many threads in a block.
THREADS = 256
_KERNEL = re.compile(
    r"__global__ void\s+(?:__launch_bounds__\((\w+)[^)]*\)\s+)?(\w+)\("
)
_NUMBER = re.compile(r"constexpr int (\w+) = (\d+);")
_REPORT = re.compile(
    r"Compiling entry function '(\w+)' for '(\w+)'\n"
    r".*\n.* (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".* Used (\d+) registers"
)


class Report(NamedTuple):
    """What ptxas said of a kernel, for one architecture and one template.

    Attributes:
        threads: int, threads of a block, at most.
        registers: int, those of a thread.
        spilled: int, bytes that a thread spills to local memory and reads back.
    """

    file: str
    kernel: str
    arch: str
    threads: int
    registers: int
    spilled: int

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor has registers for at the same time."""
        taken = -(-self.registers // STEP) * STEP
        return REGISTERS // (taken * self.threads)


def reports() -> list[Report]:
    """Reports of all kernels of ours; those of CUB are left out."""
    sources = build.sources(with_cuda=True)[1]
    found = []
    jobs = build.cuda_jobs(build.nvcc(), sources)
    for source, target in zip(sources, build.compile_all(jobs)):
        log = _read(target + ".log")
        found += parse(os.path.basename(source), log, threads_of(source))
    return found


def threads_of(source: str) -> dict[str, int]:
    """Threads of a block of each kernel of a file, at most."""
    text = _read(source)
    included = re.findall(r'#include "kernels/(.+\.cu\.h)"', text)
    numbers = {}
    for part in [*(_read(os.path.join(KERNELS, x)) for x in included), text]:
        numbers.update(_NUMBER.findall(part))
    return {
        kernel: int(numbers[bound]) if bound else THREADS
        for bound, kernel in _KERNEL.findall(text)
    }


def parse(file: str, log: str, threads: dict[str, int]) -> list[Report]:
    """The reports in what nvcc wrote.

    Raises:
        ValueError: for a kernel that is not in `threads`.
    """
    found = []
    for name, arch, stored, loaded, registers in _REPORT.findall(log):
        if "3cub" in name:
            continue
        # A mangled name has the length of the kernel's name before it.
        kernels = [x for x in threads if f"{len(x)}{x}" in name]
        if len(kernels) != 1:
            raise ValueError(f"{file} has no kernel, or two, named {name!r}.")
        spilled = int(stored) + int(loaded)
        given = file, kernels[0], arch, threads[kernels[0]]
        found.append(Report(*given, int(registers), spilled))
    return found


def _read(path):
    with open(path) as f:
        return f.read()


def main() -> None:
    """Prints the kernel of each file that has the fewest blocks."""
    print("| kernel | threads | registers | blocks |")
    print("| --- | --- | --- | --- |")
    by_blocks = sorted(reports(), key=lambda x: (x.blocks, -x.registers))
    for file in sorted({x.file for x in by_blocks}):
        x = next(x for x in by_blocks if x.file == file)
        numbers = f"{x.threads} | {x.registers} | {x.blocks}"
        print(f"| `{x.kernel}`, {file} | {numbers} |")


if __name__ == "__main__":
    main()
