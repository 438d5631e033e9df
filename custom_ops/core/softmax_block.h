// One pass over a block of logits: running max and sum of exponentials, the
// gradient of the cross-entropy, and the running top k.
//
// All functions work on one row of a [batch, block] matrix whose first column
// is class `offset`. Time O(block) a row (TopKBlockRow: plus O(k) for each 64
// logits that enter), no memory beyond the arguments. Thread-safe for
// different rows.
#ifndef TFXCLASS_CORE_SOFTMAX_BLOCK_H_
#define TFXCLASS_CORE_SOFTMAX_BLOCK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "core/tile_kernels.h"
#include "core/vectors.h"

namespace tfxclass {

// exp for x <= 0, relative error 2e-7, vectorised by the compiler: 2^n by the
// exponent bits times Cephes' polynomial on [-ln2/2, ln2/2]. Below -87 it is 0.
inline float FastExp(float x) {
  const float clamped = std::max(x, -87.0f);
  const float n = std::floor(clamped * 1.44269504f + 0.5f);
  // fma, so that -fassociative-math cannot merge the two halves of ln 2.
  const float r =
      std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, clamped));
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // Unsigned: n of a NaN is any integer.
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127)
                        << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < -87.0f ? 0.0f : p * power;
}

// Calls run(begin, end) for each stretch of columns between the targets with a
// delta, and raised(logit) for each of those targets, the delta added.
template <typename Run, typename Raised>
inline void ForEachStretch(const float* logits, int64_t block, int64_t offset,
                           const int64_t* targets, const float* delta,
                           int64_t num_targets, const Run& run,
                           const Raised& raised) {
  for (int64_t begin = 0; begin < block;) {
    int64_t end = block;
    float move = 0;
    for (int64_t t = 0; t < num_targets; ++t) {
      const int64_t c = targets[t] - offset;
      if (c < begin || c >= end || delta[t] == 0.0f) continue;
      end = c;
      move = delta[t];
    }
    run(begin, end);
    if (end < block) raised(logits[end] + move);
    begin = end + 1;
  }
}

// Folds a row into (max, sum), where sum = sum_c exp(logit_c - max). Logits of
// the targets within the block, none twice, are first raised by their delta
// (the margin): added and taken off again, a great one would swallow the rest.
inline void SoftmaxStatsRow(const TileKernels& tiles, const float* logits,
                            int64_t block, int64_t offset,
                            const int64_t* targets, const float* delta,
                            int64_t num_targets, float* max, double* sum) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float top = kLowest;
  ForEachStretch(
      logits, block, offset, targets, delta, num_targets,
      [&](int64_t begin, int64_t end) {
        top = std::max(top, MaxOf(logits + begin, end - begin));
      },
      [&](float logit) { top = std::max(top, logit); });
  top = std::max(top, *max);
  if (!(top > kLowest)) {  // nothing but -infinity, or NaN, which stays
    for (int64_t c = 0; c < block; ++c) {
      if (std::isnan(logits[c])) *sum = logits[c];
    }
    return;
  }
  double total = 0;
  ForEachStretch(
      logits, block, offset, targets, delta, num_targets,
      [&](int64_t begin, int64_t end) {
        total += tiles.sum_of_exp(logits + begin, end - begin, top);
      },
      [&](float logit) { total += FastExp(logit - top); });
  *sum = *sum * std::exp(static_cast<double>(*max) - top) + total;
  *max = top;
}

// grad[c] = upstream * softmax[c]; at the targets target_grad is written
// instead (it already contains the softmax, the margin and the label weight).
inline void SoftmaxGradRow(const TileKernels& tiles, const float* logits,
                           int64_t block, int64_t offset,
                           const int64_t* targets, const float* target_grad,
                           int64_t num_targets, float logsumexp, float upstream,
                           float* grad) {
  tiles.softmax_row(logits, block, logsumexp, upstream, grad);
  for (int64_t t = 0; t < num_targets; ++t) {
    const int64_t c = targets[t] - offset;
    if (c >= 0 && c < block) grad[c] = target_grad[t];
  }
}

// The k best of a row so far, sorted by (score falling, id rising); an id below
// 0 is a free place, of score -infinity. What enters waits in a buffer, which
// is merged when it is full: of a million classes a thousand enter, and each
// alone would move half of the k.
class BestOfRow {
 public:
  BestOfRow(int64_t k, float* scores, int64_t* ids)
      : k_(k), scores_(scores), ids_(ids) {
    SetLeast();
  }

  // Merges logits [count] of the classes from `offset` on, which come after
  // those of all calls before. NaN never enters.
  void Merge(const float* logits, int64_t count, int64_t offset) {
    constexpr int64_t kPart = kStep * kMostSteps;
    for (int64_t start = 0; start < count; start += kPart) {
      MergePart(logits + start, std::min(kPart, count - start), offset + start);
    }
    Flush();
  }

 private:
  static constexpr int64_t kStep = 64, kMostSteps = 128, kWaiting = 64;

  struct Scored {
    float score;
    int64_t id;
    bool operator<(const Scored& other) const {
      return score != other.score ? score > other.score : id < other.id;
    }
  };

  void MergePart(const float* logits, int64_t count, int64_t offset) {
    float maxima[kMostSteps];
    const int64_t steps = (count + kStep - 1) / kStep;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t first = s * kStep;
      maxima[s] = MaxOf(logits + first, std::min(kStep, count - first));
    }
    if (ids_[k_ - 1] < 0 && steps >= k_) RaiseBound(maxima, steps);
    for (int64_t s = 0; s < steps; ++s) {
      if (maxima[s] < least_) continue;
      const int64_t first = s * kStep;
      TakeFrom(logits + first, std::min(kStep, count - first), offset + first);
    }
  }

  // The k-th greatest maximum: so many logits are no less. Without it half of
  // all that ever enter do so in the first part.
  void RaiseBound(const float* maxima, int64_t steps) {
    float order[kMostSteps];
    std::copy(maxima, maxima + steps, order);
    std::nth_element(order, order + (k_ - 1), order + steps,
                     std::greater<float>());
    bound_ = std::max(bound_, order[k_ - 1]);
    SetLeast();
  }

  // Few of them enter, so eight are looked at in one.
  void TakeFrom(const float* logits, int64_t size, int64_t offset) {
    uint8_t enters[kStep] = {};
    const float least = least_;
    for (int64_t c = 0; c < size; ++c) enters[c] = logits[c] >= least;
    for (int64_t c = 0; c < size; c += 8) {
      uint64_t eight;
      std::memcpy(&eight, enters + c, sizeof(eight));
      if (eight == 0) continue;
      for (int64_t i = c; i < c + 8; ++i) {
        if (enters[i]) Wait(logits[i], offset + i);
      }
    }
  }

  void Wait(float score, int64_t id) {
    waiting_[num_waiting_++] = {score, id};
    if (num_waiting_ == kWaiting) Flush();
  }

  void Flush() {
    std::sort(waiting_, waiting_ + num_waiting_);
    int64_t kept = k_ - 1, added = num_waiting_ - 1;
    // The worst of both, as many as came.
    for (int64_t i = 0; i < num_waiting_; ++i) {
      --(IsBetter(added, kept) ? kept : added);
    }
    for (int64_t place = k_ - 1; added >= 0; --place) {
      const bool moves = IsBetter(added, kept);
      scores_[place] = moves ? scores_[kept] : waiting_[added].score;
      ids_[place] = moves ? ids_[kept] : waiting_[added].id;
      --(moves ? kept : added);
    }
    num_waiting_ = 0;
    SetLeast();
  }

  void SetLeast() {
    least_ = bound_;
    if (ids_[k_ - 1] < 0) return;
    const float last = scores_[k_ - 1];
    least_ = std::nextafter(last, std::numeric_limits<float>::infinity());
  }

  // What waits than what is kept: of equals the lower id, which came before.
  bool IsBetter(int64_t added, int64_t kept) const {
    if (kept < 0) return false;
    return ids_[kept] < 0 || waiting_[added].score > scores_[kept];
  }

  const int64_t k_;
  float* const scores_;
  int64_t* const ids_;
  float bound_ = -std::numeric_limits<float>::infinity();
  float least_;  // what enters has at least this logit
  Scored waiting_[kWaiting];
  int64_t num_waiting_ = 0;
};

// Merges a row into the k best so far, see `BestOfRow`.
inline void TopKBlockRow(const float* logits, int64_t block, int64_t offset,
                         int64_t k, float* scores, int64_t* ids) {
  BestOfRow(k, scores, ids).Merge(logits, block, offset);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SOFTMAX_BLOCK_H_
