// Scores of a linear model with sparse weights, for rows of sparse features.
//
// A feature's weights are a dense row of the model or a list of entries. First
// each row adds up its lists, wherever their columns lie. Then blocks of
// columns that stay in the first cache get the dense rows, which all rows of
// the batch share in the second cache, and are turned into probabilities.
//
// Time: O(entries + columns * dense features) a row, and an exponential a
// label. Memory: the output and the columns of the groups. Thread-safe; the
// result does not depend on the number of threads, as a label's terms are
// always added in one order.
#ifndef TFXCLASS_CORE_SPARSE_SCORES_H_
#define TFXCLASS_CORE_SPARSE_SCORES_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/softmax_block.h"
#include "core/vectors.h"

namespace tfxclass {

enum class ScoreActivation { kNone, kSigmoid, kSoftmax };

// The weights. Columns are the labels, then the groups of the labels.
struct SparseModel {
  int64_t num_labels, num_groups;
  const int32_t* places;   // of a feature's dense row; below 0 it has a list
  const float* dense;      // [dense rows, width]
  const int64_t* splits;   // feature f has the entries splits[f], ...
  const int32_t* columns;  // [entries]
  const float* entries;    // [entries]
  const float* biases;     // [width]
  const int32_t* groups;   // [num_labels], or null without groups
  // A probability is sigmoid(slope * margin + intercept), or the softmax; that
  // of a group sigmoid(group_slope * margin).
  ScoreActivation activation;
  float slope, intercept, group_slope;

  int64_t width() const { return num_labels + num_groups; }
};

namespace internal {

constexpr int64_t kScoreBlock = 2048;

// Adds value * row.
struct DenseTerm {
  const float* row;
  float value;
};

// Four rows in one pass over the sums.
inline void AddFour(const DenseTerm* terms, int64_t first, int64_t count,
                    float* sums) {
  const float *a = terms[0].row + first, *b = terms[1].row + first,
              *c = terms[2].row + first, *d = terms[3].row + first;
  const float va = terms[0].value, vb = terms[1].value, vc = terms[2].value,
              vd = terms[3].value;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes sum =
        LoadLanes(sums + i) + ((va * LoadLanes(a + i) + vb * LoadLanes(b + i)) +
                               (vc * LoadLanes(c + i) + vd * LoadLanes(d + i)));
    std::memcpy(sums + i, &sum, sizeof(sum));
  }
  for (; i < count; ++i) {
    sums[i] += (va * a[i] + vb * b[i]) + (vc * c[i] + vd * d[i]);
  }
}

inline void AddOne(const float* row, float value, int64_t count, float* sums) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes sum = LoadLanes(sums + i) + value * LoadLanes(row + i);
    std::memcpy(sums + i, &sum, sizeof(sum));
  }
  for (; i < count; ++i) sums[i] += value * row[i];
}

inline void AddDense(const std::vector<DenseTerm>& terms, int64_t first,
                     int64_t count, float* sums) {
  size_t i = 0;
  for (; i + 4 <= terms.size(); i += 4) {
    AddFour(&terms[i], first, count, sums);
  }
  for (; i < terms.size(); ++i) {
    AddOne(terms[i].row + first, terms[i].value, count, sums);
  }
}

inline void Affine(float slope, float intercept, int64_t count, float* x) {
  for (int64_t c = 0; c < count; ++c) x[c] = slope * x[c] + intercept;
}

inline void Sigmoids(int64_t count, float* x) {
  for (int64_t c = 0; c < count; ++c) {
    const float exp = FastExp(-std::abs(x[c]));
    const float larger = 1.0f / (1.0f + exp);
    x[c] = x[c] < 0 ? exp * larger : larger;
  }
}

// x[c] = exp(x[c] - top); their sum, of 16 numbers each in float.
inline double Exponentials(float top, int64_t count, float* x) {
  constexpr int64_t kStep = 16 * kLanes;
  for (int64_t c = 0; c < count; ++c) x[c] = FastExp(x[c] - top);
  double total = 0;
  int64_t start = 0;
  for (; start + kStep <= count; start += kStep) {
    Lanes part{};
    for (int64_t c = 0; c < kStep; c += kLanes) {
      part += LoadLanes(x + start + c);
    }
    total += SumLanes(part);
  }
  for (; start < count; ++start) total += x[start];
  return total;
}

inline float LogSigmoid(float x) {
  return std::min(x, 0.0f) - std::log1p(std::exp(-std::abs(x)));
}

}  // namespace internal

// The scores of a batch. Every feature that a row has must be one of the
// model, with a place below the number of dense rows and a sound list.
class SparseScorer {
 public:
  // ids and values [batch, n]; where a value is 0 there is no feature.
  SparseScorer(const SparseModel& model, int64_t batch, int64_t n,
               const int64_t* ids, const float* values)
      : model_(model),
        batch_(batch),
        n_(n),
        ids_(ids),
        values_(values),
        num_blocks_((model.num_labels - 1) / internal::kScoreBlock + 1) {}

  // Writes the scores [batch, num_labels]; false, and no scores, if a column
  // of an entry is not below the width of the model.
  bool Score(const ParallelFor& parallel, float* scores) {
    dense_.resize(batch_);
    if (HasGates()) gates_.resize(batch_ * model_.num_groups);
    if (IsSoftmax()) {
      tops_.resize(batch_ * num_blocks_);
      sums_.resize(batch_ * num_blocks_);
    }
    std::atomic<bool> is_sound{true};
    parallel(batch_, CostOfLists(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (!AddLists(row, scores + row * model_.num_labels)) is_sound = false;
        if (HasGates()) SetGates(row);
      }
    });
    if (!is_sound) return false;
    parallel(num_blocks_, CostOfBlock(), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t row = 0; row < batch_; ++row) {
          FinishBlock(row, block, scores + row * model_.num_labels);
        }
      }
    });
    if (IsSoftmax()) Normalize(parallel, scores);
    return true;
  }

 private:
  bool IsSoftmax() const {
    return model_.activation == ScoreActivation::kSoftmax;
  }

  bool HasGates() const {
    return model_.groups != nullptr &&
           model_.activation != ScoreActivation::kNone;
  }

  // Nanoseconds of a row: its lists, its zeros.
  int64_t CostOfLists() const {
    int64_t entries = 0;
    ForEachFeature(0, batch_ * n_, [&](int64_t id, float) {
      if (model_.places[id] >= 0) return;
      entries += model_.splits[id + 1] - model_.splits[id];
    });
    return 2 * entries / std::max<int64_t>(batch_, 1) + model_.width() / 8 + n_;
  }

  int64_t CostOfBlock() const {
    int64_t terms = 4 * batch_;
    for (const auto& of_row : dense_) terms += of_row.size();
    return terms * internal::kScoreBlock / 8;
  }

  template <class Function>
  void ForEachFeature(int64_t begin, int64_t end,
                      const Function& function) const {
    for (int64_t i = begin; i < end; ++i) {
      if (values_[i] != 0.0f) function(ids_[i], values_[i]);
    }
  }

  // The sums of a row's lists; its dense features are noted.
  bool AddLists(int64_t row, float* scores) {
    const int64_t width = model_.width();
    float* of_groups =
        HasGates() ? gates_.data() + row * model_.num_groups : nullptr;
    std::fill_n(scores, model_.num_labels, 0.0f);
    bool is_sound = true;
    ForEachFeature(row * n_, (row + 1) * n_, [&](int64_t id, float value) {
      const int64_t place = model_.places[id];
      if (place >= 0) {
        dense_[row].push_back({model_.dense + place * width, value});
        return;
      }
      for (int64_t i = model_.splits[id]; i < model_.splits[id + 1]; ++i) {
        const int64_t column = model_.columns[i];
        if (column >= 0 && column < model_.num_labels) {
          scores[column] += value * model_.entries[i];
        } else if (column < 0 || column >= width) {
          is_sound = false;
        } else if (of_groups != nullptr) {
          of_groups[column - model_.num_labels] += value * model_.entries[i];
        }
      }
    });
    return is_sound;
  }

  // What the scores of a group's labels are multiplied by, its logarithm for
  // the softmax.
  void SetGates(int64_t row) {
    const int64_t count = model_.num_groups, first = model_.num_labels;
    float* gates = gates_.data() + row * count;
    internal::AddOne(model_.biases + first, 1.0f, count, gates);
    internal::AddDense(dense_[row], first, count, gates);
    internal::Affine(model_.group_slope, 0.0f, count, gates);
    if (!IsSoftmax()) return internal::Sigmoids(count, gates);
    for (int64_t g = 0; g < count; ++g) {
      gates[g] = internal::LogSigmoid(gates[g]);
    }
  }

  void FinishBlock(int64_t row, int64_t block, float* scores) {
    const int64_t first = block * internal::kScoreBlock;
    const int64_t count =
        std::min(internal::kScoreBlock, model_.num_labels - first);
    float* x = scores + first;
    internal::AddOne(model_.biases + first, 1.0f, count, x);
    internal::AddDense(dense_[row], first, count, x);
    if (model_.activation == ScoreActivation::kNone) return;
    internal::Affine(model_.slope, model_.intercept, count, x);
    if (!IsSoftmax()) internal::Sigmoids(count, x);
    if (HasGates()) {
      ApplyGates(gates_.data() + row * model_.num_groups, model_.groups + first,
                 count, x);
    }
    if (!IsSoftmax()) return;
    const float top = MaxOf(x, count);
    const bool has_top = top > -std::numeric_limits<float>::infinity();
    const int64_t at = row * num_blocks_ + block;
    tops_[at] = top;
    sums_[at] = internal::Exponentials(has_top ? top : 0.0f, count, x);
  }

  void ApplyGates(const float* gates, const int32_t* groups, int64_t count,
                  float* x) const {
    if (IsSoftmax()) {
      for (int64_t c = 0; c < count; ++c) x[c] += gates[groups[c]];
    } else {
      for (int64_t c = 0; c < count; ++c) x[c] *= gates[groups[c]];
    }
  }

  // The exponentials of each block, of its own top, to probabilities.
  void Normalize(const ParallelFor& parallel, float* scores) const {
    parallel(batch_, model_.num_labels / 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        NormalizeRow(tops_.data() + row * num_blocks_,
                     sums_.data() + row * num_blocks_,
                     scores + row * model_.num_labels);
      }
    });
  }

  void NormalizeRow(const float* tops, const double* sums,
                    float* scores) const {
    const double top = MaxOf(tops, num_blocks_);
    double total = 0;
    for (int64_t b = 0; b < num_blocks_; ++b) {
      total += sums[b] * std::exp(tops[b] - top);
    }
    for (int64_t b = 0; b < num_blocks_; ++b) {
      const int64_t first = b * internal::kScoreBlock;
      const int64_t end =
          std::min(first + internal::kScoreBlock, model_.num_labels);
      const float scale = std::exp(tops[b] - top) / total;
      for (int64_t c = first; c < end; ++c) scores[c] *= scale;
    }
  }

  const SparseModel model_;
  const int64_t batch_, n_;
  const int64_t* const ids_;
  const float* const values_;
  const int64_t num_blocks_;
  std::vector<std::vector<internal::DenseTerm>> dense_;  // of each row
  std::vector<float> gates_;                             // [batch, num_groups]
  std::vector<float> tops_;                              // [batch, blocks]
  std::vector<double> sums_;                             // [batch, blocks]
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SPARSE_SCORES_H_
