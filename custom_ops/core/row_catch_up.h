// Brings rows that an optimizer skipped to where the dense optimizer would
// have them (core/skipped_steps.h). O(dim + steps that count) a row.
#ifndef TFXCLASS_CORE_ROW_CATCH_UP_H_
#define TFXCLASS_CORE_ROW_CATCH_UP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/row_rules.h"
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

  // For each element, whose second moment is v_of(d): move[d] = sum_i keep_i
  // rate_i move_i / m of the row that Of was last called for.
  template <class W, class SecondOf>
  void MoveEach(const SecondOf& v_of, int64_t dim, W epsilon,
                W* __restrict move) const {
    const float* power = terms_.values;
    const float* c = terms_.values + terms_.steps;
    std::vector<W> root(dim);
    for (int64_t d = 0; d < dim; ++d)
      root[d] = std::sqrt(static_cast<W>(v_of(d)));
    std::fill_n(move, dim, W(0));
    for (int64_t i = 0; i < count_; ++i) {
      const W rate = rates_[i] * power[i], of_root = c[i];
      for (int64_t d = 0; d < dim; ++d) {
        move[d] += MoveInOneStep(rate, of_root, root[d], epsilon);
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
  const SkipFade fade_;
  int64_t count_ = 0;
  std::vector<float> rates_;
};

template <class Element, class Rows>
void CatchUpRow(const Element& rule, const Rows& rows, int64_t row,
                const Skipped& skipped, const SkippedSums& sums,
                RowBuffers<Rows>* buffers) {
  using W = typename Rows::W;
  const Skipped s = skipped;
  const Element element = rule;
  W* const over_m = buffers->numbers.data();
  const uint32_t* const bits = buffers->bits.data();
  buffers->Draw(rows, row);
  if constexpr (Element::kHasRoot) {
    if (sums.IsEachElement()) {
      const auto second = [&rows, row](int64_t d) {
        constexpr int kSlot = Element::kDivisor;
        if constexpr (Rows::kHasRowSlots) return *rows.OfRow(kSlot, row);
        return Unkept(rows.Full(kSlot, row)[d]);
      };
      sums.MoveEach(second, rows.dim, element.epsilon, over_m);
      rows.template Move<Element>(row, over_m, bits,
                                  [=](W move, W w, W* slots) {
                                    return element.Skip(w, s, move, slots);
                                  });
      return;
    }
  }
  rows.template Move<Element>(row, over_m, bits, [=](W, W w, W* slots) {
    return element.Skip(w, s, element.OverM(s, slots), slots);
  });
}

// Brings the rows `ids` [count], all different, to the present and says so in
// last_step [num_rows]; the first `count` ones without ids.
template <class Element, class Rows>
void CatchUpRows(int64_t count, const int64_t* ids, const Element& rule,
                 const Rows& rows, const StepHistory& history,
                 const SkipTerms& terms, int64_t* last_step,
                 const ParallelFor& parallel) {
  parallel(count, rows.dim + 50, [&](int64_t begin, int64_t end) {
    SkippedSums sums(history, terms, rule.Fade());
    RowBuffers<Rows> buffers(rows.dim);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = ids == nullptr ? i : ids[i];
      const int64_t last = last_step[row];
      if (last >= history.clock) continue;
      CatchUpRow(rule, rows, row, sums.Of(last), sums, &buffers);
      last_step[row] = history.clock;
    }
  });
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_CATCH_UP_H_
