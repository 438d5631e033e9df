// The softmax over all classes and its gradients in two passes over the class
// rows, a chunk of classes at a time: neither the logits nor the gradient of
// the class matrix are ever held.
//
// ForwardSoftmax sums, beside the exponentials of the logits, the class rows
// they weigh, rescaled where a maximum rises (as attention does: Milakov and
// Gimelshein, 2018; Dao et al., 2022). Of that sum and the log-sum-exp comes
// the gradient of the queries. BackwardSoftmax computes a chunk's logits again
// and hands the gradient of its rows to the caller. So both passes together are
// four products of [batch, dim] by [dim, classes], as few as can be without
// keeping logits (cut cross-entropy, Wijmans et al. 2024, has five or six), and
// three where the first pass keeps its exponentials.
//
// Time O(batch dim classes). Memory O(batch dim) for each of kMostUnits units
// of the first pass, O(chunk (batch block + dim)) a thread, and what is kept.
// All sums run in an order that the sizes alone decide, so results do not
// depend on the number of threads. Reentrant.
#ifndef TFXCLASS_CORE_EXACT_SOFTMAX_H_
#define TFXCLASS_CORE_EXACT_SOFTMAX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/parallel.h"
#include "core/query_panels.h"
#include "core/tile_kernels.h"

namespace tfxclass {

constexpr int64_t kMostUnits = 32;

// Class rows [num_classes, dim] of float or Bf16 and, or null, their biases.
// With an epsilon > 0 rows are divided by their norms, at least its root.
template <class T>
struct ClassMatrix {
  const T* rows = nullptr;
  const float* bias = nullptr;
  int64_t num_classes = 0, dim = 0;
  float epsilon = 0;

  // Classes of a chunk: its rows stay in a second-level cache.
  int64_t Chunk() const {
    constexpr int64_t kLeast = 48, kMost = 252, kNumbers = 32768;
    return std::clamp(kNumbers / std::max<int64_t>(dim, 1) / 12 * 12, kLeast,
                      kMost);
  }
};

// A number for the logits of the targets, sorted so that those of a panel and
// a chunk lie together.
class TargetValues {
 public:
  struct Item {
    int64_t panel, target;
    int64_t column;
    float value;
  };

  // ids and values [batch, width]; ids outside [0, num_classes) count nothing.
  TargetValues(const int64_t* ids, const float* values, int64_t batch,
               int64_t width, int64_t num_classes) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = b * width; i < (b + 1) * width; ++i) {
        if (ids[i] < 0 || ids[i] >= num_classes) continue;
        items_.push_back({b / kPanel, ids[i], b % kPanel, values[i]});
      }
    }
    std::stable_sort(items_.begin(), items_.end(), Less);
  }

  // Calls run(item) for those of a panel in [first, first + count).
  template <class Run>
  void ForEach(int64_t panel, int64_t first, int64_t count,
               const Run& run) const {
    const Item from = {panel, first, 0, 0};
    auto item = std::lower_bound(items_.begin(), items_.end(), from, Less);
    for (; item != items_.end() && item->panel == panel &&
           item->target < first + count;
         ++item) {
      run(*item);
    }
  }

 private:
  static bool Less(const Item& a, const Item& b) {
    return std::tie(a.panel, a.target) < std::tie(b.panel, b.target);
  }
  std::vector<Item> items_;
};

// The rows of a chunk as they are multiplied, and what their logits are scaled
// by and raised to.
template <class T>
class ClassChunk {
 public:
  ClassChunk(const ClassMatrix<T>& matrix, const QueryPanels& queries)
      : matrix_(matrix), products_(queries.Products(matrix.Chunk())) {
    if (!std::is_same_v<T, float>) wide_.resize(matrix.Chunk() * matrix.dim);
    if (matrix.epsilon > 0) {
      inverse_.resize(matrix.Chunk());
      norms_.resize(matrix.Chunk());
    }
  }

  void Load(int64_t chunk) {
    index = chunk;
    first = index * matrix_.Chunk();
    count = std::min(matrix_.Chunk(), matrix_.num_classes - first);
    const T* from = matrix_.rows + first * matrix_.dim;
    if constexpr (std::is_same_v<T, float>) {
      rows = from;
    } else {
      const int64_t size = count * matrix_.dim;
      for (int64_t i = 0; i < size; ++i) wide_[i] = ToFloat(from[i]);
      rows = wide_.data();
    }
    products_->Load(rows, count);
    if (matrix_.epsilon > 0) FindNorms();
  }

  ChunkProducts& products() const { return *products_; }

  // Panel [count, kPanel] times the inverse norms, or the norms.
  void Normalize(const TileKernels& tiles, bool inversely, float* panel) const {
    if (inverse_.empty()) return;
    const auto& factors = inversely ? norms_ : inverse_;
    tiles.affine(panel, count, factors.data(), nullptr);
  }

  const float* inverse_norms() const {
    return inverse_.empty() ? nullptr : inverse_.data();
  }

  // panel [count, kPanel] = the logits of a panel of queries.
  void Logits(const TileKernels& tiles, int64_t number, float* panel) const {
    products_->Logits(number, panel);
    if (matrix_.bias == nullptr && inverse_.empty()) return;
    tiles.affine(panel, count, inverse_norms(),
                 matrix_.bias == nullptr ? nullptr : matrix_.bias + first);
  }

  // grads [count, stride]: of the rows, from those of the normalised ones.
  void ProjectGradients(float* grads, int64_t stride) const {
    if (inverse_.empty()) return;
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * matrix_.dim;
      float* grad = grads + i * stride;
      const float inverse = inverse_[i];
      // A row shorter than the least norm is only scaled.
      float along = 0;
      if (squares_above_epsilon_[i]) {
        for (int64_t d = 0; d < matrix_.dim; ++d) along += grad[d] * row[d];
        along *= inverse * inverse;
      }
      for (int64_t d = 0; d < matrix_.dim; ++d) {
        grad[d] = (grad[d] - along * row[d]) * inverse;
      }
    }
  }

  int64_t index = 0, first = 0, count = 0;
  const float* rows = nullptr;

 private:
  void FindNorms() {
    squares_above_epsilon_.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * matrix_.dim;
      float squares = 0;
      for (int64_t d = 0; d < matrix_.dim; ++d) squares += row[d] * row[d];
      squares_above_epsilon_[i] = squares > matrix_.epsilon;
      norms_[i] = std::sqrt(std::max(squares, matrix_.epsilon));
      inverse_[i] = 1 / norms_[i];
    }
  }

  const ClassMatrix<T>& matrix_;
  const std::unique_ptr<ChunkProducts> products_;
  std::vector<float> wide_, norms_, inverse_;
  std::vector<char> squares_above_epsilon_;
};

// Exponentials of logits that the first pass keeps for the second, or none:
// panels [count, kPanel] of each chunk, float [classes, padded batch] in all,
// and what was taken off the logits before, [chunks, padded batch].
template <class Float>
struct Exponentials {
  Float* panels = nullptr;
  Float* shifts = nullptr;

  template <class T>
  Float* Panel(const ClassChunk<T>& chunk, int64_t number, int64_t rows) const {
    return panels + chunk.first * rows + number * chunk.count * kPanel;
  }
  template <class T>
  Float* Shift(const ClassChunk<T>& chunk, int64_t number, int64_t rows) const {
    return shifts + chunk.index * rows + number * kPanel;
  }
};

// What a unit of the first pass, or the whole of it, has found for the rows of
// the batch: log-sum-exp is top + log(sum), and `rows`, panels [dim, kPanel],
// the sum of exp(logit - top) times the class row over all but the targets.
struct SoftmaxSums {
  std::vector<float> top;
  std::vector<double> sum;
  std::vector<float> rows;

  void Assign(int64_t panels, int64_t dim, bool has_rows) {
    top.assign(panels * kPanel, -std::numeric_limits<float>::infinity());
    sum.assign(panels * kPanel, 0.0);
    rows.assign(has_rows ? panels * dim * kPanel : 0, 0.0f);
  }
};

// Folds the classes of a chunk into a panel of `sums`. Writes into panel
// [count, kPanel] the exponentials of its logits less shift [kPanel], those of
// targets apart.
template <class T>
void FoldChunk(const TileKernels& tiles, const ClassChunk<T>& chunk,
               int64_t dim, const TargetValues& targets, int64_t number,
               int64_t place, float* panel, float* shift, SoftmaxSums* sums) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float* const top = sums->top.data() + place * kPanel;
  double* const sum = sums->sum.data() + place * kPanel;
  float* const rows =
      sums->rows.empty() ? nullptr : sums->rows.data() + place * dim * kPanel;
  chunk.Logits(tiles, number, panel);
  const auto for_each_target = [&](const auto& run) {
    targets.ForEach(number, chunk.first, chunk.count, [&](const auto& item) {
      run(panel + (item.target - chunk.first) * kPanel + item.column,
          item.value);
    });
  };
  for_each_target([](float* logit, float delta) { *logit += delta; });
  float fade[kPanel];
  std::copy_n(top, kPanel, shift);
  tiles.column_max(panel, chunk.count, shift);
  bool is_risen = false;
  for (int64_t j = 0; j < kPanel; ++j) {
    const float old = top[j];
    top[j] = shift[j];
    if (shift[j] == kLowest) shift[j] = 0;  // nothing but -infinity, or NaN
    fade[j] = old == top[j] ? 1.0f : std::exp(old - shift[j]);
    is_risen |= fade[j] != 1.0f;
  }
  if (is_risen) {
    for (int64_t j = 0; j < kPanel; ++j) sum[j] *= fade[j];
    for (int64_t d = 0; rows != nullptr && d < dim; ++d) {
      for (int64_t j = 0; j < kPanel; ++j) rows[d * kPanel + j] *= fade[j];
    }
  }
  tiles.exponentials(panel, chunk.count, shift, sum);
  if (rows == nullptr) return;
  for_each_target([](float* weight, float) { *weight = 0; });
  chunk.Normalize(tiles, false, panel);
  chunk.products().AddRows(panel, rows);
}

// Merges what several units have found of a panel into the first.
inline void MergeSums(const std::vector<SoftmaxSums*>& parts, int64_t dim,
                      int64_t place) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int64_t first = place * kPanel;
  float top[kPanel], fade[kPanel];
  std::fill_n(top, kPanel, kLowest);
  double sum[kPanel] = {};
  for (const SoftmaxSums* part : parts) {
    for (int64_t j = 0; j < kPanel; ++j) {
      top[j] = std::max(top[j], part->top[first + j]);
    }
  }
  float* const to = parts[0]->rows.data() + first * dim;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SoftmaxSums& part = *parts[i];
    for (int64_t j = 0; j < kPanel; ++j) {
      const float own = part.top[first + j];
      const bool is_top = own == top[j] || top[j] == kLowest;
      const double wide =
          is_top ? 1 : std::exp(static_cast<double>(own) - top[j]);
      fade[j] = wide;
      sum[j] += part.sum[first + j] * wide;
    }
    if (part.rows.empty()) continue;
    const float* from = part.rows.data() + first * dim;
    for (int64_t d = 0; d < dim * kPanel; d += kPanel) {
      for (int64_t j = 0; j < kPanel; ++j) {
        const float moved = from[d + j] * fade[j];
        to[d + j] = i == 0 ? moved : to[d + j] + moved;
      }
    }
  }
  std::copy_n(top, kPanel, parts[0]->top.data() + first);
  std::copy_n(sum, kPanel, parts[0]->sum.data() + first);
}

// A SoftmaxSums for each group of panels; `deltas` are added to the logits of
// the targets (the margin).
template <class T>
std::vector<SoftmaxSums> ForwardSoftmax(
    const TileKernels& tiles, const ClassMatrix<T>& matrix,
    const QueryPanels& queries, const TargetValues& deltas, bool wants_rows,
    const ParallelFor& parallel, const Exponentials<float>& kept = {}) {
  const int64_t chunks = CeilOf(matrix.num_classes, matrix.Chunk());
  const int64_t groups = queries.groups();
  // A power of two, which most machines have of threads.
  int64_t stretches = 1;
  while (2 * stretches * groups <= kMostUnits && 2 * stretches <= chunks) {
    stretches *= 2;
  }
  std::vector<SoftmaxSums> units(groups * stretches);
  const auto run_unit = [&](int64_t unit) {
    const int64_t group = unit / stretches, stretch = unit % stretches;
    const int64_t first = group * kGroupPanels;
    const int64_t count = std::min(kGroupPanels, queries.panels() - first);
    SoftmaxSums& sums = units[unit];
    sums.Assign(count, matrix.dim, wants_rows);
    ClassChunk<T> chunk(matrix, queries);
    std::vector<float> scratch(kept.panels ? 0 : matrix.Chunk() * kPanel);
    float shift[kPanel];
    const int64_t end = (stretch + 1) * chunks / stretches;
    for (int64_t i = stretch * chunks / stretches; i < end; ++i) {
      chunk.Load(i);
      for (int64_t p = 0; p < count; ++p) {
        float* panel = scratch.data();
        float* taken_off = shift;
        if (kept.panels != nullptr) {
          panel = kept.Panel(chunk, first + p, queries.rows());
          taken_off = kept.Shift(chunk, first + p, queries.rows());
        }
        FoldChunk(tiles, chunk, matrix.dim, deltas, first + p, p, panel,
                  taken_off, &sums);
        if (kept.panels != nullptr && wants_rows) {
          chunk.Normalize(tiles, true, panel);
        }
      }
    }
  };
  constexpr int64_t kWhole = 1000000;  // a unit is worth a thread
  parallel(groups * stretches, kWhole, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) run_unit(unit);
  });
  const int64_t of_panel = stretches * matrix.dim * kPanel / 4;
  parallel(queries.panels(), of_panel, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      std::vector<SoftmaxSums*> parts;
      for (int64_t s = 0; s < stretches; ++s) {
        parts.push_back(&units[number / kGroupPanels * stretches + s]);
      }
      MergeSums(parts, matrix.dim, number % kGroupPanels);
    }
  });
  std::vector<SoftmaxSums> merged;
  for (int64_t group = 0; group < groups; ++group) {
    merged.push_back(std::move(units[group * stretches]));
  }
  return merged;
}

// What the second pass needs of each row of the batch, padded to whole panels
// with zeros: `factor` is upstream, 0 where there are no labels, and `lift` is
// taken off the gradient of each logit.
struct SoftmaxGradInput {
  std::vector<float> logsumexp, factor, lift;
  int64_t batch;

  SoftmaxGradInput(const float* of_logsumexp, const float* of_factor,
                   float uniform, int64_t batch)
      : logsumexp(PanelsOf(batch) * kPanel),
        factor(logsumexp.size()),
        lift(logsumexp.size()),
        batch(batch) {
    std::copy_n(of_logsumexp, batch, logsumexp.data());
    std::copy_n(of_factor, batch, factor.data());
    for (int64_t b = 0; b < batch; ++b) lift[b] = uniform * of_factor[b];
  }
};

// A thread's part of the second pass.
template <class T>
class ChunkGradients {
 public:
  ChunkGradients(const TileKernels& tiles, const ClassMatrix<T>& matrix,
                 const QueryPanels& queries, const TargetValues& target_grads,
                 const SoftmaxGradInput& input,
                 const Exponentials<const float>& kept)
      : tiles_(tiles),
        queries_(queries),
        target_grads_(target_grads),
        input_(input),
        kept_(kept),
        dim_panels_(PanelsOf(matrix.dim)),
        chunk_(matrix, queries),
        panels_(kGroupPanels * matrix.Chunk() * kPanel),
        grads_(matrix.Chunk() * stride()),
        bias_grads_(matrix.bias == nullptr ? 0 : matrix.Chunk()) {}

  // Computes the gradients of a chunk.
  void Run(int64_t number) {
    chunk_.Load(number);
    std::fill(bias_grads_.begin(), bias_grads_.end(), 0.0f);
    for (int64_t group = 0; group < queries_.groups(); ++group) AddGroup(group);
    chunk_.ProjectGradients(grads_.data(), stride());
  }

  int64_t first() const { return chunk_.first; }
  int64_t count() const { return chunk_.count; }
  // Floats between the gradients of two rows.
  int64_t stride() const { return dim_panels_ * kPanel; }
  // [count, stride]
  const float* grads() const { return grads_.data(); }
  // [count], or null where there are no biases.
  const float* bias_grads() const {
    return bias_grads_.empty() ? nullptr : bias_grads_.data();
  }

 private:
  void AddGroup(int64_t group) {
    const int64_t first = group * kGroupPanels;
    const int64_t count = std::min(kGroupPanels, queries_.panels() - first);
    const int64_t size = chunk_.count * kPanel;
    for (int64_t p = 0; p < count; ++p) {
      LogitGradients(first + p, panels_.data() + p * size);
    }
    chunk_.products().RowGradients(panels_.data(), first, count, group > 0,
                                   grads_.data());
  }

  // panel [count, kPanel]: the gradients of the logits of a panel of queries.
  void LogitGradients(int64_t number, float* panel) {
    const int64_t row = number * kPanel;
    const float *const logsumexp = input_.logsumexp.data() + row,
                       *const factor = input_.factor.data() + row,
                       *const lift = input_.lift.data() + row;
    const float* from = panel;
    float scale[kPanel];
    std::copy_n(factor, kPanel, scale);
    if (kept_.panels == nullptr) {
      double unused[kPanel] = {};
      chunk_.Logits(tiles_, number, panel);
      tiles_.exponentials(panel, chunk_.count, logsumexp, unused);
    } else {
      const int64_t rows = queries_.rows();
      const float* const shift = kept_.Shift(chunk_, number, rows);
      for (int64_t j = 0; j < kPanel; ++j) {
        scale[j] *= std::exp(shift[j] - logsumexp[j]);
      }
      from = kept_.Panel(chunk_, number, rows);
    }
    tiles_.scale(from, chunk_.count, scale, lift, panel);
    // What pads the last panel has a factor of 0, but the exponential of a
    // large bias, or the logit of an infinite row, would make it NaN.
    const int64_t used = std::min(kPanel, input_.batch - row);
    for (int64_t c = 0; used < kPanel && c < chunk_.count; ++c) {
      std::fill_n(panel + c * kPanel + used, kPanel - used, 0.0f);
    }
    target_grads_.ForEach(
        number, chunk_.first, chunk_.count, [&](const auto& item) {
          panel[(item.target - chunk_.first) * kPanel + item.column] =
              item.value - input_.lift[row + item.column];
        });
    if (bias_grads_.empty()) return;
    for (int64_t c = 0; c < chunk_.count; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < kPanel; ++j) sum += panel[c * kPanel + j];
      bias_grads_[c] += sum;
    }
  }

  const TileKernels& tiles_;
  const QueryPanels& queries_;
  const TargetValues& target_grads_;
  const SoftmaxGradInput& input_;
  const Exponentials<const float> kept_;
  const int64_t dim_panels_;
  ClassChunk<T> chunk_;
  std::vector<float> panels_, grads_, bias_grads_;
};

// Hands the gradients of each chunk of classes, as soon as they are there, to
// take(const ChunkGradients&), which make_take() makes for each thread.
// `target_grads` are those of the logits of the targets, before the lift is
// taken off. With what the first pass kept, no logits are computed.
template <class T, class MakeTake>
void BackwardSoftmax(const TileKernels& tiles, const ClassMatrix<T>& matrix,
                     const QueryPanels& queries,
                     const TargetValues& target_grads,
                     const SoftmaxGradInput& input, const ParallelFor& parallel,
                     const MakeTake& make_take,
                     const Exponentials<const float>& kept = {}) {
  constexpr int64_t kWhole = 100000;  // a chunk is worth a thread
  parallel(CeilOf(matrix.num_classes, matrix.Chunk()), kWhole,
           [&](int64_t begin, int64_t end) {
             auto take = make_take();
             ChunkGradients<T> found(tiles, matrix, queries, target_grads,
                                     input, kept);
             for (int64_t number = begin; number < end; ++number) {
               found.Run(number);
               take(found);
             }
           });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_EXACT_SOFTMAX_H_
