// The directions of class rows in 8 bits a number: what a forest is built from.
//
// With a sketch, directions are those of random projections of the rows on so
// many Gaussian vectors (Johnson and Lindenstrauss). O(dim) a row, O(sketch
// dim) with one; memory: a byte a number.
#ifndef TFXCLASS_CORE_FOREST_ROWS_H_
#define TFXCLASS_CORE_FOREST_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/class_rows.h"
#include "core/parallel.h"
#include "core/rounded_rows.h"
#include "core/row_products.h"
#include "core/simhash.h"
#include "core/vectors.h"

namespace tfxclass {

// Random projections of rows [dim], the same for all forests.
class ForestSketch {
 public:
  ForestSketch(int64_t sketch, int64_t dim)
      : size_(sketch), dim_(dim), planes_(sketch * PaddedDim(dim), 0.0f) {
    const auto drawn = DrawGaussianPlanes(sketch, dim, kSeed, SerialFor);
    for (int64_t i = 0; i < sketch; ++i) {
      std::copy_n(&drawn[i * dim], dim, &planes_[i * PaddedDim(dim)]);
    }
  }

  int64_t size() const { return size_; }

  // rows [count, PaddedDim(dim)], to [count, size()].
  void Project(const float* rows, int64_t count, float* to) const {
    RowProducts(rows, count, planes_.data(), size_, PaddedDim(dim_), to);
  }

 private:
  static constexpr uint64_t kSeed = 0x5ce7c4;
  int64_t size_, dim_;
  std::vector<float> planes_;  // [size, PaddedDim(dim)]
};

using SharedSketch = std::shared_ptr<const ForestSketch>;

// Numbers of a sketch's planes at most.
constexpr int64_t kMostSketchNumbers = int64_t{1} << 22;

// Whether forests of rows [., dim] may have the sketch, 0 being none.
inline bool IsSketch(int64_t sketch, int64_t dim) {
  return sketch >= 0 &&
         (sketch == 0 || (sketch < dim && sketch <= kMostSketchNumbers / dim));
}

// Null for 0.
inline SharedSketch MakeSketch(int64_t sketch, int64_t dim) {
  if (sketch == 0) return nullptr;
  return std::make_shared<ForestSketch>(sketch, dim);
}

// Numbers of a direction.
inline int64_t DirectionDim(const SharedSketch& sketch, int64_t dim) {
  return sketch ? sketch->size() : dim;
}

// The directions of the rows, in 8 bits a number: what a build reads.
struct ForestRows {
  int64_t count = 0, dim = 0;  // of the class rows
  SharedSketch sketch;
  int64_t padded = 0;          // multiple of 16, rest zero
  std::vector<int8_t> values;  // [count, padded]

  const int8_t* row(int64_t i) const { return values.data() + i * padded; }

  void Prefetch(int64_t i) const {
    const char* from = reinterpret_cast<const char*>(row(i));
    for (int64_t b = 0; b < padded; b += 64) __builtin_prefetch(from + b);
  }
};

// The greatest number of a direction of so many.
inline float DirectionLevels(int64_t dim) {
  return std::min(127.0f, RoundingLevels(dim));
}

// row [dim] times what makes its greatest number `levels`; 0 if it is 0.
inline void RoundDirection(const float* row, int64_t dim, float levels,
                           int8_t* to) {
  const float largest = LargestOf(row, dim);
  // Of less the factor would be infinite.
  const bool is_zero = largest < levels / std::numeric_limits<float>::max();
  const float factor = is_zero ? 0.0f : levels / largest;
  for (int64_t d = 0; d < dim; ++d) {
    to[d] = static_cast<int8_t>(std::nearbyint(row[d] * factor));
  }
}

// Takes directions of a few rows at a time.
class DirectionTaker {
 public:
  static constexpr int64_t kTogether = 16;

  DirectionTaker(const ClassRows& kernel, ForestRows* rows)
      : kernel_(kernel),
        rows_(*rows),
        padded_(PaddedDim(kernel.dim)),
        size_(DirectionDim(rows->sketch, kernel.dim)),
        levels_(DirectionLevels(size_)),
        floats_(kTogether * padded_, 0.0f),
        projected_(kTogether * size_) {}

  // Rows [first, first + count), count <= kTogether. False if not finite.
  bool Take(int64_t first, int64_t count) {
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      float* const to = floats_.data() + i * padded_;
      const float* const row = kernel_.Row(first + i, to);
      if (row != to) std::copy_n(row, kernel_.dim, to);
      finite &= std::isfinite(DotPadded(to, to, padded_));
    }
    const float* from = floats_.data();
    int64_t stride = padded_;
    if (rows_.sketch) {
      rows_.sketch->Project(from, count, projected_.data());
      from = projected_.data();
      stride = size_;
    }
    for (int64_t i = 0; i < count; ++i) {
      RoundDirection(from + i * stride, size_, levels_,
                     rows_.values.data() + (first + i) * rows_.padded);
    }
    return finite;
  }

 private:
  const ClassRows& kernel_;
  ForestRows& rows_;
  const int64_t padded_, size_;
  const float levels_;
  std::vector<float> floats_;     // [kTogether, padded]
  std::vector<float> projected_;  // [kTogether, size]
};

// The snapshot that is taken while training waits. False if not finite.
inline bool TakeDirections(const ClassRows& kernel, int64_t sketch,
                           const ParallelFor& parallel, ForestRows* rows) {
  rows->count = kernel.count;
  rows->dim = kernel.dim;
  rows->sketch = MakeSketch(sketch, kernel.dim);
  rows->padded = (DirectionDim(rows->sketch, kernel.dim) + 15) / 16 * 16;
  rows->values.resize(kernel.count * rows->padded);
  constexpr int64_t kTogether = DirectionTaker::kTogether;
  const int64_t blocks = (kernel.count + kTogether - 1) / kTogether;
  const int64_t cost = kTogether * kernel.dim * (1 + sketch / 16);
  std::atomic<bool> finite{true};
  parallel(blocks, cost, [&](int64_t begin, int64_t end) {
    DirectionTaker taker(kernel, rows);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kTogether;
      const int64_t count = std::min(kTogether, kernel.count - first);
      if (!taker.Take(first, count)) finite = false;
    }
  });
  return finite;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FOREST_ROWS_H_
