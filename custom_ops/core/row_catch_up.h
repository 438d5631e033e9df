// Brings rows that an optimizer skipped to where the dense optimizer would
// have them (core/skipped_steps.h). O(dim + steps that count) a row.
#ifndef TFXCLASS_CORE_ROW_CATCH_UP_H_
#define TFXCLASS_CORE_ROW_CATCH_UP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/row_update.h"
#include "core/skipped_steps.h"
#include "core/vectors.h"

namespace tfxclass {

// The sums over steps of one row after the other, of one thread.
class SkippedSums {
 public:
  SkippedSums(const StepHistory& history, const SkipTerms& terms,
              const SkipFade& fade)
      : history_(history), terms_(terms), fade_(fade), rates_(terms.steps) {}

  // Of a row that was current after `last` steps, fewer than history.clock.
  Skipped Of(int64_t last) {
    Skipped skipped;
    const int64_t first = history_.First(last), age = history_.End() - first;
    skipped.keep = history_.Kept(first);
    count_ = std::min(age, terms_.steps);
    skipped.momentum = std::pow(fade_.momentum, static_cast<double>(age));
    skipped.velocity = std::pow(fade_.velocity, static_cast<double>(age));
    FillRates(first);
    for (int p = 0; p < (terms_.each_element ? 0 : terms_.terms); ++p) {
      skipped.move[p] =
          Dot(terms_.values + p * terms_.steps, rates_.data(), count_);
    }
    return skipped;
  }

  // For each element: move[d] = sum_i keep_i rate_i move_i / m of the row that
  // Of was last called for.
  template <class W, class T>
  void MoveEach(const T* __restrict v, int64_t dim, W epsilon,
                W* __restrict move) const {
    const float* power = terms_.values;
    const float* c = terms_.values + terms_.steps;
    std::vector<W> root(dim);
    for (int64_t d = 0; d < dim; ++d) root[d] = std::sqrt(static_cast<W>(v[d]));
    std::fill_n(move, dim, W(0));
    for (int64_t i = 0; i < count_; ++i) {
      const W rate = rates_[i] * power[i], of_root = c[i];
      for (int64_t d = 0; d < dim; ++d) {
        move[d] += rate / (of_root * root[d] + epsilon);
      }
    }
  }

  bool IsEachElement() const { return terms_.each_element; }

 private:
  // rates_[i] = keep_i rate_i, from the last step that counts to the first.
  void FillRates(int64_t first) {
    if (history_.log_keeps == nullptr) {
      for (int64_t i = 0; i < count_; ++i) rates_[i] = history_.Rate(first + i);
      return;
    }
    const double* log_keeps = history_.log_keeps + first;
    double keep = history_.Kept(first + count_);
    for (int64_t i = count_; i-- > 0;) {
      rates_[i] = static_cast<float>(keep * history_.Rate(first + i));
      keep *= Exp(log_keeps[i + 1] - log_keeps[i]);
    }
  }

  // Most decays are small.
  static double Exp(double x) {
    if (x < -0.01) return std::exp(x);
    return 1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4)));
  }

  const StepHistory& history_;
  const SkipTerms& terms_;
  const SkipFade& fade_;
  int64_t count_ = 0;
  std::vector<float> rates_;
};

template <class T>
void CatchUpRow(const SgdRule<T>& rule, int64_t row, const Skipped& s,
                const SkippedSums&, Wide<T>*) {
  using W = Wide<T>;
  const W keep = static_cast<W>(s.keep), fade = static_cast<W>(s.momentum);
  T* __restrict w = rule.var + row * rule.dim;
  if (rule.velocity == nullptr) {
    for (int64_t d = 0; d < rule.dim; ++d) {
      w[d] = static_cast<T>(static_cast<W>(w[d]) * keep);
    }
    return;
  }
  T* __restrict m = rule.velocity + row * rule.dim;
  for (int64_t d = 0; d < rule.dim; ++d) {
    const W velocity = static_cast<W>(m[d]);
    w[d] = static_cast<T>(static_cast<W>(w[d]) * keep - velocity * s.move[0]);
    m[d] = static_cast<T>(velocity * fade);
  }
}

template <class T>
void CatchUpRow(const AdagradRule<T>& rule, int64_t row, const Skipped& s,
                const SkippedSums&, Wide<T>*) {
  using W = Wide<T>;
  const W keep = static_cast<W>(s.keep);
  T* __restrict w = rule.var + row * rule.dim;
  for (int64_t d = 0; d < rule.dim; ++d) {
    w[d] = static_cast<T>(static_cast<W>(w[d]) * keep);
  }
}

template <class T>
void CatchUpRow(const AdamRule<T>& rule, int64_t row, const Skipped& s,
                const SkippedSums& sums, Wide<T>* buffer) {
  using W = Wide<T>;
  const W keep = static_cast<W>(s.keep), epsilon = rule.epsilon;
  const W fade_m = static_cast<W>(s.momentum);
  const W fade_v = static_cast<W>(s.velocity);
  T* __restrict w = rule.var + row * rule.dim;
  T* __restrict m = rule.momentum + row * rule.dim;
  T* __restrict v = rule.velocity + row * rule.dim;
  // AMSGrad's largest v does not change while v only falls.
  const T* divisor = rule.velocity_hat ? rule.velocity_hat + row * rule.dim : v;
  if (sums.IsEachElement()) {
    sums.MoveEach(divisor, rule.dim, epsilon, buffer);
  } else {
    for (int64_t d = 0; d < rule.dim; ++d) {
      const W h = std::sqrt(static_cast<W>(divisor[d])) + epsilon;
      buffer[d] = s.Move(epsilon / h) / h;
    }
  }
  for (int64_t d = 0; d < rule.dim; ++d) {
    const W first = static_cast<W>(m[d]);
    w[d] = static_cast<T>(static_cast<W>(w[d]) * keep - first * buffer[d]);
    m[d] = static_cast<T>(first * fade_m);
    v[d] = static_cast<T>(static_cast<W>(v[d]) * fade_v);
  }
}

// Brings row_of(0), ..., row_of(count - 1), each another row, to the present
// and says so in last_step [num_rows].
template <class Rule, class RowOf>
void CatchUpRows(int64_t count, const RowOf& row_of, const Rule& rule,
                 const StepHistory& history, const SkipTerms& terms,
                 const SkipFade& fade, int64_t* last_step,
                 const ParallelFor& parallel) {
  parallel(count, rule.dim + 50, [&](int64_t begin, int64_t end) {
    SkippedSums sums(history, terms, fade);
    std::vector<typename Rule::W> buffer(rule.dim);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = row_of(i);
      const int64_t last = last_step[row];
      if (last >= history.clock) continue;
      CatchUpRow(rule, row, sums.Of(last), sums, buffer.data());
      last_step[row] = history.clock;
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_CATCH_UP_H_
