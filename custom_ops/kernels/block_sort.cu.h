// Sorting by the threads of a block, in shared memory or any other.
#ifndef TFXCLASS_KERNELS_BLOCK_SORT_CU_H_
#define TFXCLASS_KERNELS_BLOCK_SORT_CU_H_

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

inline int PowerOfTwo(int64_t least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// keys[0, count), rising; count a power of two. A bitonic network. All threads
// of the block must call; before and after it they are in step.
__device__ __forceinline__ void BlockSort(uint64_t* keys, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < count / 2; i += blockDim.x) {
        const int low = 2 * i - (i & (stride - 1));
        const uint64_t a = keys[low], b = keys[low + stride];
        if ((a > b) != ((low & size) == 0)) continue;
        keys[low] = b;
        keys[low + stride] = a;
      }
    }
  }
  __syncthreads();
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_BLOCK_SORT_CU_H_
