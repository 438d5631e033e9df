// Linear one-vs-rest classifiers of groups of labels, each over rows of its
// own: the levels of a label tree (Prabhu et al., Parabel, WWW 2018), or one
// group of all labels and all rows.
//
// Tiles of up to kTileLabels labels are solved side by side (linear_dual.h);
// threads take the largest first, and copy a group's rows once. What comes out
// is sparse: weights below a threshold are dropped, and the rest are sorted by
// feature, as a product with sparse rows reads them. Memory: a tile a thread,
// and the weights kept. The result does not depend on the number of threads.
#ifndef TFXCLASS_CORE_LINEAR_GROUPS_H_
#define TFXCLASS_CORE_LINEAR_GROUPS_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/linear_dual.h"
#include "core/parallel.h"

namespace tfxclass {

// A ragged array: row i is values[splits[i]] to values[splits[i + 1]].
struct RaggedIds {
  const int64_t* splits = nullptr;
  const int64_t* values = nullptr;
  int64_t size(int64_t i) const { return splits[i + 1] - splits[i]; }
  const int64_t* begin(int64_t i) const { return values + splits[i]; }
  const int64_t* end(int64_t i) const { return values + splits[i + 1]; }
};

struct LinearProblem {
  int64_t num_features = 0, num_labels = 0, num_groups = 0;
  RaggedIds features;  // Of each row.
  const float* values = nullptr;
  RaggedIds labels;        // Of each row.
  RaggedIds group_labels;  // Each label in one group at most.
  RaggedIds group_rows;
};

// The weights of a tile, by feature; columns are places in group_labels.
struct TileWeights {
  std::vector<int64_t> features;
  std::vector<int32_t> columns;
  std::vector<float> weights;
  std::vector<float> biases;  // One a label of the tile.
  bool is_finite = true;      // Else the descent has overflowed.
};

struct LinearTile {
  int64_t group = 0, begin = 0, end = 0;  // Places in group_labels.values.
  int64_t work = 0;
};

// Cuts each group into tiles of about equal size.
inline std::vector<LinearTile> CutTiles(const LinearProblem& problem) {
  std::vector<LinearTile> tiles;
  for (int64_t g = 0; g < problem.num_groups; ++g) {
    const int64_t first = problem.group_labels.splits[g];
    const int64_t size = problem.group_labels.size(g);
    const int64_t count = (size + kTileLabels - 1) / kTileLabels;
    for (int64_t t = 0; t < count; ++t) {
      tiles.push_back({g, first + size * t / count,
                       first + size * (t + 1) / count,
                       problem.group_rows.size(g)});
    }
  }
  return tiles;
}

// What a thread keeps between tiles: the rows of a group, and where features
// and labels are in a tile.
class TileReader {
 public:
  explicit TileReader(const LinearProblem& problem)
      : problem_(problem),
        place_(problem.num_features, -1),
        column_(problem.num_labels, -1) {}

  // The rows of a tile's group, features renumbered as they come; valid until
  // the next call.
  const DualRows& Rows(const LinearTile& tile) {
    if (tile.group == group_) return rows_;
    group_ = tile.group;
    rows_ = DualRows();
    used_.clear();
    const RaggedIds& group = problem_.group_rows;
    for (const int64_t* row = group.begin(group_); row != group.end(group_);
         ++row) {
      ReadRow(*row, &rows_);
    }
    rows_.num_features = used_.size();
    for (const int64_t feature : used_) place_[feature] = -1;
    return rows_;
  }

  TileLabels Labels(const LinearTile& tile) {
    const int64_t* members = problem_.group_labels.values;
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      column_[members[i]] = i - tile.begin;
    }
    TileLabels labels;
    const RaggedIds& group = problem_.group_rows;
    for (const int64_t* row = group.begin(tile.group);
         row != group.end(tile.group); ++row) {
      ReadLabels(*row, &labels);
    }
    for (int64_t i = tile.begin; i < tile.end; ++i) column_[members[i]] = -1;
    return labels;
  }

  // The feature behind each new number of the last group.
  const std::vector<int64_t>& features() const { return used_; }

 private:
  void ReadRow(int64_t row, DualRows* rows) {
    const RaggedIds& all = problem_.features;
    for (int64_t n = all.splits[row]; n < all.splits[row + 1]; ++n) {
      int32_t& place = place_[all.values[n]];
      if (place < 0) {
        place = used_.size();
        used_.push_back(all.values[n]);
      }
      rows->features.push_back(place);
      rows->values.push_back(problem_.values[n]);
    }
    rows->splits.push_back(rows->features.size());
  }

  void ReadLabels(int64_t row, TileLabels* labels) {
    const RaggedIds& all = problem_.labels;
    for (const int64_t* id = all.begin(row); id != all.end(row); ++id) {
      if (column_[*id] >= 0) labels->columns.push_back(column_[*id]);
    }
    labels->splits.push_back(labels->columns.size());
  }

  const LinearProblem& problem_;
  int64_t group_ = -1;
  DualRows rows_;
  std::vector<int32_t> place_, column_;
  std::vector<int64_t> used_;
};

// Keeps what is at least `threshold` of `dense` [features + 1, width].
inline TileWeights PruneTile(const LinearTile& tile,
                             const std::vector<int64_t>& features,
                             const std::vector<float>& dense, int64_t width,
                             const DualOptions& options, float threshold) {
  TileWeights kept;
  const int64_t count = tile.end - tile.begin;
  for (size_t f = 0; f < features.size(); ++f) {
    for (int64_t l = 0; l < count; ++l) {
      const float weight = dense[f * width + l];
      if (weight == 0 || std::fabs(weight) < threshold) continue;
      if (!std::isfinite(weight)) kept.is_finite = false;
      kept.features.push_back(features[f]);
      kept.columns.push_back(tile.begin + l);
      kept.weights.push_back(weight);
    }
  }
  const float* biases = dense.data() + features.size() * width;
  for (int64_t l = 0; l < count; ++l) {
    kept.biases.push_back(biases[l] * options.bias);
    if (!std::isfinite(kept.biases.back())) kept.is_finite = false;
  }
  return kept;
}

inline TileWeights TrainTile(const LinearTile& tile, const DualOptions& options,
                             float threshold, TileReader* reader) {
  const DualRows& rows = reader->Rows(tile);
  const TileLabels labels = reader->Labels(tile);
  DualOptions own = options;
  // The order of rows is the group's, whatever else is trained.
  own.seed += 0x9E3779B97F4A7C15ull * tile.group;
  const int vectors = (tile.end - tile.begin + kLanes - 1) / kLanes;
  const std::vector<float> dense = SolveTile(rows, labels, vectors, own);
  return PruneTile(tile, reader->features(), dense, vectors * kLanes, options,
                   threshold);
}

// The weights of all tiles, in the order of the tiles.
inline std::vector<TileWeights> TrainGroups(const LinearProblem& problem,
                                            const DualOptions& options,
                                            float threshold,
                                            const ParallelFor& parallel_for) {
  const std::vector<LinearTile> tiles = CutTiles(problem);
  std::vector<int64_t> order(tiles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tiles[a].work > tiles[b].work;
  });
  std::vector<TileWeights> results(tiles.size());
  std::atomic<size_t> next{0};
  constexpr int64_t kCost = 1000000000;  // A second, so that all threads come.
  parallel_for(tiles.size(), kCost, [&](int64_t, int64_t) {
    TileReader reader(problem);
    for (size_t i = next++; i < order.size(); i = next++) {
      results[order[i]] =
          TrainTile(tiles[order[i]], options, threshold, &reader);
    }
  });
  return results;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LINEAR_GROUPS_H_
