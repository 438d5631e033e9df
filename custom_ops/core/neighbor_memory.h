// Neighbours of classes that were found before, kept by label.
//
// A row of the memory is a label, the step of its last search and `width`
// neighbours, best first, -1 is padding. Label l >= 0 has row l % slots, which
// labels that share it take from each other. What a caller wrote into the
// memory may be anything: nothing here is read beyond it.
#ifndef TFXCLASS_CORE_NEIGHBOR_MEMORY_H_
#define TFXCLASS_CORE_NEIGHBOR_MEMORY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/class_rows.h"
#include "core/id_set.h"
#include "core/softmax_block.h"
#include "core/tile_dispatch.h"
#include "core/vectors.h"

namespace tfxclass {

struct NeighborMemory {
  int64_t* rows;  // [slots, 2 + width]
  int64_t slots, width;

  int64_t* Place(int64_t label) const {
    return rows + label % slots * (2 + width);
  }

  void Prefetch(int64_t label) const {
    if (label < 0) return;
    const char* const row = reinterpret_cast<const char*>(Place(label));
    const int64_t bytes = (2 + width) * sizeof(int64_t);
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
  }

  // The row of `label`; null if it has none.
  const int64_t* Find(int64_t label) const {
    if (label < 0) return nullptr;
    const int64_t* const row = Place(label);
    return row[0] == label ? row : nullptr;
  }

  int64_t LastSearch(int64_t label) const {
    const int64_t* const row = Find(label);
    return row ? row[1] : -1;
  }
};

inline bool IsAmong(int64_t id, const int64_t* ids, int64_t count) {
  return std::find(ids, ids + count, id) != ids + count;
}

// known: for each label its neighbours, and those of one of them, each step
// another one's: a neighbour of a neighbour is likely to be one. They are the
// first 2 width numbers of each row; a row has so many columns.
inline void RecallNeighbors(const NeighborMemory& memory, const int64_t* labels,
                            int64_t n, int64_t step, int64_t* known,
                            int64_t columns) {
  const int64_t width = memory.width;
  const int64_t column = static_cast<uint64_t>(step) % width;
  // Rows are anywhere in memory: all of a kind are asked for before one is
  // used.
  for (int64_t r = 0; r < n; ++r) memory.Prefetch(labels[r]);
  for (int64_t r = 0; r < n; ++r) {
    std::fill_n(known + r * columns, 2 * width, -1);
    const int64_t* const own = memory.Find(labels[r]);
    if (own == nullptr) continue;
    std::copy(own + 2, own + 2 + width, known + r * columns);
    memory.Prefetch(own[2 + column]);
  }
  for (int64_t r = 0; r < n; ++r, known += columns) {
    const int64_t* const theirs = memory.Find(known[column]);
    for (int64_t j = 0; theirs && j < width; ++j) {
      const int64_t id = theirs[2 + j];
      if (!IsAmong(id, known, width)) known[width + j] = id;
    }
  }
}

// asked [num_asked], num_asked <= n: the rows whose labels were searched for
// longest ago, never first; rows without a label last.
inline void OldestSearches(const NeighborMemory& memory, const int64_t* labels,
                           int64_t n, int64_t num_asked, int64_t* asked) {
  std::vector<std::pair<int64_t, int64_t>> order(n);
  for (int64_t r = 0; r < n; ++r) {
    const int64_t last =
        labels[r] < 0 ? INT64_MAX : memory.LastSearch(labels[r]);
    order[r] = {last, r};
  }
  std::partial_sort(order.begin(), order.begin() + num_asked, order.end());
  for (int64_t i = 0; i < num_asked; ++i) asked[i] = order[i].second;
}

// What is ranked of one row of a batch; ids < 0 are padding.
struct NeighborRow {
  const float* query;  // [dim]
  const int64_t* targets;
  int64_t num_targets;
  const int64_t* known;
  int64_t num_known;
  const int64_t* found;  // null where the row was not searched for
  int64_t num_found;
};

// Ranks rows one after the other; a thread's own.
class NeighborRanker {
 public:
  NeighborRanker(const ClassRows& kernel, bool normalize)
      : kernel_(kernel), normalize_(normalize), buffer_(kernel.dim) {}

  // The best of known and found that are no targets: ids [count], -1 past what
  // there is, and shares [count], what a softmax over the targets and all of
  // these gives each. Logits that are not finite count for nothing.
  void Rank(const NeighborRow& row, int64_t count, int64_t* ids,
            float* shares) {
    Collect(row);
    const int64_t size = distinct_.size();
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    logits_.resize(size);
    // Not all at once: 80 rows of 512 bytes are more than a first-level cache.
    constexpr int64_t kAhead = 8;
    for (int64_t i = 0; i < std::min(kAhead, size); ++i) {
      kernel_.Prefetch(distinct_.ids()[i]);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (i + kAhead < size) kernel_.Prefetch(distinct_.ids()[i + kAhead]);
      const float logit = Logit(row.query, distinct_.ids()[i]);
      logits_[i] = std::isfinite(logit) ? logit : kNone;
    }
    const int64_t best = BestOf(count);
    const float shift = MaxOf(logits_.data(), size);
    const double whole = BestTiles().sum_of_exp(logits_.data(), size, shift);
    for (int64_t i = 0; i < best; ++i) {
      ids[i] = ranked_[i].second;
      shares[i] = FastExp(ranked_[i].first - shift) / whole;
    }
    std::fill(ids + best, ids + count, -1);
    std::fill(shares + best, shares + count, 0.0f);
  }

 private:
  // The targets, then the others, once each.
  void Collect(const NeighborRow& row) {
    const int64_t most = row.num_targets + row.num_known + row.num_found;
    if (distinct_.capacity() < most) distinct_ = IdSet(most);
    distinct_.Clear();
    Add(row.targets, row.num_targets);
    num_targets_ = distinct_.size();
    Add(row.known, row.num_known);
    if (row.found) Add(row.found, row.num_found);
  }

  void Add(const int64_t* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (from[i] >= 0) distinct_.Insert(from[i]);
    }
  }

  // ranked_: the best `count` logits that are no targets' and their ids, best
  // first; returns how many there are.
  int64_t BestOf(int64_t count) {
    const float* const logits = logits_.data() + num_targets_;
    const int64_t* const ids = distinct_.ids().data() + num_targets_;
    const int64_t n = logits_.size() - num_targets_;
    if (n <= kCounted && RankByCounts(logits, ids, n)) {
      return std::min(n, count);
    }
    ranked_.clear();
    for (int64_t i = 0; i < n; ++i) {
      if (std::isfinite(logits[i])) ranked_.emplace_back(logits[i], ids[i]);
    }
    const int64_t best = std::min<int64_t>(ranked_.size(), count);
    const auto better = [](const Ranked& a, const Ranked& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    std::partial_sort(ranked_.begin(), ranked_.begin() + best, ranked_.end(),
                      better);
    return best;
  }

  // The place of each is how many are greater: no branches, and several at a
  // time. False where two are equal, whose ids decide.
  bool RankByCounts(const float* logits, const int64_t* ids, int64_t n) {
    float own[kCounted] = {};
    std::copy(logits, logits + n, own);
    ranked_.resize(n);
    int32_t pairs = 0;
    for (int64_t start = 0; start < n; start += kLanes) {
      int32_t above[kLanes] = {}, equal[kLanes] = {};
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < kLanes; ++i) {
          above[i] += logits[j] > own[start + i];
          equal[i] += logits[j] == own[start + i];
        }
      }
      const int64_t end = std::min(kLanes, n - start);
      for (int64_t i = 0; i < end; ++i) {
        ranked_[above[i]] = {own[start + i], ids[start + i]};
        pairs += equal[i];
      }
    }
    return pairs == n && (n == 0 || std::isfinite(ranked_[n - 1].first));
  }

  float Logit(const float* query, int64_t id) {
    const float* const row = kernel_.Row(id, buffer_.data());
    if (!normalize_) return Dot(query, row, kernel_.dim);
    float squared;
    const float product = DotAndSquare(query, row, kernel_.dim, &squared);
    return squared > 0 ? product / std::sqrt(squared) : 0.0f;
  }

  using Ranked = std::pair<float, int64_t>;

  // Above so many a sort is faster; whole lanes.
  static constexpr int64_t kCounted = 8 * kLanes;

  const ClassRows kernel_;
  const bool normalize_;
  std::vector<float> buffer_;
  IdSet distinct_{0};
  size_t num_targets_ = 0;
  std::vector<float> logits_;
  std::vector<Ranked> ranked_;
};

// The row of `label` gets `id`: at its end, if it is full.
inline void AddNeighbor(const NeighborMemory& memory, int64_t label,
                        int64_t id) {
  if (id == label || memory.Find(label) == nullptr) return;
  int64_t* const own = memory.Place(label) + 2;
  int64_t* const last = own + memory.width - 1;
  if (IsAmong(id, own, memory.width)) return;
  *std::find(own, last, -1) = id;
}

// Keeps the first `width` of ids [n, count] for each label. Of rows that share
// a place the first is kept. is_asked [n]: which were searched for at `step`.
// Then one of these neighbours, each step another one, gets the label as its
// own: what is near is so in both directions (Dong et al., 2011, 2.3), and the
// next row of the neighbour tells whether it is among its best.
inline void KeepNeighbors(const NeighborMemory& memory, const int64_t* labels,
                          int64_t n, const std::vector<bool>& is_asked,
                          int64_t step, const int64_t* ids, int64_t count) {
  std::vector<int64_t> last(n);
  for (int64_t r = 0; r < n; ++r) {
    last[r] = is_asked[r] ? step : memory.LastSearch(labels[r]);
  }
  const int64_t kept = std::min(count, memory.width);
  const int64_t column = static_cast<uint64_t>(step) % kept;
  for (int64_t r = n - 1; r >= 0; --r) {
    if (labels[r] < 0) continue;
    int64_t* const row = memory.Place(labels[r]);
    row[0] = labels[r];
    row[1] = last[r];
    std::fill(row + 2, row + 2 + memory.width, -1);
    std::copy(ids + r * count, ids + r * count + kept, row + 2);
    memory.Prefetch(ids[r * count + column]);
  }
  for (int64_t r = 0; r < n; ++r) {
    if (labels[r] < 0) continue;
    AddNeighbor(memory, ids[r * count + column], labels[r]);
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_NEIGHBOR_MEMORY_H_
