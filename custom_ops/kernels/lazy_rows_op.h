// What the ops that apply a rule to rows of a matrix have in common.
#ifndef TFXCLASS_KERNELS_LAZY_ROWS_OP_H_
#define TFXCLASS_KERNELS_LAZY_ROWS_OP_H_

#include <cstdint>
#include <type_traits>

#include "core/row_rules.h"
#include "core/row_update.h"
#include "kernels/kernel_utils.h"
#include "kernels/row_inputs.h"
#include "kernels/row_op.h"

namespace tfxclass {

enum RoundingPurpose { kRoundUpdate, kRoundCatchUp };

// They apply the rule of `Inputs` to rows of T with slots and
// gradients of S. Kept is how T is named where it is rounded.
template <class Inputs, class Kept, class S>
class LazyRowsOp : public RowOp {
 public:
  LazyRowsOp(tensorflow::OpKernelConstruction* c, bool needs_history)
      : RowOp(c, Inputs::kLeastSlots, Inputs::kMostSlots, Inputs::kMoments,
              Inputs::kHasRates, needs_history) {
    options_.rule = Inputs::kRule;
    OP_REQUIRES_OK(c, ReadOptions(c, &options_));
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed_));
    OP_REQUIRES(
        c, !is_compact() || kMayBeCompact,
        absl::InvalidArgumentError(absl::StrCat(
            "`compact` slots need S to be float. Received: ",
            tensorflow::DataTypeString(tensorflow::DataTypeToEnum<S>::value))));
  }

 protected:
  // The scalars that an update and a catch-up have.
  absl::Status ReadBetas(tensorflow::OpKernelContext* c,
                         RuleNumbers* numbers) const {
    if (Inputs::kRule != RowRule::kAdam) return absl::OkStatus();
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &numbers->beta_1));
    return ReadScalar(c, "beta_2", &numbers->beta_2);
  }

  // Calls run(element, the matrices). What is rounded at `step` of this
  // `purpose` is so by random numbers of its own.
  template <class Run>
  void WithRule(const RowMatrices& rows, const RuleNumbers& numbers,
                int64_t step, int purpose, const Run& run) const {
    WithElement<Wide<S>, Inputs::kRule>(num_slots(), [&](auto type) {
      const typename decltype(type)::type element(options_, numbers);
      const RowRandom random = {static_cast<uint64_t>(seed_) * 2 + purpose,
                                static_cast<uint64_t>(step)};
      if constexpr (kMayBeCompact) {
        if (is_compact()) {
          run(element, Slotted<true>(rows, random));
          return;
        }
      }
      run(element, Slotted<false>(rows, random));
    });
  }

 private:
  static constexpr bool kMayBeCompact = std::is_same_v<S, float>;

  template <bool kCompact>
  static SlottedRows<Kept, S, kCompact> Slotted(const RowMatrices& rows,
                                                const RowRandom& random) {
    SlottedRows<Kept, S, kCompact> slotted;
    slotted.var = rows.matrix<Kept>(0);
    for (int s = 0; s < 3; ++s) slotted.slots[s] = rows.matrices[s + 1];
    slotted.dim = rows.dim;
    slotted.random = random;
    return slotted;
  }

  RowRuleOptions options_;
  int64_t seed_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LAZY_ROWS_OP_H_
