// Tensor cores and asynchronous copies of sm_80 and later, each behind a small
// function, so that they can be emulated.
#ifndef TFXCLASS_KERNELS_CUDA_MMA_CU_H_
#define TFXCLASS_KERNELS_CUDA_MMA_CU_H_

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

// Fragments of a warp, in the words of the PTX manual, with g = lane / 4 and
// t = lane % 4, two bfloat16 a register, the one of the lower index below:
//   A [16, 16]: a[0] row g, columns 2t and 2t + 1; a[1] row g + 8;
//               a[2] row g, columns 2t + 8 and 2t + 9; a[3] row g + 8, these.
//   B [16, 8]:  b[0] rows 2t and 2t + 1, column g; b[1] rows 2t + 8, 2t + 9.
//   C [16, 8]:  c[0], c[1] row g, columns 2t and 2t + 1; c[2], c[3] row g + 8.
// All lanes must call the functions that follow.

// x, of which the compiler knows nothing: what follows from it is computed anew
// in each turn of a loop, not kept in registers that the loop needs.
__device__ __forceinline__ int Anew(int x) {
#ifndef TFXCLASS_EMULATE_CUDA
  asm volatile("" : "+r"(x));
#endif
  return x;
}

#ifdef TFXCLASS_EMULATE_CUDA

__device__ inline float Bf16Of(uint32_t pair, int which) {
  return ToFloat(Bf16{static_cast<uint16_t>(pair >> (16 * which))});
}

// c += A B.
__device__ inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4],
                               const uint32_t (&b)[2]) {
  struct Fragments {
    uint32_t a[4], b[2];
  } const mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  ::cuda_emulator::Show(&mine);
  const auto of = [](int lane) -> const Fragments& {
    return *static_cast<const Fragments*>(::cuda_emulator::Shown(lane));
  };
  const int g = Lane() / 4, t = Lane() % 4;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) {
      const int owner = k % 8 / 2;
      const uint32_t from_a = of(g * 4 + owner).a[k / 8 * 2 + i / 2];
      const uint32_t from_b = of((2 * t + i % 2) * 4 + owner).b[k / 8];
      c[i] += Bf16Of(from_a, k % 2) * Bf16Of(from_b, k % 2);
    }
  }
  ::cuda_emulator::WarpBarrier();
}

// Four 8 x 8 matrices of bfloat16 in shared memory; lane 8 i + r gives where
// row r of matrix i begins. A lane gets columns 2t and 2t + 1 of row g of each.
__device__ inline void LoadMatrices(uint32_t (&to)[4], const void* row) {
  ::cuda_emulator::Show(row);
  for (int i = 0; i < 4; ++i) {
    const void* of = ::cuda_emulator::Shown(8 * i + Lane() / 4);
    to[i] = static_cast<const uint32_t*>(of)[Lane() % 4];
  }
  ::cuda_emulator::WarpBarrier();
}

// The same of their transposes: rows 2t and 2t + 1 of column g.
__device__ inline void LoadTransposed(uint32_t (&to)[4], const void* row) {
  ::cuda_emulator::Show(row);
  for (int i = 0; i < 4; ++i) {
    uint32_t pair[2];
    for (int j = 0; j < 2; ++j) {
      const void* of = ::cuda_emulator::Shown(8 * i + Lane() % 4 * 2 + j);
      pair[j] = static_cast<const uint16_t*>(of)[Lane() / 4];
    }
    to[i] = pair[0] | pair[1] << 16;
  }
  ::cuda_emulator::WarpBarrier();
}

__device__ inline uint32_t PackBf16(float low, float high) {
  return ToBf16(low).bits | uint32_t{ToBf16(high).bits} << 16;
}

// Copies `bytes` to shared memory and fills up to 16 with zeros, not before the
// thread waits.
__device__ inline void CopyAsync16(void* to, const void* from, int bytes) {
  ::cuda_emulator::CopyLater(to, from, 16, bytes);
}
__device__ inline void WaitForCopies() { ::cuda_emulator::FinishCopies(); }

#else

__device__ __forceinline__ void MmaBf16(float (&c)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4],
                                             const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(SharedAddress(row)));
}

__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4],
                                               const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(SharedAddress(row)));
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ void CopyAsync16(void* to, const void* from,
                                            int bytes) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)),
      "l"(from), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_CUDA_MMA_CU_H_
