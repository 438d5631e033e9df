// Products of a vector with several rows at once, by a warp.
#ifndef TFXCLASS_KERNELS_WARP_DOTS_CU_H_
#define TFXCLASS_KERNELS_WARP_DOTS_CU_H_

#include "kernels/row_runs.cu.h"

namespace tfxclass {

// dots[j] = x . rows[j] and, if kSquares, squares[j] = rows[j] . rows[j], in
// every lane. Several rows, so that their loads are in flight together.
template <int kWidth, int kRows, bool kSquares>
__device__ __forceinline__ void WarpDots(const float* x,
                                         const float* const (&rows)[kRows],
                                         int dim, float (&dots)[kRows],
                                         float (&squares)[kRows]) {
#pragma unroll
  for (int j = 0; j < kRows; ++j) dots[j] = squares[j] = 0.0f;
  for (int d = Lane() * kWidth; d < dim; d += kWarp * kWidth) {
    const Pack<kWidth> a = Load(x + d, Pack<kWidth>());
    Pack<kWidth> b[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) b[j] = Load(rows[j] + d, Pack<kWidth>());
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        dots[j] += a.at[w] * b[j].at[w];
        if (kSquares) squares[j] += b[j].at[w] * b[j].at[w];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    dots[j] = WarpSum(dots[j]);
    if (kSquares) squares[j] = WarpSum(squares[j]);
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_WARP_DOTS_CU_H_
