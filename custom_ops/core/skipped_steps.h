// What the steps that an optimizer skipped would have done to a row, as if each
// had come with a zero gradient, at the rate and with the decay it had.
//
// A row with k skipped steps i = 1, ..., k obeys
//   m <- momentum^k m,  v <- velocity^k v,
//   w <- keep_0 w - sum_i keep_i rate_i move_i(m, v),
// where keep_i is the product of 1 - decay over the steps after the i-th, and
//   SGD:     move_i = -momentum^i m, times momentum once more with Nesterov,
//   AMSGrad: move_i = beta_1^i m / (sqrt(v_hat) + eps), v_hat stands still,
//   Adam:    move_i = beta_1^i m / (c_i sqrt(v) + eps),  c_i = beta_2^(i/2).
// With h = sqrt(v) + eps and x = eps / h, Adam's is m / h times
//   g_i(x) = beta_1^i / (c_i + (1 - c_i) x),  0 <= x <= 1,
// a smooth function of x alone: a polynomial whose coefficients do not depend
// on the row. So a row needs one sum over steps for each coefficient, whatever
// its dim is. Steps whose beta_1^i is below float precision are left out: the
// time for a row is bounded, and what is older is decay alone, a difference of
// two prefix sums. Polynomials and steps that count are chosen in
// tfxclass/optimizers/skipped_steps.py. Where betas make no good polynomial,
// the sum is taken for each element.
//
// The history of a variable's steps starts anew when it is full, and by then
// all rows have to be current. Reading is thread-safe.
#ifndef TFXCLASS_CORE_SKIPPED_STEPS_H_
#define TFXCLASS_CORE_SKIPPED_STEPS_H_

#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

constexpr int kMostSkipTerms = 6;

// Steps are numbered from 0; step s is at place s - Base().
struct StepHistory {
  int64_t clock = 0;  // how many steps there were
  int64_t capacity = 1;
  const float* rates = nullptr;       // [capacity]; null: all 1
  const double* log_keeps = nullptr;  // [capacity + 1]: sums of log(1 - decay)
                                      // of the steps before; null: no decay

  TFXCLASS_HD int64_t Base() const {
    return clock > 0 ? (clock - 1) / capacity * capacity : 0;
  }
  TFXCLASS_HD bool IsFull() const { return clock > 0 && clock % capacity == 0; }
  // Where the steps begin that a row skipped which was current after `last`.
  TFXCLASS_HD int64_t First(int64_t last) const {
    return last > Base() ? last - Base() : 0;
  }
  TFXCLASS_HD int64_t End() const { return clock - Base(); }

  // What weight decay leaves of a row from place `first` on.
  TFXCLASS_HD double Kept(int64_t first) const {
    return log_keeps == nullptr ? 1 : exp(log_keeps[End()] - log_keeps[first]);
  }
  TFXCLASS_HD float Rate(int64_t place) const {
    return rates == nullptr ? 1 : rates[place];
  }
};

// Step number *clock, and the clock moves on. rates and log_keeps may be null.
// From a decay of 1 on nothing is left of a row. A clock that no steps make
// stands still.
TFXCLASS_HD inline void RecordStep(double rate, double decay, int64_t capacity,
                                   int64_t* clock, float* rates,
                                   double* log_keeps) {
  constexpr double kMost = 1 - 1e-15;
  if (*clock < 0 || *clock == INT64_MAX) return;
  const int64_t place = *clock % capacity;
  if (rates != nullptr) rates[place] = static_cast<float>(rate);
  if (log_keeps != nullptr) {
    if (place == 0) log_keeps[0] = 0;
    log_keeps[place + 1] =
        log_keeps[place] + log1p(-(decay < kMost ? decay : kMost));
  }
  ++*clock;
}

// values [terms, steps]: what the i-th skipped step adds to each coefficient;
// or, for each element apart, beta_1^i and c_i.
struct SkipTerms {
  const float* values = nullptr;
  int64_t terms = 0, steps = 0;
  bool each_element = false;
};

// How moments fade in a step.
struct SkipFade {
  double momentum = 1, velocity = 1;
};

// What the steps that a row skipped do to it.
struct Skipped {
  double keep = 1, momentum = 1, velocity = 1;
  float move[kMostSkipTerms] = {0, 0, 0, 0, 0, 0};

  template <class W>
  TFXCLASS_HD W Move(W x) const {
    W sum = move[kMostSkipTerms - 1];
    for (int p = kMostSkipTerms - 2; p >= 0; --p) sum = sum * x + move[p];
    return sum;
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SKIPPED_STEPS_H_
