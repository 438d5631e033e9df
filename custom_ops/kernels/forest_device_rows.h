// The directions of class vectors on a GPU: what a forest is built from.
#ifndef TFXCLASS_KERNELS_FOREST_DEVICE_ROWS_H_
#define TFXCLASS_KERNELS_FOREST_DEVICE_ROWS_H_

#include <algorithm>
#include <cstring>

#include "core/forest_rows.h"
#include "core/parallel.h"
#include "kernels/device_rows.h"
#include "kernels/directions.cu.h"

namespace tfxclass {

// As that of core/forest_rows.h, without a sketch: the same bytes, a fourth of
// those of the class vectors.
inline bool TakeDirections(const DeviceRows& kernel, int64_t /*sketch*/,
                           const ParallelFor& parallel, ForestRows* rows) {
  rows->count = kernel.count;
  rows->dim = kernel.dim;
  rows->sketch = nullptr;
  rows->padded = (kernel.dim + 15) / 16 * 16;
  rows->values.resize(kernel.count * rows->padded);
  const RowCopier& copier = kernel.copier;
  int32_t* const not_finite = copier.on_device->Get<int32_t>(1);
  if (not_finite == nullptr) return kernel.Succeeded(kNoScratch);
  if (!kernel.Succeeded(
          FillInDevice(not_finite, 0, sizeof(int32_t), copier.stream))) {
    return false;
  }
  const auto compute = [&](int64_t first, int64_t n, char* to) {
    return RoundDirections(kernel.values + first * kernel.dim, n, kernel.dim,
                           rows->padded, DirectionLevels(kernel.dim),
                           reinterpret_cast<int8_t*>(to), not_finite,
                           copier.stream);
  };
  const auto take = [&](int64_t first, int64_t n, const char* from) {
    int8_t* const to = rows->values.data() + first * rows->padded;
    parallel(n, rows->padded / 8, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin * rows->padded, from + begin * rows->padded,
                  (end - begin) * rows->padded);
    });
  };
  int32_t is_not_finite = 0;
  return kernel.Succeeded(
             copier.Copy(kernel.count, rows->padded, compute, take)) &&
         kernel.Succeeded(CopyToHost(&is_not_finite, not_finite,
                                     sizeof(int32_t), copier.stream)) &&
         !is_not_finite;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_FOREST_DEVICE_ROWS_H_
