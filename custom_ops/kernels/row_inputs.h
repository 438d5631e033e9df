// What an op of each optimizer's rule has: its slots, attributes and scalars.
#ifndef TFXCLASS_KERNELS_ROW_INPUTS_H_
#define TFXCLASS_KERNELS_ROW_INPUTS_H_

#include "core/row_rules.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {

struct SgdInputs {
  static constexpr RowRule kRule = RowRule::kSgd;
  static constexpr int kLeastSlots = 0, kMostSlots = 1, kMoments = 1;
  static constexpr const char* kRate = "learning_rate";
};

struct AdagradInputs {
  static constexpr RowRule kRule = RowRule::kAdagrad;
  static constexpr int kLeastSlots = 1, kMostSlots = 1, kMoments = 0;
  static constexpr const char* kRate = "learning_rate";
};

struct AdamInputs {
  static constexpr RowRule kRule = RowRule::kAdam;
  static constexpr int kLeastSlots = 2, kMostSlots = 3, kMoments = 1;
  static constexpr const char* kRate = "alpha";
};

// Those of the attributes that an op has.
inline absl::Status ReadOptions(tensorflow::OpKernelConstruction* c,
                                RowRuleOptions* o) {
  const auto read = [c](const char* name, auto* value) {
    return c->HasAttr(name) ? c->GetAttr(name, value) : absl::OkStatus();
  };
  TF_RETURN_IF_ERROR(read("momentum", &o->momentum));
  TF_RETURN_IF_ERROR(read("nesterov", &o->nesterov));
  return read("epsilon", &o->epsilon);
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_INPUTS_H_
