// Rows of a matrix that a batch touched, brought together by sorting: each run
// of equal ids has one owner, which sums or updates in the order of the batch.
#ifndef TFXCLASS_KERNELS_ROW_RUNS_CU_H_
#define TFXCLASS_KERNELS_ROW_RUNS_CU_H_

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

// kWidth numbers of a row, read and written at once.
template <int kWidth>
struct Pack {
  float at[kWidth];
};

template <class T>
__device__ __forceinline__ Pack<1> Load(const T* from, Pack<1>) {
  return {{ToFloat(*from)}};
}
// Of a type of 16 bits.
template <class T>
__device__ __forceinline__ Pack<4> Load(const T* from, Pack<4>) {
  const uint64_t bits = *reinterpret_cast<const uint64_t*>(from);
  Pack<4> x;
  for (int j = 0; j < 4; ++j) {
    x.at[j] = ToFloat(T{static_cast<uint16_t>(bits >> (16 * j))});
  }
  return x;
}
__device__ __forceinline__ Pack<4> Load(const float* from, Pack<4>) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  return {{x.x, x.y, x.z, x.w}};
}
__device__ __forceinline__ void Store(float* to, const Pack<1>& x) {
  *to = x.at[0];
}
__device__ __forceinline__ void Store(float* to, const Pack<4>& x) {
  *reinterpret_cast<float4*>(to) =
      make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
}

// Whether rows of `dim` numbers may be read four at a time.
template <class... Pointers>
bool AreAligned(int64_t dim, Pointers... pointers) {
  return dim % 4 == 0 &&
         ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

inline int64_t BlocksOfWarps(int64_t warps, int threads) {
  return CeilDiv(warps, threads / kWarp);
}

// One past the run that begins at i; i itself if none does.
__device__ __forceinline__ int64_t RunEnd(const int64_t* sorted, int64_t n,
                                          int64_t i) {
  const int64_t row = sorted[i];
  if (row < 0 || (i > 0 && sorted[i - 1] == row)) return i;
  int64_t end = i + 1;
  while (end < n && sorted[end] == row) ++end;
  return end;
}

struct Runs {
  int64_t* sorted = nullptr;  // ids outside [0, bound) are -1, and last
  int32_t* order = nullptr;   // sorted[i] = ids[order[i]]; stable
};

GpuStatus FindRuns(const int64_t* ids, int64_t n, int64_t bound, Runs* runs,
                   Scratch* scratch, GpuStream stream);

// places[i]: how many runs begin before sorted[i], in scratch memory; the
// number of runs to *num_runs, on the device.
GpuStatus NumberRuns(const Runs& runs, int64_t n, int64_t** places,
                     int64_t* num_runs, Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_RUNS_CU_H_
