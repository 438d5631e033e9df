// Sorting and running sums on the device; declared without CUDA.
#ifndef TFXCLASS_KERNELS_CUDA_SORT_CU_H_
#define TFXCLASS_KERNELS_CUDA_SORT_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// sorted[i] = keys[order[i]], rising and stable. Only the lowest `bits` bits
// are compared, as those of an unsigned number. count < 2^31.
GpuStatus SortKeys(const uint64_t* keys, int64_t count, int bits,
                   uint64_t* sorted, int32_t* order, Scratch* scratch,
                   GpuStream stream);

// The same, for row numbers in [0, bound) or negative; those come last.
GpuStatus SortRows(const int64_t* rows, int64_t count, int64_t bound,
                   int64_t* sorted, int32_t* order, Scratch* scratch,
                   GpuStream stream);

// sums[i] = values[0] + ... + values[i - 1]; sums [count + 1].
GpuStatus RunningSums(const int32_t* values, int64_t count, int64_t* sums,
                      Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_CUDA_SORT_CU_H_
