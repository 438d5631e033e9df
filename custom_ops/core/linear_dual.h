// Linear one-vs-rest classifiers on sparse rows, by dual coordinate descent.
//
// For each label l of a tile, minimises over w (and a bias, penalised as w is)
//
//     |w|^2 / 2 + C sum_i loss(y_i (w . x_i + b)),      y_i = +1 or -1,
//
// loss(z) = max(0, 1 - z)^2 or log(1 + exp(-z)); for the latter the penalty is
// on the distance of b from the log-odds of the label among the rows. The dual
// has one variable a row and label. An epoch visits the rows in a random order
// and solves for the variables of all labels of the tile, given the rest (Hsieh
// et al., ICML 2008, algorithm 1; for the logistic loss Yu, Huang and Lin,
// 2011). Labels do not depend on each other: side by side they share the
// reading of the row, and their weights of a feature are one row of memory, so
// that a row's weights are still in the first cache when the step is added to
// them. That is why the Gram matrix of a block of rows, which a matrix product
// would need, is not.
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
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/philox.h"
#include "core/vectors.h"

namespace tfxclass {

// Eight vectors of eight: their sums stay in registers.
constexpr int kTileVectors = 8;
constexpr int64_t kTileLabels = kTileVectors * kLanes;

enum class DualLoss { kSquaredHinge, kLogistic };

struct DualOptions {
  DualLoss loss = DualLoss::kSquaredHinge;
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

typedef int32_t LaneMask __attribute__((vector_size(sizeof(Lanes))));

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

inline LaneMask IsAbove(Lanes x, float bound) {
  return (x > bound) | (x < -bound);
}

inline bool Any(LaneMask mask) {
  int64_t parts[sizeof(mask) / sizeof(int64_t)];
  std::memcpy(parts, &mask, sizeof(mask));
  int64_t any = 0;
  for (const int64_t part : parts) any |= part;
  return any != 0;
}

// exp for x <= 0, relative error 3e-6: `FastExp` of eight numbers.
inline Lanes ExpOfNegative(Lanes x) {
  typedef int32_t Ints __attribute__((vector_size(sizeof(Lanes))));
  x = x > -87.0f ? x : Spread(-87.0f);
  const Ints whole = __builtin_convertvector(x * 1.44269504f - 0.5f, Ints);
  const Lanes r = x - __builtin_convertvector(whole, Lanes) * 0.69314718f;
  Lanes p = Spread(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Ints bits = (whole + 127) << 23;
  Lanes power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

inline Lanes SigmoidOf(Lanes t) {
  const Lanes e = ExpOfNegative(t > 0.0f ? -t : t);
  const Lanes small = e / (1.0f + e);
  return t > 0.0f ? 1.0f - small : small;
}

// The new variables of the logistic loss, in [0, C]: a few steps of Newton on
//     a log a + (C - a) log(C - a) + norm (a - before)^2 / 2 + margin a.
// Solved for t = logit(a / C): t + norm (C sigmoid(t) - before) + margin = 0,
// whose left side grows. It is convex below 0 and concave above, so on the
// root's side of 0 no step but the first passes the root. At the optimum of all
// variables t is -margin, where the steps begin.
struct Logistic {
  explicit Logistic(const DualOptions& options) : c(options.c) {}

  // Most variables hardly move: after a step of at most kSmall, the slope gives
  // the sigmoid of the new t. The error is of second order, and none at the
  // optimum, where no variable moves. The t of such a lane stays: its result
  // must not depend on how many steps the other lanes need.
  Lanes Solve(Lanes a, Lanes margin, float norm) const {
    const Lanes at_zero = norm * (0.5f * c - a) + margin;
    // The roots for a = 0 and a = C, and 0.
    Lanes low = -margin - norm * (c - a), high = -margin + norm * a;
    low = at_zero > 0.0f ? low : MaxZero(low);
    high = at_zero > 0.0f ? -MaxZero(-high) : high;
    Lanes t = Between(low, -margin, high);
    Lanes found{};
    LaneMask moves{};
    for (int step = 0; step < kSteps; ++step) {
      const Lanes p = SigmoidOf(t);
      const Lanes slope = p * (1.0f - p);
      const Lanes value = t + norm * (c * p - a) + margin;
      const Lanes next =
          Between(low, t - value / (1.0f + norm * c * slope), high);
      found = c * (p + slope * (next - t));
      moves = IsAbove(next - t, kSmall);
      if (!Any(moves)) return found;
      t = moves ? next : t;
    }
    return moves ? c * SigmoidOf(t) : found;
  }

  static Lanes Between(Lanes low, Lanes x, Lanes high) {
    x = x < low ? low : x;
    return x > high ? high : x;
  }

  static constexpr int kSteps = 3;
  static constexpr float kSmall = 0.02f;
  float c;
};

// The new variables, given the products of the weights with the signed row.
// Not inlined: the compiler may reorder sums, and would do so otherwise in
// tiles of another width. A label's weights would then depend on its tile.
template <typename Rule>
__attribute__((noinline)) Lanes NewDuals(const Rule& rule, Lanes products,
                                         Lanes before, float norm, float lone) {
  return rule.Solve(before, products + lone * before, norm);
}

// Adds the rows of each label to its count. A row that names a label twice is
// one of its rows, once.
template <int64_t kWidth>
void CountPositives(const TileLabels& labels, int64_t num_rows,
                    int64_t* positives) {
  for (int64_t row = 0; row < num_rows; ++row) {
    bool is_positive[kWidth] = {};
    for (int64_t n = labels.splits[row]; n < labels.splits[row + 1]; ++n) {
      is_positive[labels.columns[n]] = true;
    }
    for (int64_t l = 0; l < kWidth; ++l) positives[l] += is_positive[l];
  }
}

// Of a label that `positives` of the rows have.
inline float LogOdds(int64_t positives, int64_t num_rows) {
  return std::log((positives + 0.5) / (num_rows - positives + 0.5));
}

// One of V vectors of labels; a dual variable a row and label.
template <int V, typename Rule>
class TileSolver {
 public:
  // `state` has the weights to begin with, or none.
  TileSolver(const DualRows& rows, const TileLabels& labels,
             const DualOptions& options, DualState* state)
      : rows_(rows), labels_(labels), options_(options), state_(*state) {
    const bool is_new = state_.weights.empty();
    if (is_new) state_.weights.assign((rows.num_features + 1) * kWidth, 0.0f);
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
    if (!is_new || options.bias == 0) return;
    if (options.loss == DualLoss::kLogistic) StartBias();
  }

  void Solve() {
    std::vector<int32_t>& order = state_.order;
    order.resize(rows_.size());
    const Rule rule(options_);
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

  // The log-odds of the labels among the rows: the penalty is on what is added.
  // From 0, the rows that are visited first would drag it far beyond.
  void StartBias() {
    int64_t positives[kWidth] = {};
    CountPositives<kWidth>(labels_, rows_.size(), positives);
    for (int64_t l = 0; l < kWidth; ++l) {
      Bias()[l] = LogOdds(positives[l], rows_.size()) / options_.bias;
    }
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
  float Visit(const Rule& rule, int64_t row) {
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
  if (options.loss == DualLoss::kLogistic) {
    TileSolver<V, Logistic>(rows, labels, options, state).Solve();
  } else {
    TileSolver<V, SquaredHinge>(rows, labels, options, state).Solve();
  }
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
