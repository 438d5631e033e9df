// Products and copies of kernels/cuda_mma.cu.h; and that the emulator finds
// what it is there to find.
#include <cmath>

#include "gpu_tests/harness.h"
#include "kernels/cuda_mma.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::Bf16;

__device__ uint32_t Pair(Bf16 low, Bf16 high) {
  return low.bits | uint32_t{high.bits} << 16;
}

// One warp; fragments as the PTX manual has them. A [16, 16], B [16, 8].
__global__ void ByHandKernel(const Bf16* a, const Bf16* b, float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t of_a[4], of_b[2];
  for (int i = 0; i < 4; ++i) {
    const Bf16* at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    of_a[i] = Pair(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const Bf16* at = b + (2 * t + i * 8) * 8 + g;
    of_b[i] = Pair(at[0], at[8]);
  }
  float of_c[4];
  for (int i = 0; i < 4; ++i) {
    of_c[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  }
  tfxclass::MmaBf16(of_c, of_a, of_b);
  for (int i = 0; i < 4; ++i) {
    c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = of_c[i];
  }
}

// One warp; the same by way of shared memory. The right factor [16, 16] gives
// two products side by side.
__global__ void BySharedKernel(const Bf16* a, const Bf16* b, float* c) {
  TFXCLASS_DYNAMIC_SHARED(Bf16, shared);
  for (int i = 0; i < 2; ++i) {
    const int at = threadIdx.x * 8;
    tfxclass::CopyAsync16(shared + i * 256 + at, (i ? b : a) + at, 16);
  }
  tfxclass::WaitForCopies();
  __syncthreads();
  const int lane = tfxclass::Lane(), g = lane / 4, t = lane % 4;
  const int at = lane % 16 * 16 + lane / 16 * 8;
  uint32_t of_a[4], of_b[4];
  tfxclass::LoadMatrices(of_a, shared + at);
  tfxclass::LoadTransposed(of_b, shared + 256 + at);
  for (int n = 0; n < 2; ++n) {
    float of_c[4] = {};
    tfxclass::MmaBf16(of_c, of_a, {of_b[n * 2], of_b[n * 2 + 1]});
    for (int i = 0; i < 4; ++i) {
      c[(g + i / 2 * 8) * 16 + n * 8 + 2 * t + i % 2] = of_c[i];
    }
  }
}

std::vector<Bf16> Round(const std::vector<float>& values) {
  std::vector<Bf16> rounded;
  for (const float value : values) rounded.push_back(tfxclass::ToBf16(value));
  return rounded;
}

// [16, n]
std::vector<double> Product(const std::vector<Bf16>& a,
                            const std::vector<Bf16>& b, std::vector<double> c,
                            int n) {
  for (int i = 0; i < 16 * n; ++i) {
    for (int k = 0; k < 16; ++k) {
      c[i] += double{tfxclass::ToFloat(a[i / n * 16 + k])} *
              tfxclass::ToFloat(b[k * n + i % n]);
    }
  }
  return c;
}

GPU_TEST(MmaByHand) {
  Random random(1);
  const auto a = Round(random.Normal(256)), b = Round(random.Normal(128));
  const auto c = random.Normal(128);
  Buffer<Bf16> of_a(a), of_b(b);
  Buffer<float> of_c(c);
  Done(tfxclass::Launch(ByHandKernel, 1, 32, 0, nullptr, of_a.data(),
                        of_b.data(), of_c.data()));
  ExpectNear(of_c.Read(), Product(a, b, {c.begin(), c.end()}, 8), 1e-6,
             "product");
}

GPU_TEST(MmaByShared) {
  Random random(2);
  const auto a = Round(random.Normal(256)), b = Round(random.Normal(256));
  Buffer<Bf16> of_a(a), of_b(b);
  Buffer<float> of_c(256);
  Done(tfxclass::Launch(BySharedKernel, 1, 32, 512 * sizeof(Bf16), nullptr,
                        of_a.data(), of_b.data(), of_c.data()));
  ExpectNear(of_c.Read(), Product(a, b, std::vector<double>(256), 16), 1e-6,
             "product");
}

__global__ void PackKernel(const float* from, uint32_t* to) {
  *to = tfxclass::PackBf16(from[0], from[1]);
}

GPU_TEST(MmaPack) {
  Buffer<float> from(std::vector<float>{1.00390625f, -2.0f});  // 1 + half a bit
  Buffer<uint32_t> to(1);
  Done(tfxclass::Launch(PackKernel, 1, 1, 0, nullptr, from.data(), to.data()));
  ExpectEqual(to.Read(), {0xc0003f80u}, "bits");
}

// Past `valid` bytes: zeros.
__global__ void CopyKernel(const float* from, int valid, float* to) {
  TFXCLASS_DYNAMIC_SHARED(float, shared);
  tfxclass::CopyAsync16(shared, from, valid);
  tfxclass::WaitForCopies();
  for (int i = 0; i < 4; ++i) to[i] = shared[i];
}

GPU_TEST(MmaCopyAsync) {
  for (const int valid : {0, 4, 12, 16}) {
    Buffer<float> from(std::vector<float>{1, 2, 3, 4}), to(4);
    Done(tfxclass::Launch(CopyKernel, 1, 1, 16, nullptr, from.data(), valid,
                          to.data()));
    std::vector<float> expected(4);
    for (int i = 0; i < valid / 4; ++i) expected[i] = i + 1.0f;
    ExpectEqual(to.Read(), expected, "copy");
  }
}

#ifdef TFXCLASS_EMULATE_CUDA

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

__global__ void EarlyKernel(bool waits, const float* from, float* to) {
  TFXCLASS_DYNAMIC_SHARED(float, shared);
  tfxclass::CopyAsync16(shared, from, 16);
  if (waits) tfxclass::WaitForCopies();
  to[0] = shared[3];
  tfxclass::WaitForCopies();
}

GPU_TEST(EmulatorFindsCopiesReadEarly) {
  for (const bool waits : {false, true}) {
    Buffer<float> from(std::vector<float>{1, 2, 3, 4}), to(1);
    Done(tfxclass::Launch(EarlyKernel, 1, 1, 16, nullptr, waits, from.data(),
                          to.data()));
    Expect(std::isnan(to.Read()[0]) != waits, "what was read");
  }
}

#endif

}  // namespace
}  // namespace gpu_tests
