// Brings rows that an optimizer skipped to where the dense optimizer would
// have them (core/skipped_steps.h). O(rows * dim), beside the table.
#ifndef TFXCLASS_CORE_ROW_CATCH_UP_H_
#define TFXCLASS_CORE_ROW_CATCH_UP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/parallel.h"
#include "core/row_update.h"
#include "core/skipped_steps.h"

namespace tfxclass {

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
void CatchUpRows(const RowRuns& groups, const Rule& rule,
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
