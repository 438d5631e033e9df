// Transpose of a matrix of floats that is in the cache.
//
// Eight rows by eight columns at a time, by shuffles. O(rows * columns), no
// memory. Different column ranges may go to different threads.
#ifndef TFXCLASS_CORE_TRANSPOSE_H_
#define TFXCLASS_CORE_TRANSPOSE_H_

#include <cstdint>
#include <cstring>

#include "core/vectors.h"

namespace tfxclass {

namespace internal {

typedef int32_t LaneIndex __attribute__((vector_size(sizeof(Lanes))));

#ifdef __clang__
#define TFXCLASS_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TFXCLASS_SHUFFLE(a, b, ...) \
  __builtin_shuffle(a, b, LaneIndex{__VA_ARGS__})
#endif

// out[j * out_stride + i] = in[i * in_stride + j] for i, j < 8.
inline void TransposeEight(const float* in, int64_t in_stride, float* out,
                           int64_t out_stride) {
  Lanes r[8], p[8], q[8];
  for (int i = 0; i < 8; ++i) r[i] = LoadLanes(in + i * in_stride);
  for (int i = 0; i < 8; i += 2) {
    p[i] = TFXCLASS_SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    p[i + 1] = TFXCLASS_SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int h = 0; h < 8; h += 4) {
    for (int i = 0; i < 2; ++i) {
      const Lanes a = p[h + i], b = p[h + i + 2];
      q[h + 2 * i] = TFXCLASS_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      q[h + 2 * i + 1] = TFXCLASS_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const Lanes low =
        TFXCLASS_SHUFFLE(q[i], q[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Lanes high =
        TFXCLASS_SHUFFLE(q[i], q[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(out + i * out_stride, &low, sizeof(low));
    std::memcpy(out + (i + 4) * out_stride, &high, sizeof(high));
  }
}

#undef TFXCLASS_SHUFFLE

}  // namespace internal

// Columns [begin, end) of in [rows, columns] become rows of out [columns,
// rows].
inline void TransposeColumns(const float* in, int64_t rows, int64_t columns,
                             int64_t begin, int64_t end, float* out) {
  if (rows == 0) return;  // of as many columns as you like
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) {
    int64_t r = 0;
    for (; r + kLanes <= rows; r += kLanes) {
      internal::TransposeEight(in + r * columns + c, columns,
                               out + c * rows + r, rows);
    }
    for (; r < rows; ++r) {
      for (int64_t j = c; j < c + kLanes; ++j) {
        out[j * rows + r] = in[r * columns + j];
      }
    }
  }
  for (; c < end; ++c) {
    for (int64_t r = 0; r < rows; ++r) out[c * rows + r] = in[r * columns + c];
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TRANSPOSE_H_
