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
#include <type_traits>
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

// What a row of T is computed in: float, or double for double.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// sum [dim] = the gradients of group i, added up in the order of the batch.
template <class T>
void SumGroup(const RowRuns& groups, int64_t i, const T* grads, int64_t dim,
              Wide<T>* __restrict sum) {
  const int64_t* position = groups.positions.data() + groups.starts[i];
  const int64_t* end = groups.positions.data() + groups.starts[i + 1];
  std::copy_n(grads + *position * dim, dim, sum);
  while (++position < end) {
    const T* __restrict grad = grads + *position * dim;
    for (int64_t d = 0; d < dim; ++d) sum[d] += static_cast<Wide<T>>(grad[d]);
  }
}

// Asks for a row that is written soon; random rows defeat the hardware's
// prefetcher. Only the first 2 kB: it follows by itself from there.
template <class T>
void PrefetchRow(const T* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(T), kMost = 2048 / sizeof(T);
  for (int64_t d = 0; d < std::min(dim, kMost); d += kLine) {
    __builtin_prefetch(row + d, 1);
  }
}

// The rules hold rows of T, a matrix and its slots, and compute in Wide<T>.
// All of them first take `decay` * w from w (decay = lr * weight_decay).

// velocity = momentum * velocity - lr * g; w += velocity. Nesterov:
// w += momentum * velocity - lr * g. `velocity` is null where momentum is 0.
template <class T>
struct SgdRule {
  using Value = T;
  using W = Wide<T>;
  T *var, *velocity;
  int64_t dim;
  W learning_rate, decay, momentum;
  bool nesterov;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    if (velocity != nullptr) PrefetchRow(velocity + row * dim, dim);
  }

  void Update(int64_t row, const W* __restrict grad) const {
    T* __restrict w = var + row * dim;
    if (velocity == nullptr) {
      for (int64_t d = 0; d < dim; ++d) {
        const W x = static_cast<W>(w[d]);
        w[d] = static_cast<T>(x - x * decay - grad[d] * learning_rate);
      }
      return;
    }
    T* __restrict m = velocity + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      const W x = static_cast<W>(w[d]), step = grad[d] * learning_rate;
      const W next = static_cast<W>(m[d]) * momentum - step;
      m[d] = static_cast<T>(next);
      const W move = nesterov ? next * momentum - step : next;
      w[d] = static_cast<T>(x - x * decay + move);
    }
  }
};

// accumulator += g^2; w -= lr * g / sqrt(accumulator + epsilon).
template <class T>
struct AdagradRule {
  using Value = T;
  using W = Wide<T>;
  T *var, *accumulator;
  int64_t dim;
  W learning_rate, decay, epsilon;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    PrefetchRow(accumulator + row * dim, dim);
  }

  void Update(int64_t row, const W* __restrict grad) const {
    T* __restrict w = var + row * dim;
    T* __restrict a = accumulator + row * dim;
    for (int64_t d = 0; d < dim; ++d) {
      const W x = static_cast<W>(w[d]);
      const W sum = static_cast<W>(a[d]) + grad[d] * grad[d];
      a[d] = static_cast<T>(sum);
      w[d] = static_cast<T>(x - x * decay -
                            learning_rate * grad[d] / std::sqrt(sum + epsilon));
    }
  }
};

// m += (g - m) * m_rate; v += (g^2 - v) * v_rate;
// w -= alpha * m / (sqrt(v) + epsilon), where alpha holds the bias correction
// (Kingma and Ba, end of section 2) and rate = 1 - beta. AMSGrad divides by
// the largest v so far, kept in v_hat; elsewhere v_hat is null.
template <class T>
struct AdamRule {
  using Value = T;
  using W = Wide<T>;
  T *var, *momentum, *velocity, *velocity_hat;
  int64_t dim;
  W alpha, decay, m_rate, v_rate, epsilon;

  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    PrefetchRow(momentum + row * dim, dim);
    PrefetchRow(velocity + row * dim, dim);
    if (velocity_hat != nullptr) PrefetchRow(velocity_hat + row * dim, dim);
  }

  void Update(int64_t row, const W* __restrict grad) const {
    if (velocity_hat == nullptr) {
      Update<false>(row, grad);
    } else {
      Update<true>(row, grad);
    }
  }

 private:
  template <bool kAmsGrad>
  void Update(int64_t row, const W* __restrict grad) const {
    T* __restrict w = var + row * dim;
    T* __restrict m = momentum + row * dim;
    T* __restrict v = velocity + row * dim;
    T* __restrict hat = kAmsGrad ? velocity_hat + row * dim : nullptr;
    for (int64_t d = 0; d < dim; ++d) {
      W first = static_cast<W>(m[d]), second = static_cast<W>(v[d]);
      first += (grad[d] - first) * m_rate;
      second += (grad[d] * grad[d] - second) * v_rate;
      m[d] = static_cast<T>(first);
      v[d] = static_cast<T>(second);
      if (kAmsGrad) {
        second = std::max(static_cast<W>(hat[d]), second);
        hat[d] = static_cast<T>(second);
      }
      const W x = static_cast<W>(w[d]);
      w[d] = static_cast<T>(x - x * decay -
                            first * alpha / (std::sqrt(second) + epsilon));
    }
  }
};

// grads [n, dim], where n is the number of ids the groups were made of.
template <class Rule>
void UpdateRows(const RowRuns& groups, const typename Rule::Value* grads,
                const Rule& rule, const ParallelFor& parallel) {
  constexpr int64_t kAhead = 4;
  const int64_t dim = rule.dim;
  parallel(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
    std::vector<typename Rule::W> sum(dim);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) rule.Prefetch(groups.rows[i + kAhead]);
      SumGroup(groups, i, grads, dim, sum.data());
      rule.Update(groups.rows[i], sum.data());
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_UPDATE_H_
