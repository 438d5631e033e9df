// Groups of rows by the signs of their projections on the principal axes.
//
// The axes with the greatest variance are those of the covariance of a sample
// of the rows, by orthogonal iteration in float64 from a seeded start: axes
// whose variances are apart come out one by one, equal ones as some basis of
// their plane. A row's code has a bit an axis, whether its projection is at
// least the mean's; rows of one code are a group, and codes that no row has are
// left out. Cost: num_bits products a row, and of the sample dim products a
// row. The result does not depend on the threads.
#ifndef TFXCLASS_CORE_PRINCIPAL_AXES_H_
#define TFXCLASS_CORE_PRINCIPAL_AXES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "core/kmeans.h"
#include "core/padded_rows.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/row_groups.h"
#include "core/row_products.h"

namespace tfxclass {

// Square, [dim, dim], of rows minus their mean.
struct Moments {
  std::vector<double> mean, covariance;
};

// Of all rows, [count, padded], in float64 from float32 products.
inline Moments MomentsOf(const PaddedRows& rows, const ParallelFor& parallel) {
  const int64_t dim = rows.dim, count = rows.count;
  Moments moments{std::vector<double>(dim, 0.0),
                  std::vector<double>(dim * dim)};
  parallel.InOrder(count, dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t d = 0; d < dim; ++d) moments.mean[d] += rows.row(i)[d];
    }
  });
  for (double& x : moments.mean) x /= count;
  const int64_t padded = PaddedDim(count);
  std::vector<float> columns(dim * padded, 0.0f);
  parallel.InOrder(count, 5 * dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t d = 0; d < dim; ++d) {
        columns[d * padded + i] = rows.row(i)[d] - moments.mean[d];
      }
    }
  });
  parallel(dim, ProductCost(dim, padded), [&](int64_t begin, int64_t end) {
    for (int64_t d = begin; d < end; ++d) {
      for (int64_t e = 0; e < dim; ++e) {
        // Pieces: a float32 sum over all rows would lose digits.
        double sum = 0;
        for (int64_t i = 0; i < padded; i += 512) {
          sum += DotPadded(&columns[d * padded + i], &columns[e * padded + i],
                           std::min<int64_t>(512, padded - i));
        }
        moments.covariance[d * dim + e] = sum / count;
      }
    }
  });
  return moments;
}

// Makes vectors [count, dim] orthonormal in their order; one that depends on
// those before it becomes zero.
inline void Orthonormalize(int64_t count, int64_t dim,
                           std::vector<double>* vectors) {
  for (int64_t i = 0; i < count; ++i) {
    double* v = vectors->data() + i * dim;
    double before = 0, after = 0;
    for (int64_t d = 0; d < dim; ++d) before += v[d] * v[d];
    for (int round = 0; round < 2; ++round) {  // twice is enough (Kahan)
      for (int64_t j = 0; j < i; ++j) {
        const double* u = vectors->data() + j * dim;
        double along = 0;
        for (int64_t d = 0; d < dim; ++d) along += u[d] * v[d];
        for (int64_t d = 0; d < dim; ++d) v[d] -= along * u[d];
      }
    }
    for (int64_t d = 0; d < dim; ++d) after += v[d] * v[d];
    const double factor =
        after > 1e-20 * before && after > 0 ? 1 / std::sqrt(after) : 0.0;
    for (int64_t d = 0; d < dim; ++d) v[d] *= factor;
  }
}

// [num_axes, dim], greatest variance first; num_axes <= dim.
inline std::vector<double> PrincipalAxes(const std::vector<double>& covariance,
                                         int64_t dim, int64_t num_axes,
                                         Philox* random,
                                         const ParallelFor& parallel) {
  constexpr int kMostPasses = 300;
  constexpr double kStill = 1e-7;
  // Some more, so that the last one asked for settles as fast.
  const int64_t count = std::min(dim, num_axes + 4);
  std::vector<double> axes(count * dim), next(count * dim);
  for (double& x : axes) x = random->UniformDouble() - 0.5;
  Orthonormalize(count, dim, &axes);
  for (int pass = 0; pass < kMostPasses; ++pass) {
    for (int64_t a = 0; a < count; ++a) {
      parallel.Check();
      for (int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (int64_t e = 0; e < dim; ++e) {
          sum += covariance[d * dim + e] * axes[a * dim + e];
        }
        next[a * dim + d] = sum;
      }
    }
    Orthonormalize(count, dim, &next);
    double moved = 0;
    for (int64_t i = 0; i < num_axes * dim; ++i) {
      moved = std::max(moved, std::abs(next[i] - axes[i]));
    }
    axes.swap(next);
    if (moved < kStill) break;
  }
  axes.resize(num_axes * dim);
  return axes;
}

// Where a row's bits change: axis . row = threshold.
struct PrincipalPlanes {
  Centres axes;
  std::vector<float> thresholds;
};

inline PrincipalPlanes PlanesOf(const PaddedRows& rows, int64_t num_axes,
                                uint64_t seed, const ParallelFor& parallel) {
  // 32 MiB of the rows say enough of their variances.
  constexpr int64_t kSampledValues = int64_t{1} << 23;
  const int64_t dim = rows.dim;
  Philox random(seed);
  const Moments moments =
      MomentsOf(SampleRows(rows, std::max<int64_t>(kSampledValues / dim, 1),
                           &random, parallel),
                parallel);
  const auto axes =
      PrincipalAxes(moments.covariance, dim, num_axes, &random, parallel);
  PrincipalPlanes planes{Centres(num_axes, rows.padded), {}};
  for (int64_t a = 0; a < num_axes; ++a) {
    double threshold = 0;
    for (int64_t d = 0; d < dim; ++d) {
      planes.axes.row(a)[d] = axes[a * dim + d];
      threshold += axes[a * dim + d] * moments.mean[d];
    }
    planes.thresholds.push_back(threshold);
  }
  return planes;
}

inline std::vector<int32_t> CodesOf(const PaddedRows& rows,
                                    const PrincipalPlanes& planes,
                                    const ParallelFor& parallel) {
  std::vector<int32_t> codes(rows.count, 0);
  const int64_t num_axes = planes.axes.count;
  const int64_t blocks = (rows.count + kRowsTogether - 1) / kRowsTogether;
  const int64_t cost = ProductCost(kRowsTogether * num_axes, rows.padded);
  parallel(blocks, cost, [&](int64_t begin, int64_t end) {
    std::vector<float> products(kRowsTogether * num_axes);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kRowsTogether;
      const int64_t count = std::min(kRowsTogether, rows.count - first);
      RowProducts(rows.row(first), count, planes.axes.values.data(), num_axes,
                  rows.padded, products.data());
      for (int64_t i = 0; i < count * num_axes; ++i) {
        const int64_t a = i % num_axes;
        const int32_t bit = products[i] >= planes.thresholds[a];
        codes[first + i / num_axes] |= bit << a;
      }
    }
  });
  return codes;
}

// Rising, each once.
inline std::vector<int32_t> DistinctCodes(const std::vector<int32_t>& codes,
                                          const ParallelFor& parallel) {
  std::vector<int32_t> distinct, some, both;
  parallel.InOrder(codes.size(), /*cost=*/20, [&](int64_t begin, int64_t end) {
    some.assign(codes.begin() + begin, codes.begin() + end);
    std::sort(some.begin(), some.end());
    both.clear();
    std::set_union(distinct.begin(), distinct.end(), some.begin(),
                   std::unique(some.begin(), some.end()),
                   std::back_inserter(both));
    distinct.swap(both);
  });
  return distinct;
}

// 1 <= num_bits <= 30; no more than dim are used.
inline RowGroups PrincipalGroups(const PaddedRows& rows, int64_t num_bits,
                                 uint64_t seed, const ParallelFor& parallel) {
  const PrincipalPlanes planes =
      PlanesOf(rows, std::min(num_bits, rows.dim), seed, parallel);
  RowGroups groups;
  groups.group_of = CodesOf(rows, planes, parallel);
  const std::vector<int32_t> distinct =
      DistinctCodes(groups.group_of, parallel);
  parallel(rows.count, /*cost=*/50, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int32_t& code = groups.group_of[i];
      code = std::lower_bound(distinct.begin(), distinct.end(), code) -
             distinct.begin();
    }
  });
  groups.Sort(distinct.size(), parallel);
  return groups;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PRINCIPAL_AXES_H_
