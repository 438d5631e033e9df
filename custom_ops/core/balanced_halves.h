// Spherical 2-means with halves of equal size, of many groups of rows at once.
//
// A group's two centres start as two of its rows; each pass orders its rows by
// which centre they are nearer to, gives the first half to the left one, and
// moves both to the direction of the mean of theirs, until the sum of the
// products with the centres grows by less than 1e-4. Time O(passes x rows x
// (dim + log rows)); memory 8 bytes a row beside the rows. The result does not
// depend on the threads.
#ifndef TFXCLASS_CORE_BALANCED_HALVES_H_
#define TFXCLASS_CORE_BALANCED_HALVES_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/kmeans.h"
#include "core/padded_rows.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace tfxclass {

// Orders the rows ids[0, count), two or more, so that the left half,
// (count + 1) / 2 of them, comes first.
class Halver {
 public:
  Halver(const PaddedRows& rows, int64_t* ids, int64_t count,
         const ParallelFor& parallel)
      : rows_(rows), ids_(ids), count_(count), parallel_(parallel) {}

  void Halve(int64_t passes, Philox* random) {
    DrawAxis(random);
    scores_.resize(count_);
    double gained = 0;
    for (int64_t pass = 0; pass < passes; ++pass) {
      Order();
      const double gain = MoveCentres();
      if (gain - gained <= kLeastGain * gain) break;
      gained = gain;
    }
  }

 private:
  static constexpr double kLeastGain = 1e-4;
  // Rows whose sum has one owner.
  static constexpr int64_t kBlock = 4096;

  // The difference of the centres, right less left, of two rows.
  void DrawAxis(Philox* random) {
    const int64_t one = random->Below(count_);
    const int64_t other = (one + 1 + random->Below(count_ - 1)) % count_;
    const float* left = rows_.row(ids_[one]);
    const float* right = rows_.row(ids_[other]);
    axis_.resize(rows_.padded);
    for (int64_t d = 0; d < rows_.padded; ++d) axis_[d] = right[d] - left[d];
  }

  // By product with the axis; equal ones, and NaN has no place, by row.
  void Order() {
    parallel_(count_, ProductCost(1, rows_.padded),
              [this](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const float* row = rows_.row(ids_[i]);
                  scores_[i] = {DotPadded(row, axis_.data(), rows_.padded),
                                ids_[i]};
                }
              });
    std::nth_element(scores_.begin(), scores_.begin() + (count_ - 1) / 2,
                     scores_.end());
    for (int64_t i = 0; i < count_; ++i) ids_[i] = scores_[i].second;
  }

  // The axis between the halves; returns the sum of the products.
  double MoveCentres() {
    const int64_t half = (count_ + 1) / 2;
    std::vector<double> left = Sum(0, half), right = Sum(half, count_);
    const double of_left = Length(left), of_right = Length(right);
    for (int64_t d = 0; d < rows_.padded; ++d) {
      axis_[d] = right[d] / std::max(of_right, kTiny) -
                 left[d] / std::max(of_left, kTiny);
    }
    return of_left + of_right;
  }

  static constexpr double kTiny = 1e-30;

  static double Length(const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return std::sqrt(squares);
  }

  // Of the rows ids[first, last), block by block.
  std::vector<double> Sum(int64_t first, int64_t last) {
    const int64_t blocks = (last - first + kBlock - 1) / kBlock;
    std::vector<float> parts(blocks * rows_.padded);
    parallel_(blocks, ProductCost(kBlock, rows_.padded),
              [&](int64_t begin, int64_t end) {
                for (int64_t b = begin; b < end; ++b) {
                  const int64_t start = first + b * kBlock;
                  AddRows(rows_, ids_ + start, std::min(kBlock, last - start),
                          &parts[b * rows_.padded]);
                }
              });
    std::vector<double> sum(rows_.padded);
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t d = 0; d < rows_.padded; ++d) {
        sum[d] += parts[b * rows_.padded + d];
      }
    }
    return sum;
  }

  const PaddedRows& rows_;
  int64_t* const ids_;
  const int64_t count_;
  const ParallelFor& parallel_;
  std::vector<float> axis_;
  std::vector<std::pair<float, int64_t>> scores_;
};

// Orders the rows of each group, ids[starts[g], starts[g] + sizes[g]), with
// the left half first; groups of one row stay. Each group draws from `seed` and
// its start.
inline void HalveGroups(const PaddedRows& rows,
                        const std::vector<int64_t>& starts,
                        const std::vector<int64_t>& sizes, int64_t passes,
                        uint64_t seed, const ParallelFor& parallel,
                        int64_t* ids) {
  const auto halve = [&](int64_t g, const ParallelFor& within) {
    if (sizes[g] < 2) return;
    Philox random(seed, starts[g]);
    Halver(rows, ids + starts[g], sizes[g], within).Halve(passes, &random);
  };
  const int64_t count = starts.size();
  constexpr int64_t kFewGroups = 16;  // threads share each of them
  if (count < kFewGroups) {
    for (int64_t g = 0; g < count; ++g) halve(g, parallel);
    return;
  }
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  parallel(count, passes * ProductCost(2 * total / count + 1, rows.padded),
           [&](int64_t begin, int64_t end) {
             for (int64_t g = begin; g < end; ++g) halve(g, SerialFor);
           });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_BALANCED_HALVES_H_
