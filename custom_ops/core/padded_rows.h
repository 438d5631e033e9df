// Rows copied for an index: padded, as they are or their directions, and their
// norms.
#ifndef TFXCLASS_CORE_PADDED_ROWS_H_
#define TFXCLASS_CORE_PADDED_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/class_rows.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/vectors.h"

namespace tfxclass {

struct PaddedRows {
  int64_t count = 0, dim = 0, padded = 0;
  std::vector<float> values;  // [count, padded]
  std::vector<float> norms;   // [count], before they were normalised

  const float* row(int64_t i) const { return values.data() + i * padded; }
};

inline float Norm(const float* row, int64_t padded) {
  return std::sqrt(DotPadded(row, row, padded));
}

// To length 1, or 0 if that is its norm.
inline void Normalize(float norm, float* row, int64_t padded) {
  const float factor = norm > 0 ? 1 / norm : 0.0f;
  for (int64_t d = 0; d < padded; ++d) row[d] *= factor;
}

// Rows ids[0, count) of the kernel, or its first `count` where ids is null; of
// length 1 with `normalize`. False if one is not finite.
inline bool CopyRows(const ClassRows& kernel, const int64_t* ids, int64_t count,
                     bool normalize, const ParallelFor& parallel,
                     PaddedRows* rows) {
  const int64_t dim = kernel.dim;
  rows->count = count;
  rows->dim = dim;
  rows->padded = PaddedDim(dim);
  rows->values.resize(count * rows->padded);
  rows->norms.resize(count);
  std::atomic<bool> finite{true};
  parallel(count, dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* to = rows->values.data() + i * rows->padded;
      const float* from = kernel.Row(ids == nullptr ? i : ids[i], to);
      if (from != to) std::copy_n(from, dim, to);
      std::fill(to + dim, to + rows->padded, 0.0f);
      const float norm = rows->norms[i] = Norm(to, rows->padded);
      if (normalize) Normalize(norm, to, rows->padded);
      if (!std::isfinite(norm)) finite = false;
    }
  });
  return finite;
}

// Copies rows ids[0, count) of `from`, without their norms.
template <class Id>
PaddedRows Gather(const PaddedRows& from, const Id* ids, int64_t count,
                  const ParallelFor& parallel) {
  PaddedRows rows{count, from.dim, from.padded, {}, {}};
  rows.values.reserve(count * from.padded);
  parallel.InOrder(count, from.padded, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const row = from.row(ids[i]);
      rows.values.insert(rows.values.end(), row, row + from.padded);
    }
  });
  return rows;
}

// At most `size` of the rows, one from each stretch of them.
inline PaddedRows SampleRows(const PaddedRows& rows, int64_t size,
                             Philox* random, const ParallelFor& parallel) {
  const int64_t count = rows.count;
  size = std::min(size, count);
  std::vector<int64_t> sample(size);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t begin = count * i / size;
    const int64_t end = count * (i + 1) / size;
    sample[i] = begin + random->Below(end - begin);
  }
  return Gather(rows, sample.data(), size, parallel);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PADDED_ROWS_H_
