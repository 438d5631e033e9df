// Optimizer steps on the rows of a matrix that a batch touched.
//
// GroupRows finds the distinct rows, UpdateRows sums the gradients of each one
// and applies a rule (core/row_rules.h) to the row and its slots in one pass.
// Time O(n dim) for n row gradients, whatever the matrix holds; memory O(n).
// Every row has one owner and its gradients are summed in the order of the
// batch, so the result does not depend on the thread count. GroupRows is
// reentrant; UpdateRows needs the matrix and slots for itself.
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
#include "core/row_rules.h"

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

// A matrix of T and its slots, as many as a rule has; computed in Wide<T>.
template <class T>
struct SlottedRows {
  using W = Wide<T>;
  T* var = nullptr;
  T* slots[3] = {nullptr, nullptr, nullptr};
  int64_t dim = 0;

  template <int kSlots>
  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    for (int s = 0; s < kSlots; ++s) PrefetchRow(slots[s] + row * dim, dim);
  }

  // Moves each element w of a row by step_of(input[d], w, its slots), which
  // may change the slots.
  template <int kSlots, class StepOf>
  void Move(int64_t row, const W* __restrict input,
            const StepOf& step_of) const {
    const int64_t first = row * dim, size = dim;
    T* __restrict w = var + first;
    T* __restrict a = kSlots > 0 ? slots[0] + first : nullptr;
    T* __restrict b = kSlots > 1 ? slots[1] + first : nullptr;
    T* __restrict c = kSlots > 2 ? slots[2] + first : nullptr;
    for (int64_t d = 0; d < size; ++d) {
      W of_element[3] = {0, 0, 0};
      if constexpr (kSlots > 0) of_element[0] = static_cast<W>(a[d]);
      if constexpr (kSlots > 1) of_element[1] = static_cast<W>(b[d]);
      if constexpr (kSlots > 2) of_element[2] = static_cast<W>(c[d]);
      const W old = static_cast<W>(w[d]);
      const W step = step_of(input[d], old, of_element);
      if constexpr (kSlots > 0) a[d] = static_cast<T>(of_element[0]);
      if constexpr (kSlots > 1) b[d] = static_cast<T>(of_element[1]);
      if constexpr (kSlots > 2) c[d] = static_cast<T>(of_element[2]);
      w[d] = static_cast<T>(old + step);
    }
  }
};

// grads [n, dim], where n is the number of ids the groups were made of.
template <class Element, class T>
void UpdateRows(const RowRuns& groups, const T* grads, const Element& rule,
                const SlottedRows<T>& rows, const ParallelFor& parallel) {
  using W = Wide<T>;
  constexpr int64_t kAhead = 4;
  const int64_t dim = rows.dim;
  parallel(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
    const Element element = rule;
    const auto step_of = [element](W grad, W w, W* slots) {
      return element.Step(w, grad, slots);
    };
    std::vector<W> sum(dim);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        rows.template Prefetch<Element::kSlots>(groups.rows[i + kAhead]);
      }
      SumGroup(groups, i, grads, dim, sum.data());
      rows.template Move<Element::kSlots>(groups.rows[i], sum.data(), step_of);
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_UPDATE_H_
