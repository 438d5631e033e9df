// Running max and sum of exponentials, as a warp's threads keep and merge them.
#ifndef TFXCLASS_KERNELS_SOFTMAX_STATS_CU_H_
#define TFXCLASS_KERNELS_SOFTMAX_STATS_CU_H_

#include <limits>

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Relative error 2^-22 + |x| 2^-23; results below 2^-126 are 0.
__device__ __forceinline__ float Exp(float x) {
#ifdef TFXCLASS_EMULATE_CUDA
  return std::exp(x);
#else
  // __expf without what it does for results below 2^-126.
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
  return power;
#endif
}

// exp(x), where x is positive by rounding alone; NaN, which fminf would hide,
// stays NaN.
__device__ __forceinline__ float Probability(float x) {
#ifdef TFXCLASS_EMULATE_CUDA
  return Exp(x > 0.0f ? 0.0f : x);
#else
  float least;
  asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(least) : "f"(x));
  return Exp(least);
#endif
}

// Of some numbers x: sum = sum exp(x - max). NaN among them makes the sum NaN
// and not the max, as in core/softmax_block.h: fmaxf leaves them out.
// The sum is double: float ones lose 3e-4 over millions of numbers.
struct SoftmaxStats {
  float max = kLowest;
  double sum = 0;
};

template <int kCount>
__device__ __forceinline__ void Fold(const float (&x)[kCount],
                                     SoftmaxStats* stats) {
  float top = stats->max;
#pragma unroll
  for (int j = 0; j < kCount; ++j) top = fmaxf(top, x[j]);
  if (!(top > kLowest)) {  // nothing but -infinity, or NaN
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (x[j] != x[j]) stats->sum = x[j];
    }
    return;
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) sum += Exp(x[j] - top);
  stats->sum = stats->sum * Exp(stats->max - top) + sum;
  stats->max = top;
}

__device__ __forceinline__ SoftmaxStats Merge(const SoftmaxStats& a,
                                              const SoftmaxStats& b) {
  const float top = fmaxf(a.max, b.max);
  SoftmaxStats both;
  both.max = top;
  both.sum = top > kLowest ? a.sum * Exp(a.max - top) + b.sum * Exp(b.max - top)
                           : a.sum + b.sum;  // zeros, or NaN
  return both;
}

// Of a warp, in its first lane. All lanes must call.
__device__ __forceinline__ SoftmaxStats MergeLanes(SoftmaxStats stats) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    SoftmaxStats other;
    other.max = __shfl_down_sync(kAllLanes, stats.max, offset);
    other.sum = __shfl_down_sync(kAllLanes, stats.sum, offset);
    stats = Merge(stats, other);
  }
  return stats;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_SOFTMAX_STATS_CU_H_
