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

#include "core/bf16.h"
#include "core/parallel.h"
#include "core/philox.h"
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

// A row of T is computed in float, or in double where T is double.
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

// Random bits for a row at a step, of the variable that `seed` stands for.
struct RowRandom {
  uint64_t seed = 0, step = 0;

  // bits [dim rounded up to a multiple of 4].
  void Fill(int64_t row, int64_t dim, uint32_t* bits) const {
    Philox random(seed, step);
    random.Seek(static_cast<uint64_t>(row) * ((dim + 3) / 4));
    for (int64_t d = 0; d < (dim + 3) / 4 * 4; ++d) bits[d] = random.Next();
  }
};

// Numbers are computed with in Wide<T> and stored in T. Those of Bf16
// are rounded stochastically, the others to nearest.
template <class T>
Wide<T> Load(T x) {
  return static_cast<Wide<T>>(x);
}
inline float Load(Bf16 x) { return ToFloat(x); }

template <class T>
T Store(Wide<T> x, uint32_t /*random*/) {
  return static_cast<T>(x);
}
template <>
inline Bf16 Store<Bf16>(float x, uint32_t random) {
  return RoundStochastically(x, random);
}

// A matrix of V and the state of its rule. First moments are of type M. Second
// moments are of type M, too, or with kRowMoments one float for each row.
template <class V, class M = V, bool kRowMoments = false>
struct SlottedRows {
  using W = Wide<M>;
  static constexpr bool kIsRandom =
      std::is_same_v<M, Bf16> || std::is_same_v<V, Bf16>;
  static constexpr bool kHasRowSlots = kRowMoments;

  V* var = nullptr;
  void* slots[3] = {nullptr, nullptr, nullptr};
  int64_t dim = 0;
  RowRandom random;

  // Slots with a number for each element; the others have one a row.
  template <class Element>
  static constexpr int FullSlots() {
    return kRowMoments ? Element::kMoments : Element::kSlots;
  }

  M* Full(int s, int64_t row) const {
    return static_cast<M*>(slots[s]) + row * dim;
  }
  float* OfRow(int s, int64_t row) const {
    return static_cast<float*>(slots[s]) + row;
  }

  template <class Element>
  void Prefetch(int64_t row) const {
    PrefetchRow(var + row * dim, dim);
    for (int s = 0; s < FullSlots<Element>(); ++s) {
      PrefetchRow(Full(s, row), dim);
    }
  }

  // Moves each element w of a row by step_of(input[d], w, its slots), which
  // may change the slots. `bits` as RowRandom::Fill fills them.
  template <class Element, class StepOf>
  void Move(int64_t row, const W* __restrict input,
            const uint32_t* __restrict bits, const StepOf& step_of) const {
    constexpr int kSlots = Element::kSlots, kFull = FullSlots<Element>();
    const int64_t size = dim;
    V* __restrict w = var + row * dim;
    M* __restrict a = kFull > 0 ? Full(0, row) : nullptr;
    M* __restrict b = kFull > 1 ? Full(1, row) : nullptr;
    M* __restrict c = kFull > 2 ? Full(2, row) : nullptr;
    W before[3] = {0, 0, 0}, after[3];
    for (int s = kFull; s < kSlots; ++s) before[s] = *OfRow(s, row);
    for (int s = 0; s < 3; ++s) after[s] = before[s];
    for (int64_t d = 0; d < size; ++d) {
      W of_element[3] = {before[0], before[1], before[2]};
      if constexpr (kFull > 0) of_element[0] = Load(a[d]);
      if constexpr (kFull > 1) of_element[1] = Load(b[d]);
      if constexpr (kFull > 2) of_element[2] = Load(c[d]);
      const W old = Load(w[d]);
      const W moved = old + step_of(input[d], old, of_element);
      const uint32_t random_bits = kIsRandom ? bits[d] : 0;
      if constexpr (kFull > 0)
        a[d] = Store<M>(of_element[0], random_bits >> 16);
      if constexpr (kFull > 1) b[d] = Store<M>(of_element[1], 0);
      if constexpr (kFull > 2) c[d] = Store<M>(of_element[2], 0);
      if constexpr (kFull <= 0 && kSlots > 0) after[0] = of_element[0];
      if constexpr (kFull <= 1 && kSlots > 1) after[1] = of_element[1];
      if constexpr (kFull <= 2 && kSlots > 2) after[2] = of_element[2];
      w[d] = Store<V>(moved, random_bits);
    }
    for (int s = kFull; s < kSlots; ++s) *OfRow(s, row) = after[s];
  }
};

// What a thread needs for one row after the other.
template <class Rows>
struct RowBuffers {
  explicit RowBuffers(int64_t dim)
      : numbers(dim), bits(Rows::kIsRandom ? (dim + 3) / 4 * 4 : 0) {}

  void Draw(const Rows& rows, int64_t row) {
    if (Rows::kIsRandom) rows.random.Fill(row, rows.dim, bits.data());
  }

  std::vector<typename Rows::W> numbers;
  std::vector<uint32_t> bits;
};

// One step of a row with the gradient `grad` [dim].
template <class Element, class Rows>
void StepRow(const Element& element, const Rows& rows, int64_t row,
             const typename Rows::W* grad, RowBuffers<Rows>* buffers) {
  using W = typename Rows::W;
  buffers->Draw(rows, row);
  W mean_square = 0;
  if (Rows::kHasRowSlots) {
    for (int64_t d = 0; d < rows.dim; ++d) mean_square += grad[d] * grad[d];
    mean_square /= rows.dim;
  }
  rows.template Move<Element>(
      row, grad, buffers->bits.data(), [=](W g, W w, W* slots) {
        return element.Step(w, g, Rows::kHasRowSlots ? mean_square : g * g,
                            slots);
      });
}

// grads [n, dim], where n is the number of ids the groups were made of.
template <class Element, class S, class Rows>
void UpdateRows(const RowRuns& groups, const S* grads, const Element& rule,
                const Rows& rows, const ParallelFor& parallel) {
  constexpr int64_t kAhead = 4;
  const int64_t dim = rows.dim;
  parallel(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
    const Element element = rule;
    RowBuffers<Rows> buffers(dim);
    Wide<S>* const sum = buffers.numbers.data();
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        rows.template Prefetch<Element>(groups.rows[i + kAhead]);
      }
      SumGroup(groups, i, grads, dim, sum);
      StepRow(element, rows, groups.rows[i], sum, &buffers);
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_UPDATE_H_
