// Numbers as keys to sort by, and searches among sorted ones.
#ifndef TFXCLASS_KERNELS_KEY_BITS_CU_H_
#define TFXCLASS_KERNELS_KEY_BITS_CU_H_

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

// How many bits numbers up to `greatest` have, at least 1.
__host__ __device__ __forceinline__ int BitsOf(uint64_t greatest) {
  int bits = 1;
  while (bits < 64 && greatest >> bits) ++bits;
  return bits;
}

// Rises with x, -0 as 0; of NaN it is 0, of all others more.
__device__ __forceinline__ uint32_t OrderedBits(float x) {
  if (x != x) return 0;
  x += 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float FromOrderedBits(uint32_t bits) {
  bits = bits >> 31 ? bits & 0x7fffffffu : ~bits;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// The first i with sorted[i] >= value, of `count` rising ones; count if none.
template <class T>
__device__ __forceinline__ int64_t LowerBound(const T* sorted, int64_t count,
                                              T value) {
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle] < value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_KEY_BITS_CU_H_
