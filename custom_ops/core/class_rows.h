// The class matrix as an index reads it: float32 or bfloat16, a row at a time.
#ifndef TFXCLASS_CORE_CLASS_ROWS_H_
#define TFXCLASS_CORE_CLASS_ROWS_H_

#include <cstdint>

#include "core/bf16.h"

namespace tfxclass {

// Rows [count, dim], of `half` where that is not null.
struct ClassRows {
  const float* values;
  int64_t count, dim;
  const Bf16* half = nullptr;

  // Row i as floats: where it lies, or widened into `buffer` [dim].
  const float* Row(int64_t i, float* buffer) const {
    if (half == nullptr) return values + i * dim;
    const Bf16* const row = half + i * dim;
    for (int64_t d = 0; d < dim; ++d) buffer[d] = ToFloat(row[d]);
    return buffer;
  }

  void Prefetch(int64_t i) const {
    const int64_t bytes = dim * (half ? sizeof(Bf16) : sizeof(float));
    const char* const row = (half ? reinterpret_cast<const char*>(half)
                                  : reinterpret_cast<const char*>(values)) +
                            i * bytes;
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLASS_ROWS_H_
