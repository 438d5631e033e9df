// The threshold of a sparsemax: tau with sum_c max(z_c - tau, 0) = 1.
//
// The threshold of some of the logits is never above that of all. So that of
// the greatest logits of stretches of the row rules out most of the others;
// what is left is collected, and those at or below its threshold are dropped
// until none is (Michelot, A finite algorithm for finding the projection of a
// point onto the canonical simplex, 1986). Time: one pass over the row and a
// look at the stretches that may hold the support; scratch: a 64th of the row
// and what was collected. Thread-safe for different rows.
#ifndef TFXCLASS_CORE_SPARSEMAX_H_
#define TFXCLASS_CORE_SPARSEMAX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/vectors.h"

namespace tfxclass {

struct SparsemaxThreshold {
  float top;          // the greatest logit
  float tau;          // the threshold less `top`, in [-1, 0)
  float sum_squares;  // of the probabilities
};

namespace internal {

constexpr int64_t kStretch = 64;

// Greatest of 1 to kStretch logits; NaN if one is.
inline float StretchMax(const float* logits, int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float best = kLowest;
  bool is_nan = false;
  int64_t c = 0;
  if (count == kStretch) {
    Lanes tops = LoadLanes(logits);
    auto nans = tops != tops;
    for (c = kLanes; c < kStretch; c += kLanes) {
      const Lanes next = LoadLanes(logits + c);
      nans |= next != next;
      tops = next > tops ? next : tops;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      best = std::max(best, tops[i]);
      is_nan |= nans[i] != 0;
    }
  }
  for (; c < count; ++c) {
    best = std::max(best, logits[c]);
    is_nan |= std::isnan(logits[c]);
  }
  return is_nan ? std::numeric_limits<float>::quiet_NaN() : best;
}

// The threshold of `logits`, of which those in the support are kept.
inline double Michelot(std::vector<float>* logits) {
  double tau = 0;
  for (size_t before = 0; before != logits->size();) {
    before = logits->size();
    double sum = 0;
    for (const float z : *logits) sum += z;
    tau = (sum - 1) / before;
    logits->erase(std::remove_if(logits->begin(), logits->end(),
                                 [=](float z) { return z <= tau; }),
                  logits->end());
  }
  return tau;
}

}  // namespace internal

struct SparsemaxScratch {
  std::vector<float> maxima, near;
};

// Of count >= 1 logits. NaN where one is NaN or the greatest is infinite.
inline SparsemaxThreshold FindSparsemaxThreshold(const float* logits,
                                                 int64_t count,
                                                 SparsemaxScratch* scratch) {
  using internal::kStretch;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float>&maxima = scratch->maxima, &near = scratch->near;
  maxima.clear();
  float top = -std::numeric_limits<float>::infinity();
  bool is_nan = false;
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const int64_t size = std::min(kStretch, count - begin);
    maxima.push_back(internal::StretchMax(logits + begin, size));
    top = std::max(top, maxima.back());
    is_nan |= std::isnan(maxima.back());
  }
  if (is_nan || !std::isfinite(top)) return {top, kNan, kNan};
  near.clear();
  for (const float z : maxima) near.push_back(z - top);
  const double least = internal::Michelot(&near);
  near.clear();
  for (size_t i = 0; i < maxima.size(); ++i) {
    if (!(maxima[i] - top > least)) continue;
    const int64_t begin = i * kStretch;
    for (int64_t c = begin; c < std::min(begin + kStretch, count); ++c) {
      if (logits[c] - top > least) near.push_back(logits[c] - top);
    }
  }
  const double tau = internal::Michelot(&near);
  double squares = 0;
  for (const float z : near) squares += (z - tau) * (z - tau);
  return {top, static_cast<float>(tau), static_cast<float>(squares)};
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SPARSEMAX_H_
