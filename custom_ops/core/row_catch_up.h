// Brings rows that an optimizer skipped to where the dense optimizer would
// have them, as if each skipped step had come with a zero gradient.
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
// O(steps) time and 24 bytes a step; older rows sum their own series. Reading
// it is thread-safe. CatchUpRows costs O(rows * dim).
#ifndef TFXCLASS_CORE_ROW_CATCH_UP_H_
#define TFXCLASS_CORE_ROW_CATCH_UP_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/row_update.h"

namespace tfxclass {

// What k skipped steps do to one row; see above.
struct Skipped {
  float keep = 1, momentum = 1, velocity = 1;
  std::array<float, 3> move = {0, 0, 0};
};

// One skipped step. `scale` is the step size before the bias correction;
// powers[p] is by how much the p-th sum falls in a step; betas of 0 mean no
// bias correction.
struct SkipRule {
  double keep = 1, momentum = 1, velocity = 1, scale = 0;
  std::array<double, 3> powers = {0, 0, 0};
  double bias_beta_1 = 0, bias_beta_2 = 0;
};

inline SkipRule SgdSkipRule(double decay, double momentum, bool nesterov) {
  SkipRule rule;
  rule.keep = 1 - decay;
  rule.momentum = momentum;
  rule.scale = nesterov ? -momentum : -1;
  rule.powers[0] = momentum;
  return rule;
}

inline SkipRule AdamSkipRule(double learning_rate, double decay, double beta_1,
                             double beta_2, bool amsgrad) {
  SkipRule rule;
  rule.keep = 1 - decay;
  rule.momentum = beta_1;
  rule.velocity = beta_2;
  rule.scale = learning_rate;
  rule.powers[0] = amsgrad ? beta_1 : beta_1 / std::sqrt(beta_2);
  if (!amsgrad) {
    rule.powers[1] = beta_1 / beta_2;
    rule.powers[2] = beta_1 / (beta_2 * std::sqrt(beta_2));
  }
  // Keras rounds the betas to float32 before it takes their powers.
  rule.bias_beta_1 = static_cast<float>(beta_1);
  rule.bias_beta_2 = static_cast<float>(beta_2);
  return rule;
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
    BiasCorrection bias(rule_, step - window);
    for (double& rate : rates) rate = rule_.scale * bias.Next();
    table_.reserve(window + 1);
    table_.push_back(Skipped());
    double keep = 1, momentum = 1, velocity = 1;
    std::array<double, 3> sum = {0, 0, 0};
    // sum_p(s - 1) = power_p * (keep^(step - s) * rate_s + sum_p(s)).
    for (int64_t age = 1; age <= window; ++age) {
      const double last_rate = keep * rates[window - age];
      for (int p = 0; p < 3; ++p)
        sum[p] = rule_.powers[p] * (last_rate + sum[p]);
      keep *= rule_.keep;
      momentum *= rule_.momentum;
      velocity *= rule_.velocity;
      table_.push_back(Pack(keep, momentum, velocity, sum));
    }
  }

  // For a row that was current after `last` steps; 0 means never touched, and
  // then its slots are still zero.
  Skipped For(int64_t last) const {
    const int64_t age = step_ - last;
    if (age <= 0) return Skipped();
    if (age < static_cast<int64_t>(table_.size())) return table_[age];
    std::array<double, 3> sum = {0, 0, 0};
    if (last > 0) sum = Series(last, age);
    return Pack(std::pow(rule_.keep, age), std::pow(rule_.momentum, age),
                std::pow(rule_.velocity, age), sum);
  }

 private:
  static constexpr int64_t kWindow = 65536;

  // sqrt(1 - beta_2^t) / (1 - beta_1^t) for t = start + 1, start + 2, ...
  class BiasCorrection {
   public:
    BiasCorrection(const SkipRule& rule, int64_t start)
        : beta_1_(rule.bias_beta_1),
          beta_2_(rule.bias_beta_2),
          power_1_(std::pow(beta_1_, start)),
          power_2_(std::pow(beta_2_, start)) {}
    double Next() {
      power_1_ *= beta_1_;
      power_2_ *= beta_2_;
      return std::sqrt(1 - power_2_) / (1 - power_1_);
    }

   private:
    double beta_1_, beta_2_, power_1_, power_2_;
  };

  // The sums of a row older than the table, up to terms below 1e-9.
  std::array<double, 3> Series(int64_t last, int64_t age) const {
    std::array<double, 3> sum = {0, 0, 0}, power = {1, 1, 1};
    BiasCorrection bias(rule_, last);
    const double largest =
        std::max({rule_.powers[0], rule_.powers[1], rule_.powers[2]});
    double keep = std::pow(rule_.keep, age), bound = 1;
    for (int64_t i = 0; i < age && bound > 1e-9; ++i, bound *= largest) {
      if (rule_.keep > 0) keep /= rule_.keep;
      const double rate = keep * rule_.scale * bias.Next();
      for (int p = 0; p < 3; ++p)
        sum[p] += rate * (power[p] *= rule_.powers[p]);
    }
    return sum;
  }

  // From sums of c_i^-(p+1) to sums of c_i^-1 delta_i^p.
  static Skipped Pack(double keep, double momentum, double velocity,
                      const std::array<double, 3>& sum) {
    const bool expanded = sum[1] != 0;
    const double second = expanded ? sum[1] - sum[0] : 0;
    const double third = expanded ? sum[2] - 2 * sum[1] + sum[0] : 0;
    return {static_cast<float>(keep),
            static_cast<float>(momentum),
            static_cast<float>(velocity),
            {static_cast<float>(sum[0]), static_cast<float>(second),
             static_cast<float>(third)}};
  }

  SkipRule rule_;
  int64_t step_;
  std::vector<Skipped> table_;  // by age
};

inline void CatchUpRow(const SgdRule& rule, int64_t row, const Skipped& s) {
  float* __restrict w = rule.var + row * rule.dim;
  if (rule.velocity == nullptr) {
    for (int64_t d = 0; d < rule.dim; ++d) w[d] *= s.keep;
    return;
  }
  float* __restrict m = rule.velocity + row * rule.dim;
  for (int64_t d = 0; d < rule.dim; ++d) {
    w[d] = w[d] * s.keep - m[d] * s.move[0];
    m[d] *= s.momentum;
  }
}

inline void CatchUpRow(const AdagradRule& rule, int64_t row, const Skipped& s) {
  float* __restrict w = rule.var + row * rule.dim;
  for (int64_t d = 0; d < rule.dim; ++d) w[d] *= s.keep;
}

inline void CatchUpRow(const AdamRule& rule, int64_t row, const Skipped& s) {
  float* __restrict w = rule.var + row * rule.dim;
  float* __restrict m = rule.momentum + row * rule.dim;
  float* __restrict v = rule.velocity + row * rule.dim;
  // AMSGrad's largest v does not change while v only falls.
  const float* divisor =
      rule.velocity_hat ? rule.velocity_hat + row * rule.dim : v;
  for (int64_t d = 0; d < rule.dim; ++d) {
    const float h = std::sqrt(divisor[d]) + rule.epsilon;
    const float x = rule.epsilon / h;
    const float move = s.move[0] - x * (s.move[1] - x * s.move[2]);
    w[d] = w[d] * s.keep - m[d] / h * move;
    m[d] *= s.momentum;
    v[d] *= s.velocity;
  }
}

// Brings the rows to `step` and says so in last_step [num_rows].
template <class Rule>
void CatchUpRows(const RowGroups& groups, const Rule& rule,
                 const SkipRule& skip_rule, int64_t step, int64_t* last_step,
                 const ParallelFor& parallel) {
  int64_t oldest = step;
  for (int64_t row : groups.rows) {
    if (last_step[row] > 0) oldest = std::min(oldest, last_step[row]);
  }
  const SkippedSteps skipped(skip_rule, step, oldest);
  parallel(groups.size(), rule.dim + 50, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = groups.rows[i];
      if (last_step[row] >= step) continue;
      CatchUpRow(rule, row, skipped.For(last_step[row]));
      last_step[row] = step;
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_CATCH_UP_H_
