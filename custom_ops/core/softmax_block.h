// One pass over a block of logits: running max and sum of exponentials, the
// gradient of the cross-entropy, and the running top k.
//
// All functions work on one row of a [batch, block] matrix whose first column
// is class `offset`. Time O(block) a row (TopKBlockRow: plus O(log k) for each
// logit that enters), no memory beyond the arguments. Thread-safe for
// different rows.
#ifndef TFXCLASS_CORE_SOFTMAX_BLOCK_H_
#define TFXCLASS_CORE_SOFTMAX_BLOCK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

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

// sum_c exp(logits[c] - top). Eight float sums of 16 numbers each side by side,
// a relative error below 5e-7 however they fall, and of those a double one:
// float alone is off by 3e-4 over millions of classes.
inline double SumOfExp(const float* logits, int64_t count, float top) {
  constexpr int64_t kStep = 16 * kLanes;
  float exp[kStep];
  double total = 0;
  for (int64_t start = 0; start < count; start += kStep) {
    const int64_t size = std::min(kStep, count - start);
    for (int64_t c = 0; c < size; ++c)
      exp[c] = FastExp(logits[start + c] - top);
    std::fill(exp + size, exp + kStep, 0.0f);
    Lanes part{};
    for (int64_t c = 0; c < kStep; c += kLanes) part += LoadLanes(exp + c);
    total += SumLanes(part);
  }
  return total;
}

// Folds a row into (max, sum), where sum = sum_c exp(logit_c - max). Logits of
// the targets within the block, none twice, are first raised by their delta
// (the margin): added and taken off again, a great one would swallow the rest.
inline void SoftmaxStatsRow(const float* logits, int64_t block, int64_t offset,
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
        total += SumOfExp(logits + begin, end - begin, top);
      },
      [&](float logit) { total += FastExp(logit - top); });
  *sum = *sum * std::exp(static_cast<double>(*max) - top) + total;
  *max = top;
}

// grad[c] = upstream * softmax[c]; at the targets target_grad is written
// instead (it already contains the softmax, the margin and the label weight).
inline void SoftmaxGradRow(const float* logits, int64_t block, int64_t offset,
                           const int64_t* targets, const float* target_grad,
                           int64_t num_targets, float logsumexp, float upstream,
                           float* grad) {
  for (int64_t c = 0; c < block; ++c) {
    grad[c] = upstream * FastExp(std::min(logits[c] - logsumexp, 0.0f));
  }
  for (int64_t t = 0; t < num_targets; ++t) {
    const int64_t c = targets[t] - offset;
    if (c >= 0 && c < block) grad[c] = target_grad[t];
  }
}

// Merges a row into the k best so far, sorted by (score falling, id rising).
// NaN never enters.
inline void TopKBlockRow(const float* logits, int64_t block, int64_t offset,
                         int64_t k, float* scores, int64_t* ids) {
  constexpr int64_t kStep = 64;
  for (int64_t start = 0; start < block; start += kStep) {
    const int64_t end = std::min(start + kStep, block);
    const float best = MaxOf(logits + start, end - start);
    if (!(best > scores[k - 1]) && ids[k - 1] >= 0) continue;
    for (int64_t c = start; c < end; ++c) {
      const float score = logits[c];
      const bool enters =
          score > scores[k - 1] || (ids[k - 1] < 0 && score == scores[k - 1]);
      if (!enters) continue;
      // First slot that is worse; equal scores keep the lower id first.
      int64_t slot =
          std::upper_bound(scores, scores + k, score, std::greater<float>()) -
          scores;
      while (slot > 0 && ids[slot - 1] < 0) --slot;
      std::memmove(scores + slot + 1, scores + slot,
                   (k - 1 - slot) * sizeof(float));
      std::memmove(ids + slot + 1, ids + slot,
                   (k - 1 - slot) * sizeof(int64_t));
      scores[slot] = score;
      ids[slot] = offset + c;
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SOFTMAX_BLOCK_H_
