"""What ptxas said of the CUDA kernels: no spills, two blocks at the same time.

With one block, a multiprocessor idles while that waits at a barrier.
"""

import pytest

from custom_ops import build
from custom_ops.gpu_tests import registers

SOURCES = build.sources(with_cuda=True)[1]
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z9SumKernelPfi' for 'sm_90'
ptxas info    : Function properties for _Z9SumKernelPfi
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 57 registers, used 0 barriers, 496 bytes cmem[0]
ptxas info    : Compile time = 17.275 ms
ptxas info    : Compiling entry function '_ZN3cub4SortEv' for 'sm_90'
ptxas info    : Function properties for _ZN3cub4SortEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 496 bytes cmem[0]
"""


@pytest.fixture(scope="module")
def reports():
    if build.nvcc() is None:
        pytest.skip("CUDA is not compiled here: no GPU, or no nvcc")
    return registers.reports()


def test_each_kernel_has_a_report(reports):
    kernels = {x for source in SOURCES for x in registers.threads_of(source)}
    for arch in {x.arch for x in reports}:
        assert {x.kernel for x in reports if x.arch == arch} == kernels


def test_no_kernel_spills(reports):
    assert not [x for x in reports if x.spilled]


def test_two_blocks_have_registers_at_the_same_time(reports):
    assert not [x for x in reports if x.blocks < 2]


@pytest.mark.parametrize("source", SOURCES)
def test_all_kernels_of_a_file_are_found(source):
    with open(source) as f:
        assert len(registers.threads_of(source)) == f.read().count("__global__")


def test_a_report_is_read():
    (report,) = registers.parse("a.cu.cc", LOG, {"SumKernel": 512})
    assert report == ("a.cu.cc", "SumKernel", "sm_90", 512, 57, 12)
    # A warp gets 64 registers a thread, of which 512 take half.
    assert report.blocks == 2
    with pytest.raises(ValueError, match="9SumKernel"):
        registers.parse("a.cu.cc", LOG, {"MaxKernel": 512})
