// Linear one-vs-rest classifiers of groups of labels, each over rows of its
// own: the levels of a label tree (Prabhu et al., Parabel, WWW 2018), or one
// group of all labels and all rows.
//
// Tiles of up to kTileLabels labels are solved side by side (linear_dual.h);
// threads take the largest first, and copy a group's rows once. What comes out
// is sparse: weights below a threshold are dropped, and the rest are sorted by
// feature, as a product with sparse rows reads them. Memory: a tile a thread,
// and 9 bytes for each weight that is kept. The result does not depend on the
// number of threads.
//
// Weights to begin with may be given. The penalty is then on the distance from
// them, and the result is the change.
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
template <class T>
struct Ragged {
  const int64_t* splits = nullptr;
  const T* values = nullptr;
  int64_t size(int64_t i) const { return splits[i + 1] - splits[i]; }
  const T* begin(int64_t i) const { return values + splits[i]; }
  const T* end(int64_t i) const { return values + splits[i + 1]; }
};

// Weights by feature; columns are places in group_labels, and ascend within a
// feature.
struct StartWeights {
  const int64_t* splits = nullptr;
  const int32_t* columns = nullptr;
  const float* values = nullptr;
  const float* biases = nullptr;
};

struct LinearProblem {
  int64_t num_features = 0, num_labels = 0, num_groups = 0;
  Ragged<int32_t> features;  // Of each row.
  const float* values = nullptr;
  Ragged<int64_t> labels;        // Of each row.
  Ragged<int64_t> group_labels;  // Each label in one group at most.
  Ragged<int64_t> group_rows;
  StartWeights start;  // Null: zeros.
};

// The weights of a tile, by feature; columns are places in the tile.
struct TileWeights {
  std::vector<int32_t> features;
  std::vector<uint8_t> columns;
  std::vector<float> weights;
  std::vector<float> biases;  // One a label of the tile.
  int64_t first = 0;          // The place of the tile in group_labels.
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
        place_(problem.num_features, kNone),
        column_(problem.num_labels, -1) {}

  // The rows of a tile's group, features renumbered as they come; valid until
  // the next call.
  const DualRows& Rows(const LinearTile& tile) {
    if (tile.group == group_) return rows_;
    group_ = tile.group;
    rows_ = DualRows();
    used_.clear();
    const Ragged<int64_t>& group = problem_.group_rows;
    const int64_t* end = group.end(group_);
    for (const int64_t* row = group.begin(group_); row != end; ++row) {
      CountRow(*row);
    }
    for (const int64_t* row = group.begin(group_); row != end; ++row) {
      ReadRow(*row, &rows_);
    }
    rows_.num_features = used_.size();
    for (const int32_t feature : used_) place_[feature] = kNone;
    for (const int32_t feature : rows_.lone_features) place_[feature] = kNone;
    return rows_;
  }

  TileLabels Labels(const LinearTile& tile) {
    const int64_t* members = problem_.group_labels.values;
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      column_[members[i]] = i - tile.begin;
    }
    TileLabels labels;
    const Ragged<int64_t>& group = problem_.group_rows;
    for (const int64_t* row = group.begin(tile.group);
         row != group.end(tile.group); ++row) {
      ReadLabels(*row, &labels);
    }
    for (int64_t i = tile.begin; i < tile.end; ++i) column_[members[i]] = -1;
    return labels;
  }

  // The feature behind each new number of the last group.
  const std::vector<int32_t>& features() const { return used_; }

  DualState& state() { return state_; }

  // Adds `sign` times the weights to begin with to those of the tile.
  void AddStart(const LinearTile& tile, int64_t width, float sign, float bias) {
    const StartWeights& start = problem_.start;
    float* weights = state_.weights.data();
    for (size_t f = 0; f < used_.size(); ++f) {
      const int32_t* end = start.columns + start.splits[used_[f] + 1];
      const int32_t* at = std::lower_bound(
          start.columns + start.splits[used_[f]], end, tile.begin);
      for (; at != end && *at < tile.end; ++at) {
        weights[f * width + *at - tile.begin] +=
            sign * start.values[at - start.columns];
      }
    }
    if (bias == 0) return;
    for (int64_t l = tile.begin; l < tile.end; ++l) {
      weights[used_.size() * width + l - tile.begin] +=
          sign * start.biases[l] / bias;
    }
  }

 private:
  // In place_, before a feature has a place: it is in no row, in one.
  static constexpr int32_t kNone = -1, kLone = -2, kShared = -3;

  void CountRow(int64_t row) {
    const Ragged<int32_t>& all = problem_.features;
    const bool is_new = problem_.start.splits == nullptr;
    for (int64_t n = all.splits[row]; n < all.splits[row + 1]; ++n) {
      int32_t& place = place_[all.values[n]];
      place = place == kNone && is_new ? kLone : kShared;
    }
  }

  void ReadRow(int64_t row, DualRows* rows) {
    const Ragged<int32_t>& all = problem_.features;
    for (int64_t n = all.splits[row]; n < all.splits[row + 1]; ++n) {
      int32_t& place = place_[all.values[n]];
      if (place == kLone) {
        rows->lone_features.push_back(all.values[n]);
        rows->lone_values.push_back(problem_.values[n]);
        continue;
      }
      if (place == kShared) {
        place = used_.size();
        used_.push_back(all.values[n]);
      }
      rows->features.push_back(place);
      rows->values.push_back(problem_.values[n]);
    }
    rows->splits.push_back(rows->features.size());
    rows->lone_splits.push_back(rows->lone_features.size());
  }

  void ReadLabels(int64_t row, TileLabels* labels) {
    const Ragged<int64_t>& all = problem_.labels;
    for (const int64_t* id = all.begin(row); id != all.end(row); ++id) {
      if (column_[*id] >= 0) labels->columns.push_back(column_[*id]);
    }
    labels->splits.push_back(labels->columns.size());
  }

  const LinearProblem& problem_;
  int64_t group_ = -1;
  DualRows rows_;
  std::vector<int32_t> place_, column_, used_;
  DualState state_;
};

// Keeps what is at least `threshold` of the weights of a tile.
class TilePruner {
 public:
  TilePruner(const LinearTile& tile, const DualRows& rows,
             const TileLabels& labels, const DualState& state, int64_t width,
             float threshold)
      : count_(tile.end - tile.begin),
        rows_(rows),
        labels_(labels),
        state_(state),
        width_(width),
        threshold_(threshold) {
    kept_.first = tile.begin;
  }

  TileWeights Prune(const std::vector<int32_t>& features, float bias) {
    // Counted first: vectors that grow would take twice the memory.
    int64_t total = 0;
    ForEach(features, [&](int32_t, int64_t, float) { ++total; });
    kept_.features.reserve(total);
    kept_.columns.reserve(total);
    kept_.weights.reserve(total);
    ForEach(features, [&](int32_t feature, int64_t label, float weight) {
      if (!std::isfinite(weight)) kept_.is_finite = false;
      kept_.features.push_back(feature);
      kept_.columns.push_back(label);
      kept_.weights.push_back(weight);
    });
    const float* biases = state_.weights.data() + features.size() * width_;
    for (int64_t l = 0; l < count_; ++l) {
      kept_.biases.push_back(biases[l] * bias);
      if (!std::isfinite(kept_.biases.back())) kept_.is_finite = false;
    }
    return std::move(kept_);
  }

 private:
  // Calls use(feature, label, weight) for each weight that is kept.
  template <typename Use>
  void ForEach(const std::vector<int32_t>& features, const Use& use) const {
    for (size_t f = 0; f < features.size(); ++f) {
      const float* weights = state_.weights.data() + f * width_;
      for (int64_t l = 0; l < count_; ++l) {
        if (IsKept(weights[l])) use(features[f], l, weights[l]);
      }
    }
    for (int64_t row = 0; row < rows_.size(); ++row) UseLone(row, use);
  }

  // A lone feature's weights are the variables of its row, times its value.
  template <typename Use>
  void UseLone(int64_t row, const Use& use) const {
    const int64_t begin = rows_.lone_splits[row];
    const int64_t end = rows_.lone_splits[row + 1];
    if (begin == end) return;
    float signed_duals[kTileLabels];
    const float* duals = state_.duals.data() + row * width_;
    for (int64_t l = 0; l < count_; ++l) signed_duals[l] = -duals[l];
    for (int64_t n = labels_.splits[row]; n < labels_.splits[row + 1]; ++n) {
      const int64_t label = labels_.columns[n];
      signed_duals[label] = duals[label];
    }
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t l = 0; l < count_; ++l) {
        const float weight = rows_.lone_values[n] * signed_duals[l];
        if (IsKept(weight)) use(rows_.lone_features[n], l, weight);
      }
    }
  }

  bool IsKept(float weight) const {
    return weight != 0 && !(std::fabs(weight) < threshold_);
  }

  const int64_t count_;
  const DualRows& rows_;
  const TileLabels& labels_;
  const DualState& state_;
  const int64_t width_;
  const float threshold_;
  TileWeights kept_;
};

inline TileWeights TrainTile(const LinearProblem& problem,
                             const LinearTile& tile, const DualOptions& options,
                             float threshold, TileReader* reader) {
  const DualRows& rows = reader->Rows(tile);
  const TileLabels labels = reader->Labels(tile);
  DualOptions own = options;
  // The order of rows is the group's, whatever else is trained.
  own.seed += 0x9E3779B97F4A7C15ull * tile.group;
  const int vectors = (tile.end - tile.begin + kLanes - 1) / kLanes;
  const int64_t width = vectors * kLanes;
  const bool has_start = problem.start.splits != nullptr;
  DualState& state = reader->state();
  state.weights.clear();
  if (has_start) {
    state.weights.resize((rows.num_features + 1) * width);
    reader->AddStart(tile, width, 1.0f, options.bias);
  }
  SolveTile(rows, labels, vectors, own, &state);
  if (has_start) reader->AddStart(tile, width, -1.0f, options.bias);
  return TilePruner(tile, rows, labels, state, width, threshold)
      .Prune(reader->features(), options.bias);
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
          TrainTile(problem, tiles[order[i]], options, threshold, &reader);
    }
  });
  return results;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LINEAR_GROUPS_H_
