// What the steps that an optimizer skipped would have done to a row, as if each
// had come with a zero gradient.
//
// After k steps without a gradient, last at step s, a row obeys
//   m <- momentum^k m,  v <- velocity^k v,
//   w <- keep^k w - (m / h) * (move[0] - x * (move[1] - x * move[2]))
// where keep = 1 - lr * weight_decay and `move` depends on s and k only.
// SGD: h = 1, x = 0. Adam: with c_i = beta_2^(i/2), step s + i divides by
//   c_i sqrt(v) + eps = c_i h (1 + delta_i x),  h = sqrt(v) + eps,
//   x = eps / h <= 1,  delta_i = 1 / c_i - 1,
// and 1 / (1 + delta_i x) is cut after the square. The error relative to the
// move is at most x^3 times the mean of delta_i^3 under weights that fall like
// (beta_1 / sqrt(beta_2))^i: 1e-6 x^3 for the default betas. AMSGrad's divisor
// stands still, so its sum is exact.
//
// SkippedSteps makes the scalars for the last 65,536 steps by one recurrence,
// O(steps) time and 24 bytes a step; older rows sum their own series, as
// SkippedSince does for any row. Reading it is thread-safe.
#ifndef TFXCLASS_CORE_SKIPPED_STEPS_H_
#define TFXCLASS_CORE_SKIPPED_STEPS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/host_device.h"

namespace tfxclass {

// What k skipped steps do to one row.
struct Skipped {
  float keep = 1, momentum = 1, velocity = 1;
  float move[3] = {0, 0, 0};
};

// One skipped step. `scale` is the step size before the bias correction;
// powers[p] is by how much the p-th sum falls in a step; betas of 0 mean no
// bias correction.
struct SkipRule {
  double keep = 1, momentum = 1, velocity = 1, scale = 0;
  double powers[3] = {0, 0, 0};
  double bias_beta_1 = 0, bias_beta_2 = 0;
};

TFXCLASS_HD inline SkipRule SgdSkipRule(double decay, double momentum,
                                        bool nesterov) {
  SkipRule rule;
  rule.keep = 1 - decay;
  rule.momentum = momentum;
  rule.scale = nesterov ? -momentum : -1;
  rule.powers[0] = momentum;
  return rule;
}

TFXCLASS_HD inline SkipRule AdamSkipRule(double learning_rate, double decay,
                                         double beta_1, double beta_2,
                                         bool amsgrad) {
  SkipRule rule;
  rule.keep = 1 - decay;
  rule.momentum = beta_1;
  rule.velocity = beta_2;
  rule.scale = learning_rate;
  rule.powers[0] = amsgrad ? beta_1 : beta_1 / sqrt(beta_2);
  if (!amsgrad) {
    rule.powers[1] = beta_1 / beta_2;
    rule.powers[2] = beta_1 / (beta_2 * sqrt(beta_2));
  }
  // Keras rounds the betas to float32 before it takes their powers.
  rule.bias_beta_1 = static_cast<float>(beta_1);
  rule.bias_beta_2 = static_cast<float>(beta_2);
  return rule;
}

namespace internal {

// sqrt(1 - beta_2^t) / (1 - beta_1^t) for t = start + 1, start + 2, ...
class BiasCorrection {
 public:
  TFXCLASS_HD BiasCorrection(const SkipRule& rule, int64_t start)
      : beta_1_(rule.bias_beta_1),
        beta_2_(rule.bias_beta_2),
        power_1_(pow(beta_1_, static_cast<double>(start))),
        power_2_(pow(beta_2_, static_cast<double>(start))) {}
  TFXCLASS_HD double Next() {
    power_1_ *= beta_1_;
    power_2_ *= beta_2_;
    return sqrt(1 - power_2_) / (1 - power_1_);
  }

 private:
  double beta_1_, beta_2_, power_1_, power_2_;
};

// From sums of c_i^-(p+1) to sums of c_i^-1 delta_i^p.
TFXCLASS_HD inline Skipped PackSkipped(double keep, double momentum,
                                       double velocity, const double* sum) {
  const bool expanded = sum[1] != 0;
  const double second = expanded ? sum[1] - sum[0] : 0;
  const double third = expanded ? sum[2] - 2 * sum[1] + sum[0] : 0;
  return {static_cast<float>(keep),
          static_cast<float>(momentum),
          static_cast<float>(velocity),
          {static_cast<float>(sum[0]), static_cast<float>(second),
           static_cast<float>(third)}};
}

}  // namespace internal

// For a row that was current after `last` steps, of `step`; 0 means never
// touched, and then its slots are still zero. Sums up to terms below 1e-9.
TFXCLASS_HD inline Skipped SkippedSince(const SkipRule& rule, int64_t step,
                                        int64_t last) {
  const int64_t age = step - last;
  if (age <= 0) return Skipped();
  double sum[3] = {0, 0, 0}, power[3] = {1, 1, 1};
  const double all_kept = pow(rule.keep, static_cast<double>(age));
  if (last > 0) {
    internal::BiasCorrection bias(rule, last);
    double largest = 0, keep = all_kept, bound = 1;
    for (const double p : rule.powers) largest = p > largest ? p : largest;
    for (int64_t i = 0; i < age && bound > 1e-9; ++i, bound *= largest) {
      if (rule.keep > 0) keep /= rule.keep;
      const double rate = keep * rule.scale * bias.Next();
      for (int p = 0; p < 3; ++p) {
        sum[p] += rate * (power[p] *= rule.powers[p]);
      }
    }
  }
  return internal::PackSkipped(
      all_kept, pow(rule.momentum, static_cast<double>(age)),
      pow(rule.velocity, static_cast<double>(age)), sum);
}

class SkippedSteps {
 public:
  // step: how many steps are done. oldest: the lowest positive step at which
  // one of the rows to be caught up was last current.
  SkippedSteps(const SkipRule& rule, int64_t step, int64_t oldest)
      : rule_(rule), step_(step) {
    const int64_t window =
        std::min(kWindow, std::max<int64_t>(step - oldest, 0));
    std::vector<double> rates(window);  // of the steps after step - window
    internal::BiasCorrection bias(rule_, step - window);
    for (double& rate : rates) rate = rule_.scale * bias.Next();
    table_.reserve(window + 1);
    table_.push_back(Skipped());
    double keep = 1, momentum = 1, velocity = 1;
    double sum[3] = {0, 0, 0};
    // sum_p(s - 1) = power_p * (keep^(step - s) * rate_s + sum_p(s)).
    for (int64_t age = 1; age <= window; ++age) {
      const double last_rate = keep * rates[window - age];
      for (int p = 0; p < 3; ++p)
        sum[p] = rule_.powers[p] * (last_rate + sum[p]);
      keep *= rule_.keep;
      momentum *= rule_.momentum;
      velocity *= rule_.velocity;
      table_.push_back(internal::PackSkipped(keep, momentum, velocity, sum));
    }
  }

  // As SkippedSince.
  Skipped For(int64_t last) const {
    const int64_t age = step_ - last;
    if (age >= 0 && age < static_cast<int64_t>(table_.size())) {
      return table_[age];
    }
    return SkippedSince(rule_, step_, last);
  }

 private:
  static constexpr int64_t kWindow = 65536;

  SkipRule rule_;
  int64_t step_;
  std::vector<Skipped> table_;  // by age
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SKIPPED_STEPS_H_
