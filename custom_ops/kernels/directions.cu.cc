#include "kernels/directions.cu.h"

#include <cfloat>

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {
namespace {

// A warp for each row.
__global__ void DirectionsKernel(const float* rows, int64_t count, int64_t dim,
                                 int64_t padded, float levels, int8_t* to,
                                 int32_t* not_finite) {
  const int64_t row = WarpNumber();
  if (row >= count) return;
  const float* const from = rows + row * dim;
  float largest = 0, squares = 0;
  for (int64_t d = Lane(); d < dim; d += kWarp) {
    const float size = fabsf(from[d]);
    largest = size > largest ? size : largest;
    squares += size * size;
  }
  largest = WarpMax(largest);
  // NaN fails the comparison, too.
  if (!(WarpSum(squares) <= FLT_MAX)) {
    if (Lane() == 0) *not_finite = 1;
    return;
  }
  // Of less the factor would be infinite.
  const bool is_zero = largest < levels / FLT_MAX;
  const float factor = is_zero ? 0.0f : levels / largest;
  for (int64_t d = Lane(); d < padded; d += kWarp) {
    to[row * padded + d] =
        d < dim ? static_cast<int8_t>(nearbyintf(from[d] * factor)) : 0;
  }
}

}  // namespace

GpuStatus RoundDirections(const float* rows, int64_t count, int64_t dim,
                          int64_t padded, float levels, int8_t* to,
                          int32_t* not_finite, GpuStream stream) {
  return LaunchEach(DirectionsKernel, count * kWarp, stream, rows, count, dim,
                    padded, levels, to, not_finite);
}

}  // namespace tfxclass
