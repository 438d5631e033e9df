// Clusters rows: centres in two levels, near centres, groups.
//
// Centres are sqrt(K) cells that are clustered apart, from a sample of the
// rows; a row goes down its six nearest cells and then walks. So a build costs
// about 7 sqrt(K) + num_near products a row, not K. 1M rows of 128 in 10,000
// clusters, 4,000 lists: 7.5 s of a core, where faiss takes 75 s for centres in
// one level (as many passes and rows), with recall 0.935 instead of 0.972 of
// the 100 greatest products, 4 probed; three cells take 5.3 s for 0.908. 97 %
// of the rows are at their nearest centre. All that is before two joint passes
// over all centres and rows, in which rows walk from where they were: through
// the cells they would no longer find the moved centres. Of 500,000 rows of 64
// these take recall from 0.554 to 0.566 and the time from 2.0 to 2.2 s. The
// result does not depend on the threads.
#ifndef TFXCLASS_CORE_CLUSTER_BUILDER_H_
#define TFXCLASS_CORE_CLUSTER_BUILDER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/cluster_index.h"
#include "core/kmeans.h"
#include "core/padded_rows.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/row_groups.h"

namespace tfxclass {

class ClusterBuilder {
 public:
  // 1 <= num_clusters; no more than rows are made.
  ClusterBuilder(const PaddedRows& rows, int64_t num_clusters, uint64_t seed,
                 const ParallelFor& parallel)
      : rows_(rows),
        num_clusters_(std::min(num_clusters, rows.count)),
        seed_(seed),
        parallel_(parallel) {}

  RowGroups Build() {
    TrainCentres();
    FindNear();
    Assign(rows_, &index_.groups);
    for (int pass = 0; pass < kJointPasses; ++pass) MoveAll();
    return std::move(index_.groups);
  }

 private:
  static constexpr int64_t kPasses = 8;
  static constexpr int kJointPasses = 2;
  static constexpr int64_t kSampledPerCentre = 64;
  static constexpr int64_t kNear = 32;
  static constexpr int64_t kTriedCells = 6;

  // One level will do for few clusters.
  int64_t NumCells() const {
    return num_clusters_ < 64 ? 1 : std::lround(std::sqrt(num_clusters_));
  }

  void TrainCentres() {
    Philox random(seed_);
    const PaddedRows sample = SampleRows(
        rows_, num_clusters_ * kSampledPerCentre, &random, parallel_);
    const PaddedRows few = SampleRows(
        sample, NumCells() * 4 * kSampledPerCentre, &random, parallel_);
    cells_ = KMeans(few, NumCells(), kPasses, &random, parallel_);
    RowGroups by_cell;
    AssignRows(cells_, sample, parallel_, &by_cell);
    Allot(by_cell);
    TrainCells(sample, by_cell);
    DropEmptyCells();
  }

  // A cell without rows goes; each other one gets a cluster, and of those left
  // a share by its further rows, so never more clusters than rows.
  void Allot(const RowGroups& by_cell) {
    int64_t kept = 0;
    for (int64_t c = 0; c < cells_.count; ++c) kept += by_cell.size(c) > 0;
    const int64_t shared = num_clusters_ - kept;
    const int64_t further = std::max<int64_t>(by_cell.count() - kept, 1);
    int64_t seen = 0;
    first_.assign(1, 0);
    for (int64_t c = 0; c < cells_.count; ++c) {
      int64_t own = 0;
      if (by_cell.size(c) > 0) {
        const int64_t before = shared * seen / further;
        seen += by_cell.size(c) - 1;
        own = 1 + shared * seen / further - before;
      }
      first_.push_back(first_.back() + own);
    }
  }

  void TrainCells(const PaddedRows& sample, const RowGroups& by_cell) {
    index_.centres = Centres(num_clusters_, rows_.padded);
    const int64_t rows_a_cell = sample.count / cells_.count + 1;
    const int64_t cost =
        kPasses *
        ProductCost(rows_a_cell * num_clusters_ / cells_.count, rows_.padded);
    const auto train = [&](int64_t c, const ParallelFor& parallel) {
      const int64_t own = first_[c + 1] - first_[c];
      if (own == 0) return;
      const PaddedRows rows =
          Gather(sample, by_cell.begin(c), by_cell.size(c), parallel);
      Philox random(seed_, c + 1);
      const Centres centres = KMeans(rows, own, kPasses, &random, parallel);
      std::copy(centres.values.begin(), centres.values.end(),
                index_.centres.row(first_[c]));
    };
    if (cells_.count == 1) return train(0, parallel_);
    const ParallelFor serial = parallel_.Serial();
    parallel_(cells_.count, cost, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) train(c, serial);
    });
  }

  void DropEmptyCells() {
    int64_t kept = 0;
    for (int64_t c = 0; c < cells_.count; ++c) {
      if (first_[c + 1] == first_[c]) continue;
      std::copy_n(cells_.row(c), cells_.padded, cells_.row(kept));
      first_[kept + 1] = first_[c + 1];
      ++kept;
    }
    cells_.count = kept;
    first_.resize(kept + 1);
  }

  void FindNear() {
    const Centres& centres = index_.centres;
    const int64_t count = centres.count;
    const int64_t num_near = std::min(kNear, count - 1);
    index_.num_near = num_near;
    index_.near.resize(count * num_near);
    parallel_(count, ProductCost(count, centres.padded),
              [&](int64_t begin, int64_t end) {
                std::vector<std::pair<float, int32_t>> others(count);
                for (int64_t c = begin; c < end; ++c) {
                  for (int64_t o = 0; o < count; ++o) {
                    others[o] = {-index_.Nearness(centres.row(c), o), o};
                  }
                  others[c].first = std::numeric_limits<float>::infinity();
                  std::partial_sort(others.begin(), others.begin() + num_near,
                                    others.end());
                  for (int64_t i = 0; i < num_near; ++i) {
                    index_.near[c * num_near + i] = others[i].second;
                  }
                }
              });
  }

  // A pass over all centres and rows, each row a walk from where it was.
  void MoveAll() {
    MoveCentres(rows_, index_.groups, parallel_, &index_.centres);
    FillEmpty(index_.groups, &index_.centres);
    FindNear();
    index_.WalkRows(rows_, parallel_);
  }

  // Down the best cells, then the walk.
  void Assign(const PaddedRows& rows, RowGroups* groups) const {
    groups->group_of.resize(rows.count);
    const int64_t per_row =
        cells_.count + 2 * kNear + kTriedCells * num_clusters_ / cells_.count;
    parallel_((rows.count + kRowsTogether - 1) / kRowsTogether,
              ProductCost(kRowsTogether * per_row, rows.padded),
              [&](int64_t begin, int64_t end) {
                std::vector<float> products;
                for (int64_t b = begin; b < end; ++b) {
                  const int64_t first = b * kRowsTogether;
                  AssignBlock(rows.row(first),
                              std::min(kRowsTogether, rows.count - first),
                              &products, &groups->group_of[first]);
                }
              });
    groups->Sort(num_clusters_, parallel_);
  }

  void AssignBlock(const float* rows, int64_t count,
                   std::vector<float>* products, int32_t* group_of) const {
    const int64_t num_cells = cells_.count;
    const int64_t kept = std::min(kTriedCells, num_cells);
    std::vector<float> of_cells(count * num_cells);
    RowProducts(rows, count, cells_.values.data(), num_cells, rows_.padded,
                of_cells.data());
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * rows_.padded;
      float* of_row = &of_cells[i * num_cells];
      int32_t best = first_[0];
      for (int64_t tried = 0; tried < kept; ++tried) {
        float* cell = std::max_element(of_row, of_row + num_cells);
        *cell = -std::numeric_limits<float>::infinity();
        int32_t nearest;
        NearestCentres(index_.centres, first_[cell - of_row],
                       first_[cell - of_row + 1], row, 1, products, &nearest);
        if (tried == 0 ||
            index_.Nearness(row, nearest) > index_.Nearness(row, best)) {
          best = nearest;
        }
      }
      group_of[i] = index_.Walk(row, best);
    }
  }

  const PaddedRows& rows_;
  const int64_t num_clusters_;
  const uint64_t seed_;
  const ParallelFor& parallel_;
  ClusterIndex index_;
  Centres cells_;
  std::vector<int64_t> first_;  // centre of each cell, and the end
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLUSTER_BUILDER_H_
