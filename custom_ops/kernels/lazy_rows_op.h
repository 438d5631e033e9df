// The base of the ops that apply a rule to rows of a matrix.
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

// Ops that apply the rule of `Inputs` to rows of T with gradients of S.
// `Stored` is the type of the rows where they are rounded stochastically.
template <class Inputs, class Stored, class S>
class LazyRowsOp : public RowOp {
 public:
  explicit LazyRowsOp(tensorflow::OpKernelConstruction* c)
      : RowOp(c, Inputs::kLeastSlots, Inputs::kMostSlots, Inputs::kMoments) {
    options_.rule = Inputs::kRule;
    OP_REQUIRES_OK(c, ReadOptions(c, &options_));
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed_));
  }

 protected:
  // The scalars of a step.
  absl::Status ReadNumbers(tensorflow::OpKernelContext* c,
                           RuleNumbers* numbers) const {
    TF_RETURN_IF_ERROR(ReadScalar(c, Inputs::kRate, &numbers->learning_rate));
    TF_RETURN_IF_ERROR(ReadScalar(c, "decay", &numbers->decay));
    if (Inputs::kRule == RowRule::kAdagrad) {
      return ReadScalar(c, "offset", &numbers->offset);
    }
    if (Inputs::kRule != RowRule::kAdam) return absl::OkStatus();
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &numbers->beta_1));
    return ReadScalar(c, "beta_2", &numbers->beta_2);
  }

  // Calls run(element, the matrices). `step` numbers the random bits.
  template <class Run>
  void WithRule(const RowMatrices& rows, const RuleNumbers& numbers,
                int64_t step, const Run& run) const {
    WithElement<Wide<S>, Inputs::kRule>(num_slots(), [&](auto type) {
      const typename decltype(type)::type element(options_, numbers);
      // Twice the seed: files of earlier versions go on with the same bits.
      const RowRandom random = {static_cast<uint64_t>(seed_) * 2,
                                static_cast<uint64_t>(step)};
      if constexpr (std::is_same_v<S, float>) {
        if (has_bfloat16_moments()) {
          run(element, Slotted<Bf16, true>(rows, random));
          return;
        }
        if (has_row_moments()) {
          run(element, Slotted<float, true>(rows, random));
          return;
        }
      }
      run(element, Slotted<S, false>(rows, random));
    });
  }

 private:
  template <class M, bool kRowMoments>
  static SlottedRows<Stored, M, kRowMoments> Slotted(const RowMatrices& rows,
                                                     const RowRandom& random) {
    SlottedRows<Stored, M, kRowMoments> slotted;
    slotted.var = rows.matrix<Stored>(0);
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
