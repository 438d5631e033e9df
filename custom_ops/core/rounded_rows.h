// Rows rounded to 16-bit integers, and their dot products with a bound on the
// error: half the bytes of floats, and pairs of products in one instruction.
//
// A row is scale * (integer + at most 1/2), with as many integers as keep a
// sum of dim products within 32 bits. O(dim) a product.
#ifndef TFXCLASS_CORE_ROUNDED_ROWS_H_
#define TFXCLASS_CORE_ROUNDED_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/page_allocator.h"

namespace tfxclass {

// What a product needs beside the integers, in one place: one cache miss.
struct Rounding {
  float scale;
  float half_sum;  // (sum of |integer| + dim / 2) / 2
};

// The greatest integer: a sum of dim products stays within 32 bits.
inline float RoundingLevels(int64_t dim) {
  return std::floor(
      std::min(32767.0, std::sqrt(2147483647.0 / std::max<int64_t>(dim, 1))));
}

struct RoundedRows {
  int64_t padded = 0;  // multiple of 16, rest zero
  PagedVector<int16_t> values;
  PagedVector<Rounding> rounding;

  int64_t count() const { return rounding.size(); }

  // Rows of `dim` floats one after the other.
  void Assign(const float* rows, int64_t count, int64_t dim) {
    padded = (dim + 15) / 16 * 16;
    values.assign(count * padded, 0);
    rounding.resize(count);
    const float levels = RoundingLevels(dim);
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * dim;
      float largest = 0.0f;
      for (int64_t d = 0; d < dim; ++d) {
        largest = std::max(largest, std::abs(row[d]));
      }
      // Below the least normal number it would be infinite: such a row is 0.
      const bool is_zero = largest < std::numeric_limits<float>::min();
      const float inverse = is_zero ? 0.0f : levels / largest;
      int16_t* to = values.data() + i * padded;
      float sum = 0.0f;
      for (int64_t d = 0; d < dim; ++d) {
        const float rounded = std::nearbyint(row[d] * inverse);
        sum += std::abs(rounded);
        to[d] = static_cast<int16_t>(rounded);
      }
      rounding[i] = {largest / levels, 0.5f * (sum + 0.5f * dim)};
    }
  }

  void Reserve(int64_t count, int64_t dim) {
    values.reserve(count * ((dim + 15) / 16 * 16));
    rounding.reserve(count);
  }

  void Append(const RoundedRows& other) {
    padded = other.padded;
    values.insert(values.end(), other.values.begin(), other.values.end());
    rounding.insert(rounding.end(), other.rounding.begin(),
                    other.rounding.end());
  }

  void Prefetch(int64_t i) const {
    const char* row = reinterpret_cast<const char*>(&values[i * padded]);
    for (int64_t byte = 0; byte < padded * 2; byte += 64) {
      __builtin_prefetch(row + byte);
    }
    __builtin_prefetch(&rounding[i]);
  }
};

// a[i] . b[j]; the exact product differs by at most *error (which allows for
// the rounding of the float products as well).
inline float RoundedDot(const RoundedRows& a, int64_t i, const RoundedRows& b,
                        int64_t j, float* error) {
  const int16_t* x = a.values.data() + i * a.padded;
  const int16_t* y = b.values.data() + j * b.padded;
  int32_t sum = 0;
  const int64_t whole = a.padded / 16 * 16;  // tells the compiler: no rest
  for (int64_t d = 0; d < whole; ++d) {
    sum += static_cast<int32_t>(x[d]) * y[d];
  }
  const Rounding &of_a = a.rounding[i], &of_b = b.rounding[j];
  const float scale = of_a.scale * of_b.scale;
  *error = scale * (of_a.half_sum + of_b.half_sum) * 1.01f;
  return scale * static_cast<float>(sum);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROUNDED_ROWS_H_
