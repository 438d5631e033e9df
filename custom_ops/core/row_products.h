// Dot products of every row of one matrix with every row of another.
//
// Both are row-major and padded, so nothing is packed: a tile of four rows by
// two keeps its eight sums in registers and loads six vectors for eight
// multiplications: over half of the peak of a core at 128 dimensions, where the
// second matrix fits in a cache. For results that do not depend on the number
// of threads, callers cut their rows into blocks of a fixed size.
#ifndef TFXCLASS_CORE_ROW_PRODUCTS_H_
#define TFXCLASS_CORE_ROW_PRODUCTS_H_

#include <cstdint>

#include "core/vectors.h"

namespace tfxclass {

// out[i * out_stride + j] = a_i . b_j for i < A, j < B.
template <int A, int B>
inline void ProductTile(const float* a, const float* b, int64_t padded,
                        float* out, int64_t out_stride) {
  Lanes sums[A][B] = {};
  for (int64_t d = 0; d < padded; d += kLanes) {
    Lanes of_b[B];
    for (int j = 0; j < B; ++j) of_b[j] = LoadLanes(b + j * padded + d);
    for (int i = 0; i < A; ++i) {
      const Lanes of_a = LoadLanes(a + i * padded + d);
      for (int j = 0; j < B; ++j) sums[i][j] += of_a * of_b[j];
    }
  }
  for (int i = 0; i < A; ++i) {
    for (int j = 0; j < B; ++j) out[i * out_stride + j] = SumLanes(sums[i][j]);
  }
}

// out [num_a, num_b].
inline void RowProducts(const float* a, int64_t num_a, const float* b,
                        int64_t num_b, int64_t padded, float* out) {
  int64_t i = 0;
  for (; i + 4 <= num_a; i += 4) {
    const float* rows = a + i * padded;
    float* to = out + i * num_b;
    int64_t j = 0;
    for (; j + 2 <= num_b; j += 2) {
      ProductTile<4, 2>(rows, b + j * padded, padded, to + j, num_b);
    }
    if (j < num_b) {
      ProductTile<4, 1>(rows, b + j * padded, padded, to + j, num_b);
    }
  }
  for (; i < num_a; ++i) {
    const float* row = a + i * padded;
    float* to = out + i * num_b;
    int64_t j = 0;
    for (; j + 8 <= num_b; j += 8) {
      ProductTile<1, 8>(row, b + j * padded, padded, to + j, num_b);
    }
    for (; j < num_b; ++j) {
      ProductTile<1, 1>(row, b + j * padded, padded, to + j, num_b);
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_PRODUCTS_H_
