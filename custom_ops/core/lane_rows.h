// Rows stored so that 32 of them are hashed at once, one in each vector lane.
//
// A block of 32 rows is [dim, 32]: a hash function then reads, for each
// coordinate it looks at, four vectors that are next to each other, and codes
// need no horizontal sums. A block of 128 coordinates stays in a first-level
// cache. Memory: the rows, rounded up to whole blocks.
#ifndef TFXCLASS_CORE_LANE_ROWS_H_
#define TFXCLASS_CORE_LANE_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/class_rows.h"
#include "core/parallel.h"
#include "core/vectors.h"

namespace tfxclass {

constexpr int64_t kBlockVectors = 4;
constexpr int64_t kBlockRows = kBlockVectors * kLanes;

struct LaneRows {
  int64_t count = 0, dim = 0;
  std::vector<float> values;  // [blocks, dim, 32], 0 past the last row

  int64_t blocks() const { return (count + kBlockRows - 1) / kBlockRows; }
  float* block(int64_t b) { return values.data() + b * dim * kBlockRows; }
  const float* block(int64_t b) const {
    return values.data() + b * dim * kBlockRows;
  }

  void Resize(int64_t new_count, int64_t new_dim) {
    count = new_count;
    dim = new_dim;
    values.resize(blocks() * dim * kBlockRows);
    if (count > 0) std::fill_n(block(blocks() - 1), dim * kBlockRows, 0.0f);
  }

  // Row i becomes row[0, length); coordinates from there on become 0.
  void Set(int64_t i, const float* row, int64_t length) {
    float* to = block(i / kBlockRows) + i % kBlockRows;
    for (int64_t d = 0; d < length; ++d) to[d * kBlockRows] = row[d];
    for (int64_t d = length; d < dim; ++d) to[d * kBlockRows] = 0.0f;
  }
};

// The squared norms of the rows of a block, out [32].
inline void SquaredNorms(const float* block, int64_t dim, float* out) {
  std::fill_n(out, kBlockRows, 0.0f);
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t j = 0; j < kBlockRows; ++j) {
      out[j] += block[d * kBlockRows + j] * block[d * kBlockRows + j];
    }
  }
}

// Blocks of class rows, read where they lie: those of `ids`, or all where it is
// null, with `extra` coordinates of 0 after their own.
struct LaneBlocks {
  const ClassRows& rows;
  const std::vector<int64_t>* ids;
  int64_t extra;

  int64_t count() const { return ids ? ids->size() : rows.count; }
  int64_t dim() const { return rows.dim + extra; }
  int64_t blocks() const { return (count() + kBlockRows - 1) / kBlockRows; }

  // block [dim(), 32], 0 past the last row; `row` [rows.dim] is scratch memory.
  void Read(int64_t b, float* row, float* block) const {
    const int64_t first = b * kBlockRows;
    const int64_t num = std::min(kBlockRows, count() - first);
    for (int64_t j = 0; j < num; ++j) {
      const float* from = rows.Row(ids ? (*ids)[first + j] : first + j, row);
      for (int64_t d = 0; d < rows.dim; ++d)
        block[d * kBlockRows + j] = from[d];
    }
    for (int64_t d = 0; d < dim(); ++d) {
      const int64_t begin = d < rows.dim ? num : 0;
      std::fill(block + d * kBlockRows + begin, block + (d + 1) * kBlockRows,
                0.0f);
    }
  }
};

// False if a row is not finite; *greatest is the greatest squared norm.
inline bool GreatestNorm(const LaneBlocks& from, const ParallelFor& parallel,
                         float* greatest) {
  std::mutex mutex;
  *greatest = 0;
  bool finite = true;
  parallel(from.blocks(), kBlockRows * from.dim(),
           [&](int64_t begin, int64_t end) {
             std::vector<float> row(from.rows.dim);
             std::vector<float> block(from.dim() * kBlockRows);
             float squared[kBlockRows], most = 0;
             bool all_finite = true;
             for (int64_t b = begin; b < end; ++b) {
               from.Read(b, row.data(), block.data());
               SquaredNorms(block.data(), from.rows.dim, squared);
               for (const float s : squared) {
                 all_finite &= std::isfinite(s);
                 most = std::max(most, s);
               }
             }
             std::lock_guard<std::mutex> lock(mutex);
             finite &= all_finite;
             *greatest = std::max(*greatest, most);
           });
  return finite;
}

// Sets the last coordinate so that every row's squared norm becomes
// `greatest`, or leaves it 0 where the norm is greater than that.
inline void EqualizeNorms(float greatest, int64_t dim, float* block) {
  float squared[kBlockRows];
  SquaredNorms(block, dim - 1, squared);
  float* last = block + (dim - 1) * kBlockRows;
  for (int64_t j = 0; j < kBlockRows; ++j) {
    last[j] = std::sqrt(std::max(greatest - squared[j], 0.0f));
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LANE_ROWS_H_
