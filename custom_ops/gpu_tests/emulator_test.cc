// That the emulator finds what fails on a GPU.
#include "gpu_tests/harness.h"
#include "kernels/cuda_utils.cu.h"

#ifdef TFXCLASS_EMULATE_CUDA

namespace gpu_tests {
namespace {

__global__ void ReverseKernel(bool waits, int* to) {
  TFXCLASS_DYNAMIC_SHARED(int, shared);
  shared[threadIdx.x] = threadIdx.x;
  if (waits) __syncthreads();
  to[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

GPU_TEST(EmulatorFindsMissingBarrier) {
  std::vector<int> expected;
  for (int i = 0; i < 64; ++i) expected.push_back(63 - i);
  Buffer<int> to(64);
  const auto is_right = [&](bool waits) {
    Done(tfxclass::Launch(ReverseKernel, 1, 64, 64 * sizeof(int), nullptr,
                          waits, to.data()));
    return to.Read() == expected;
  };
  Expect(is_right(true), "with the barrier");
  Expect(!is_right(false), "without the barrier");
}

__global__ void EmptyKernel() {}

GPU_TEST(EmulatorRefusesLargeBlocks) {
  const auto runs = [](int threads, int64_t shared_bytes) {
    return tfxclass::Launch(EmptyKernel, 1, threads, shared_bytes, nullptr) ==
           nullptr;
  };
  int64_t most;
  Done(tfxclass::MostSharedBytes(EmptyKernel, &most));
  Expect(runs(1024, most), "the largest block");
  Expect(!runs(1025, 0), "too many threads");
  Expect(!runs(32, most + 1), "too much shared memory");
}

}  // namespace
}  // namespace gpu_tests

#endif
