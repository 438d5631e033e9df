// Optimizer steps on the rows of a matrix that a batch touched.
//
// GroupRows finds the distinct rows, UpdateRows sums the gradients of each one
// and applies a rule (SgdRule, AdagradRule, AdamRule) to the row and its slots
// in one pass. Time O(n dim) for n row gradients, whatever the matrix holds;
// memory O(n). Every row has one owner and its gradients are summed in the
// order of the batch, so the result does not depend on the thread count.
// GroupRows is reentrant; UpdateRows needs the matrix and slots for itself.
#ifndef TFXCLASS_CORE_ROW_UPDATE_H_
#define TFXCLASS_CORE_ROW_UPDATE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/parallel.h"

namespace tfxclass {

// Row rows[i] occurs in the batch at positions[starts[i]] to
// positions[starts[i + 1] - 1]. Rows rise, and so do positions within a row.
struct RowRuns {
  std::vector<int64_t> rows;
  std::vector<int64_t> starts;
  std::vector<int64_t> positions;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

struct RowPosition {
  int64_t row;
  int64_t position;
};

// Stable, by rows below num_rows: least significant digit first, 11 bits each.
inline void RadixSortRows(int64_t num_rows, std::vector<RowPosition>* items) {
  constexpr int kBits = 11;
  constexpr int64_t kMask = (int64_t{1} << kBits) - 1;
  std::vector<RowPosition> other(items->size());
  for (int shift = 0; shift < 63 && ((num_rows - 1) >> shift) > 0;
       shift += kBits) {
    std::array<int64_t, kMask + 2> offset = {};
    for (const RowPosition& item : *items) {
      ++offset[((item.row >> shift) & kMask) + 1];
    }
    for (int64_t d = 0; d < kMask; ++d) offset[d + 1] += offset[d];
    for (const RowPosition& item : *items) {
      other[offset[(item.row >> shift) & kMask]++] = item;
    }
    items->swap(other);
  }
}

// ids [n], each in [0, num_rows).
inline RowRuns GroupRows(const int64_t* ids, int64_t n, int64_t num_rows) {
  std::vector<RowPosition> items(n);
  bool sorted = true;
  for (int64_t i = 0; i < n; ++i) {
    items[i] = {ids[i], i};
    sorted = sorted && (i == 0 || ids[i - 1] <= ids[i]);
  }
  if (!sorted) RadixSortRows(num_rows, &items);
  RowRuns groups;
  groups.rows.reserve(n);
  groups.starts.reserve(n + 1);
  groups.positions.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    groups.positions[i] = items[i].position;
    if (i > 0 && items[i].row == items[i - 1].row) continue;
    groups.rows.push_back(items[i].row);
    groups.starts.push_back(i);
  }
  groups.starts.push_back(n);
  return groups;
}

// sum [dim] = the gradients of group i, added up in the order of the batch.
inline void SumGroup(const RowRuns& groups, int64_t i, const float* grads,
                     int64_t dim, float* __restrict sum) {
  const int64_t* position = groups.positions.data() + groups.starts[i];
  const int64_t* end = groups.positions.data() + groups.starts[i + 1];
  std::copy_n(grads + *position * dim, dim, sum);
  while (++position < end) {
    const float* __restrict grad = grads + *position * dim;
    for (int64_t d = 0; d < dim; ++d) sum[d] += grad[d];
  }
}

// Asks for a row that is written soon; random rows defeat the hardware's
// prefetcher. Only the first 2 kB: it follows by itself from there.
inline void PrefetchRow(const float* row, int64_t dim) {
  constexpr int64_t kLine = 16, kMost = 512;
  for (int64_t d = 0; d < std::min(dim, kMost); d += kLine) {
    __builtin_prefetch(row + d, 1);
  }
}

// velocity = momentum * velocity - lr * g; w += velocity. Nesterov:
// w += momentum * velocity - lr * g. `velocity` is null where momentum is 0.
// All rules first take `decay` * w from w (decay = lr * weight_decay).
struct SgdRule {
  float* var;
  float* velocity;
  int64_t dim;
  float learning_rate, decay, momentum;
  bool nesterov;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    if (velocity != nullptr) PrefetchRow(velocity + row * dim, dim);
  }

  void Update(int64_t row, const float* __restrict grad) const {
    float* __restrict w = var + row * dim;
    if (velocity == nullptr) {
      for (int64_t d = 0; d < dim; ++d) {
        w[d] = w[d] - w[d] * decay - grad[d] * learning_rate;
      }
      return;
    }
    float* __restrict m = velocity + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      const float step = grad[d] * learning_rate;
      m[d] = m[d] * momentum - step;
      const float move = nesterov ? m[d] * momentum - step : m[d];
      w[d] = w[d] - w[d] * decay + move;
    }
  }
};

// accumulator += g^2; w -= lr * g / sqrt(accumulator + epsilon).
struct AdagradRule {
  float* var;
  float* accumulator;
  int64_t dim;
  float learning_rate, decay, epsilon;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    PrefetchRow(accumulator + row * dim, dim);
  }

  void Update(int64_t row, const float* __restrict grad) const {
    float* __restrict w = var + row * dim;
    float* __restrict a = accumulator + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      a[d] += grad[d] * grad[d];
      w[d] = w[d] - w[d] * decay -
             learning_rate * grad[d] / std::sqrt(a[d] + epsilon);
    }
  }
};

// m += (g - m) * m_rate; v += (g^2 - v) * v_rate;
// w -= alpha * m / (sqrt(v) + epsilon), where alpha holds the bias correction
// (Kingma and Ba, end of section 2) and rate = 1 - beta. AMSGrad divides by
// the largest v so far, kept in v_hat; elsewhere v_hat is null.
struct AdamRule {
  float *var, *momentum, *velocity, *velocity_hat;
  int64_t dim;
  float alpha, decay, m_rate, v_rate, epsilon;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    PrefetchRow(momentum + row * dim, dim);
    PrefetchRow(velocity + row * dim, dim);
    if (velocity_hat != nullptr) PrefetchRow(velocity_hat + row * dim, dim);
  }

  void Update(int64_t row, const float* __restrict grad) const {
    float* __restrict w = var + row * dim;
    float* __restrict m = momentum + row * dim;
    float* __restrict v = velocity + row * dim;
    if (velocity_hat == nullptr) {
      for (int64_t d = 0; d < dim; ++d) {
        m[d] += (grad[d] - m[d]) * m_rate;
        v[d] += (grad[d] * grad[d] - v[d]) * v_rate;
        w[d] = w[d] - w[d] * decay - m[d] * alpha / (std::sqrt(v[d]) + epsilon);
      }
      return;
    }
    float* __restrict hat = velocity_hat + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      m[d] += (grad[d] - m[d]) * m_rate;
      v[d] += (grad[d] * grad[d] - v[d]) * v_rate;
      hat[d] = std::max(hat[d], v[d]);
      w[d] = w[d] - w[d] * decay - m[d] * alpha / (std::sqrt(hat[d]) + epsilon);
    }
  }
};

// grads [n, dim], where n is the number of ids the groups were made of.
template <class Rule>
void UpdateRows(const RowRuns& groups, const float* grads, const Rule& rule,
                const ParallelFor& parallel) {
  constexpr int64_t kAhead = 4;
  const int64_t dim = rule.dim;
  parallel(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(dim);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) rule.Prefetch(groups.rows[i + kAhead]);
      const bool once = groups.starts[i + 1] - groups.starts[i] == 1;
      if (!once) SumGroup(groups, i, grads, dim, sum.data());
      rule.Update(
          groups.rows[i],
          once ? grads + groups.positions[groups.starts[i]] * dim : sum.data());
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_UPDATE_H_
