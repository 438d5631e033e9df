// Linear one-vs-rest classifiers on sparse rows, by dual coordinate descent.
//
// For each label l of a tile, minimises over w (and a bias, penalised as w is)
//
//     |w|^2 / 2 + C sum_i max(0, 1 - y_i (w . x_i + b))^2,   y_i = +1 or -1.
//
// The dual has one variable a row and label. An epoch visits the rows in a
// random order and solves for the variables of all labels of the tile, given
// the rest (Hsieh et al., ICML 2008, algorithm 1). Labels do not depend on each
// other: side by side they share the reading of the row, and their weights of a
// feature are one row of memory, so that a row's weights are still in the first
// cache when the step is added to them. That is why the Gram matrix of a block
// of rows, which a matrix product would need, is not.
//
// A feature of one row alone needs no weights while the tile is solved: its
// weight is its value times the variable of that row (with its sign), so its
// part of the margin is value^2 times the variable. Of texts, most features are
// such.
//
// Time O(epochs * nonzeros * labels): 4 flops each. They wait for the weights
// of a row's features, which are read once from the outer caches a visit: those
// of the next row are asked for before. Memory of a tile: features of two rows
// and more x kTileLabels floats, and rows x kTileLabels. Tiles are independent:
// thread-safe.
#ifndef TFXCLASS_CORE_LINEAR_DUAL_H_
#define TFXCLASS_CORE_LINEAR_DUAL_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/philox.h"
#include "core/vectors.h"

namespace tfxclass {

// Eight vectors of eight: their sums stay in registers.
constexpr int kTileVectors = 8;
constexpr int64_t kTileLabels = kTileVectors * kLanes;

struct DualOptions {
  float c = 1.0f;
  float bias = 1.0f;  // The value of a feature that all rows have; 0: none.
  int64_t num_epochs = 8;
  float tolerance = 0.0f;  // Ends when the mean |step| of an epoch is less.
  uint64_t seed = 0;
};

// Rows of a problem: features in [0, num_features), of any order; and the
// features that no other row has, by a number of the caller's.
struct DualRows {
  int64_t num_features = 0;
  std::vector<int64_t> splits{0};
  std::vector<int32_t> features;
  std::vector<float> values;
  std::vector<int64_t> lone_splits{0};
  std::vector<int32_t> lone_features;
  std::vector<float> lone_values;
  int64_t size() const { return splits.size() - 1; }
};

// What a tile is solved in; kept from tile to tile, as new memory is slow.
struct DualState {
  std::vector<float> weights;  // [num_features + 1, width], the bias last.
  std::vector<float> duals;    // [rows, width]
  // Of each row: the squared norm, and the part of its lone features.
  std::vector<float> norms, lone_norms;
  std::vector<int32_t> order;
};

// Which rows have which labels of a tile: those of row i are
// columns[splits[i]] to columns[splits[i + 1]], in [0, kTileLabels).
struct TileLabels {
  std::vector<int64_t> splits{0};
  std::vector<uint8_t> columns;
};

// The order of rows in an epoch, the same for all tiles of a problem.
inline void ShuffleRows(uint64_t seed, int64_t epoch,
                        std::vector<int32_t>* order) {
  std::iota(order->begin(), order->end(), 0);
  Philox random(seed, epoch);
  for (int64_t i = order->size(); i > 1; --i) {
    std::swap((*order)[i - 1], (*order)[random.Below(i)]);
  }
}

namespace internal {

inline Lanes Spread(float value) { return Lanes{} + value; }

inline void StoreLanes(Lanes lanes, float* to) {
  std::memcpy(to, &lanes, sizeof(lanes));
}

inline Lanes MaxZero(Lanes x) { return x > 0.0f ? x : Lanes{}; }

// The new variables of squared hinge: the minimum along each, at least 0.
struct SquaredHinge {
  explicit SquaredHinge(const DualOptions& options)
      : diagonal(0.5f / options.c) {}

  Lanes Solve(Lanes a, Lanes margin, float norm) const {
    const Lanes gradient = margin - 1.0f + diagonal * a;
    return MaxZero(a - gradient / (norm + diagonal));
  }
  float diagonal;
};

// The new variables, given the products of the weights with the signed row.
// Not inlined: the compiler may reorder sums, and would do so otherwise in
// tiles of another width. A label's weights would then depend on its tile.
__attribute__((noinline)) inline Lanes NewDuals(const SquaredHinge& rule,
                                                Lanes products, Lanes before,
                                                float norm, float lone) {
  return rule.Solve(before, products + lone * before, norm);
}

// One of V vectors of labels; a dual variable a row and label.
template <int V>
class TileSolver {
 public:
  // `state` has the weights to begin with, or none.
  TileSolver(const DualRows& rows, const TileLabels& labels,
             const DualOptions& options, DualState* state)
      : rows_(rows), labels_(labels), options_(options), state_(*state) {
    if (state_.weights.empty()) {
      state_.weights.assign((rows.num_features + 1) * kWidth, 0.0f);
    }
    state_.duals.assign(rows.size() * kWidth, 0.0f);
    state_.norms.resize(rows.size());
    state_.lone_norms.resize(rows.size());
    for (int64_t i = 0; i < rows.size(); ++i) {
      const float lone = Squares(rows.lone_values, rows.lone_splits[i],
                                 rows.lone_splits[i + 1]);
      state_.lone_norms[i] = lone;
      state_.norms[i] =
          options.bias * options.bias + lone +
          Squares(rows.values, rows.splits[i], rows.splits[i + 1]);
    }
  }

  void Solve() {
    std::vector<int32_t>& order = state_.order;
    order.resize(rows_.size());
    const SquaredHinge rule(options_);
    for (int64_t epoch = 0; epoch < options_.num_epochs; ++epoch) {
      ShuffleRows(options_.seed, epoch, &order);
      double moved = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        if (i + 1 < order.size()) Expect(order[i + 1]);
        moved += Visit(rule, order[i]);
      }
      if (moved < options_.tolerance * double(rows_.size()) * kWidth) break;
    }
  }

 private:
  static constexpr int64_t kWidth = V * kLanes;

  static float Squares(const std::vector<float>& values, int64_t begin,
                       int64_t end) {
    float sum = 0;
    for (int64_t n = begin; n < end; ++n) sum += values[n] * values[n];
    return sum;
  }

  float* Bias() { return state_.weights.data() + rows_.num_features * kWidth; }

  // Asks for what a visit of the row will read.
  void Expect(int64_t row) const {
    const int64_t end = rows_.splits[row + 1];
    for (int64_t n = rows_.splits[row]; n < end; ++n) {
      Prefetch(state_.weights.data() + rows_.features[n] * kWidth);
    }
    Prefetch(state_.duals.data() + row * kWidth);
  }

  static void Prefetch(const float* of_labels) {
    constexpr int kOfLine = 64 / sizeof(float);
    for (int at = 0; at < kWidth; at += kOfLine) {
      __builtin_prefetch(of_labels + at, 0, 2);  // Into the second cache.
    }
  }

  // The step of one row; the sum of its sizes.
  float Visit(const SquaredHinge& rule, int64_t row) {
    alignas(32) float sign[kWidth];
    std::fill_n(sign, kWidth, -1.0f);
    for (int64_t n = labels_.splits[row]; n < labels_.splits[row + 1]; ++n) {
      sign[labels_.columns[n]] = 1.0f;
    }
    Lanes sums[V];
    Margins(row, sums);
    float* duals = state_.duals.data() + row * kWidth;
    const float norm = state_.norms[row], lone = state_.lone_norms[row];
    Lanes moved{};
    for (int v = 0; v < V; ++v) {
      const Lanes y = LoadLanes(sign + v * kLanes);
      const Lanes before = LoadLanes(duals + v * kLanes);
      const Lanes after = NewDuals(rule, y * sums[v], before, norm, lone);
      StoreLanes(after, duals + v * kLanes);
      const Lanes step = after - before;
      moved += step > 0.0f ? step : -step;
      sums[v] = y * step;
    }
    const float total = SumLanes(moved);
    if (total > 0) AddStep(row, sums);
    return total;
  }

  void Margins(int64_t row, Lanes* sums) {
    const float* bias = Bias();
    for (int v = 0; v < V; ++v) {
      sums[v] = options_.bias * LoadLanes(bias + v * kLanes);
    }
    const int64_t end = rows_.splits[row + 1];
    for (int64_t n = rows_.splits[row]; n < end; ++n) {
      const float* w = state_.weights.data() + rows_.features[n] * kWidth;
      const Lanes x = Spread(rows_.values[n]);
      for (int v = 0; v < V; ++v) sums[v] += x * LoadLanes(w + v * kLanes);
    }
  }

  void AddStep(int64_t row, const Lanes* step) {
    Add(options_.bias, step, Bias());
    const int64_t end = rows_.splits[row + 1];
    for (int64_t n = rows_.splits[row]; n < end; ++n) {
      Add(rows_.values[n], step,
          state_.weights.data() + rows_.features[n] * kWidth);
    }
  }

  static void Add(float value, const Lanes* step, float* w) {
    const Lanes x = Spread(value);
    for (int v = 0; v < V; ++v) {
      StoreLanes(LoadLanes(w + v * kLanes) + x * step[v], w + v * kLanes);
    }
  }

  const DualRows& rows_;
  const TileLabels& labels_;
  const DualOptions& options_;
  DualState& state_;
};

template <int V>
void SolveWidth(const DualRows& rows, const TileLabels& labels,
                const DualOptions& options, DualState* state) {
  TileSolver<V>(rows, labels, options, state).Solve();
}

}  // namespace internal

// Solves for the labels of a tile; `vectors` in [1, kTileVectors], the width is
// vectors * kLanes. `state->weights` are those to begin with, or empty.
inline void SolveTile(const DualRows& rows, const TileLabels& labels,
                      int vectors, const DualOptions& options,
                      DualState* state) {
  using Solver = void (*)(const DualRows&, const TileLabels&,
                          const DualOptions&, DualState*);
  static constexpr Solver kSolvers[kTileVectors] = {
      internal::SolveWidth<1>, internal::SolveWidth<2>, internal::SolveWidth<3>,
      internal::SolveWidth<4>, internal::SolveWidth<5>, internal::SolveWidth<6>,
      internal::SolveWidth<7>, internal::SolveWidth<8>};
  kSolvers[vectors - 1](rows, labels, options, state);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LINEAR_DUAL_H_
