// Arithmetic on sizes and steps that callers choose freely: where the result
// does not fit 64 bits it is the greatest number instead of undefined.
#ifndef TFXCLASS_CORE_SIZES_H_
#define TFXCLASS_CORE_SIZES_H_

#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

// a + b; b >= 0.
inline int64_t SaturatedAdd(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// a * b; both >= 0.
inline int64_t SaturatedProduct(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// Whether `count` items from `first` on are within `size`. (first + count
// overflows.)
TFXCLASS_HD inline bool FitsWithin(int64_t first, int64_t count, int64_t size) {
  return first >= 0 && count >= 0 && count <= size && first <= size - count;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SIZES_H_
