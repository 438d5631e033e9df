// SimHash: the sign of a product with a random vector (Charikar, STOC 2002).
//
// Two vectors at the angle theta get the same bit with probability
// 1 - theta / pi. Dense planes are Gaussian, which makes that exact; sparse
// ones have independent signs +-1 at a third of the coordinates, drawn without
// replacement (Li, Hastie and Church, KDD 2006: near it for vectors whose
// weight is not on a few coordinates), and cost a third of the work without
// products. A product of 0, so every bit of the zero vector, is bit 0.
//
// Time: `dim` multiply-adds, or dim / 3 additions, a bit and row, 32 rows at a
// time. A row's code depends neither on its place in a block nor on the range
// of tables asked for. Thread-safe.
#ifndef TFXCLASS_CORE_SIMHASH_H_
#define TFXCLASS_CORE_SIMHASH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "core/lane_rows.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/tile_dispatch.h"
#include "core/vectors.h"

namespace tfxclass {

typedef int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(int32_t))));

// The codes of a block's rows for one table, while its functions are applied.
struct CodeLanes {
  IntLanes lanes[kBlockVectors] = {};

  void Store(uint32_t* to) const { std::memcpy(to, lanes, sizeof(lanes)); }

  void AppendSigns(const Lanes* products) {
    for (int64_t j = 0; j < kBlockVectors; ++j) {
      // A comparison that holds is -1.
      lanes[j] = lanes[j] + lanes[j] - (products[j] > Lanes{});
    }
  }
};

// Gaussian planes, [count, dim], by Box and Muller's method.
inline std::vector<float> DrawGaussianPlanes(int64_t count, int64_t dim,
                                             uint64_t seed,
                                             const ParallelFor& parallel) {
  std::vector<float> planes(count * dim);
  parallel(count, dim * 20, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      Philox random(seed, p);
      for (int64_t d = 0; d < dim; d += 2) {
        const double radius = std::sqrt(-2.0 * std::log(random.Uniform()));
        const double angle = 6.283185307179586 * random.Uniform();
        planes[p * dim + d] = radius * std::cos(angle);
        if (d + 1 < dim) planes[p * dim + d + 1] = radius * std::sin(angle);
      }
    }
  });
  return planes;
}

inline int64_t SparsePlaneSize(int64_t dim) { return (dim + 2) / 3; }

// Sparse planes: of a plane's SparsePlaneSize(dim) coordinates, the first
// num_positive have the sign +1.
struct SparsePlanes {
  std::vector<int32_t> coordinates, num_positive;
};

inline SparsePlanes DrawSparsePlanes(int64_t count, int64_t dim, uint64_t seed,
                                     const ParallelFor& parallel) {
  const int64_t size = SparsePlaneSize(dim);
  SparsePlanes planes;
  planes.coordinates.resize(count * size);
  planes.num_positive.resize(count);
  parallel(count, dim * 5, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> all(dim);
    for (int64_t p = begin; p < end; ++p) {
      Philox random(seed, p);
      std::iota(all.begin(), all.end(), 0);
      int64_t positive = 0;
      for (int64_t i = 0; i < size; ++i) {
        std::swap(all[i], all[i + random.Below(dim - i)]);
        if (random.Next() >> 31) std::swap(all[i], all[positive++]);
      }
      std::copy_n(all.begin(), size, planes.coordinates.begin() + p * size);
      planes.num_positive[p] = positive;
    }
  });
  return planes;
}

namespace internal {

inline void AddCoordinates(const float* block, const int32_t* coordinates,
                           int64_t count, Lanes* sums) {
  // Two halves side by side, for the same latency.
  Lanes even[kBlockVectors] = {}, odd[kBlockVectors] = {};
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    const float* x = block + coordinates[i] * kBlockRows;
    const float* y = block + coordinates[i + 1] * kBlockRows;
    for (int64_t j = 0; j < kBlockVectors; ++j) {
      even[j] += LoadLanes(x + j * kLanes);
      odd[j] += LoadLanes(y + j * kLanes);
    }
  }
  for (; i < count; ++i) {
    const float* x = block + coordinates[i] * kBlockRows;
    for (int64_t j = 0; j < kBlockVectors; ++j) {
      even[j] += LoadLanes(x + j * kLanes);
    }
  }
  for (int64_t j = 0; j < kBlockVectors; ++j) sums[j] = even[j] + odd[j];
}

}  // namespace internal

// Writes the codes of tables [first, first + num) of num_hashes planes each,
// to[table - first] [32], `stride` apart.
inline void DenseSimHashCodes(const std::vector<float>& planes, int64_t dim,
                              int64_t num_hashes, const float* block,
                              int64_t first, int64_t num, uint32_t* to,
                              int64_t stride) {
  // Four tiles of the rows that the fastest of TileKernels has in registers.
  constexpr int64_t kTogether = 48;
  static_assert(kBlockRows == kPanel, "a block is a panel");
  float products[kTogether * kBlockRows];
  const int64_t begin = first * num_hashes, end = (first + num) * num_hashes;
  CodeLanes codes;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t place = (p - begin) % kTogether;
    if (place == 0) {
      BestTiles().multiply({planes.data() + p * dim, dim, 1, kPanel}, block,
                           std::min(kTogether, end - p), dim, false, products,
                           kBlockRows);
    }
    Lanes of_plane[kBlockVectors];
    std::memcpy(of_plane, products + place * kBlockRows, sizeof(of_plane));
    codes.AppendSigns(of_plane);
    if ((p + 1) % num_hashes) continue;
    codes.Store(to);
    codes = CodeLanes();
    to += stride;
  }
}

inline void SparseSimHashCodes(const SparsePlanes& planes, int64_t dim,
                               int64_t num_hashes, const float* block,
                               int64_t first, int64_t num, uint32_t* to,
                               int64_t stride) {
  const int64_t size = SparsePlaneSize(dim);
  Lanes plus[kBlockVectors], minus[kBlockVectors];
  for (int64_t t = first; t < first + num; ++t, to += stride) {
    CodeLanes codes;
    for (int64_t p = t * num_hashes; p < (t + 1) * num_hashes; ++p) {
      const int32_t* coordinates = planes.coordinates.data() + p * size;
      const int64_t positive = planes.num_positive[p];
      internal::AddCoordinates(block, coordinates, positive, plus);
      internal::AddCoordinates(block, coordinates + positive, size - positive,
                               minus);
      for (int64_t j = 0; j < kBlockVectors; ++j) plus[j] -= minus[j];
      codes.AppendSigns(plus);
    }
    codes.Store(to);
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SIMHASH_H_
