// The threshold of a sparsemax: tau with sum_c max(z_c - tau, 0) = 1.
//
// Only logits above max - 1 can be in the support. They are collected, and
// those at or below the threshold of what is left are dropped until none is
// (Michelot, A finite algorithm for finding the projection of a point onto the
// canonical simplex, 1986). Time: two passes over the row, and in practice a
// few over what was collected; scratch as long as that. Thread-safe for
// different rows.
#ifndef TFXCLASS_CORE_SPARSEMAX_H_
#define TFXCLASS_CORE_SPARSEMAX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tfxclass {

struct SparsemaxThreshold {
  float top;          // the greatest logit
  float tau;          // the threshold less `top`, in [-1, 0)
  float sum_squares;  // of the probabilities
};

namespace internal {

// Greatest of a row; NaN if one is.
inline float MaxOrNan(const float* logits, int64_t count) {
  float top = -std::numeric_limits<float>::infinity();
  bool is_nan = false;
  for (int64_t c = 0; c < count; ++c) {
    top = std::max(top, logits[c]);
    is_nan |= std::isnan(logits[c]);
  }
  return is_nan ? std::numeric_limits<float>::quiet_NaN() : top;
}

// Appends logit - top of the logits above top - 1.
inline void Collect(const float* logits, int64_t count, float top,
                    std::vector<float>* near) {
  constexpr int64_t kStep = 64;
  near->clear();
  for (int64_t begin = 0; begin < count; begin += kStep) {
    const int64_t end = std::min(begin + kStep, count);
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t c = begin; c < end; ++c) best = std::max(best, logits[c]);
    if (best - top <= -1.0f) continue;
    for (int64_t c = begin; c < end; ++c) {
      if (logits[c] - top > -1.0f) near->push_back(logits[c] - top);
    }
  }
}

}  // namespace internal

// Of count >= 1 logits. NaN where one is NaN or the greatest is infinite.
inline SparsemaxThreshold FindSparsemaxThreshold(const float* logits,
                                                 int64_t count,
                                                 std::vector<float>* near) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float top = internal::MaxOrNan(logits, count);
  if (!std::isfinite(top)) return {top, kNan, kNan};
  internal::Collect(logits, count, top, near);
  double tau = 0;
  for (size_t before = 0; before != near->size();) {
    before = near->size();
    double sum = 0;
    for (const float z : *near) sum += z;
    tau = (sum - 1) / before;
    near->erase(std::remove_if(near->begin(), near->end(),
                               [=](float z) { return z <= tau; }),
                near->end());
  }
  double squares = 0;
  for (const float z : *near) squares += (z - tau) * (z - tau);
  return {top, static_cast<float>(tau), static_cast<float>(squares)};
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SPARSEMAX_H_
