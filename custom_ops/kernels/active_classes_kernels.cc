// CPU kernel of the union of the active classes.
#include <algorithm>
#include <cmath>

#include "kernels/active_classes_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class CpuActiveClassesOp : public ActiveClassesOp {
 public:
  using ActiveClassesOp::ActiveClassesOp;

  void Compute(OpKernelContext* c) override {
    const Tensor& targets = c->input(0);
    const Tensor& candidates = c->input(1);
    ActiveClassesOptions options;
    OP_REQUIRES_OK(c, Read(c, &options));
    OP_REQUIRES_OK(c, CheckIds("targets", targets, options.num_classes, -1));
    OP_REQUIRES_OK(c,
                   CheckIds("candidates", candidates, options.num_classes, -1));
    if (options.fill == FillLaw::kFrequency) {
      OP_REQUIRES_OK(c, CheckTotal(c->input(6)));
      options.cumulative = c->input(6).flat<double>().data();
    }
    ActiveClassesOutputs out;
    OP_REQUIRES_OK(c, Allocate(c, &out));
    ActiveClasses active;
    SelectActiveClasses(
        options, targets.flat<int64_t>().data(), targets.NumElements(),
        candidates.flat<int64_t>().data(), c->input(2).flat<float>().data(),
        candidates.NumElements(), out.positions->flat<int64_t>().data(),
        &active);
    const int64_t count = active.ids.size();
    Tensor *ids, *log_count;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {count}, &ids));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {count}, &log_count));
    CopyTo(active.ids, ids);
    CopyTo(active.log_expected_count, log_count);
    CopyTo(active.target_log_expected_count, out.target_count);
    out.num_targets->scalar<int64_t>()() = active.num_targets;
    out.num_candidates->scalar<int64_t>()() = active.num_candidates;
    out.used->scalar<float>()() = active.places_used;
  }

 private:
  static absl::Status CheckTotal(const Tensor& cumulative) {
    const double total =
        cumulative.flat<double>()(cumulative.NumElements() - 1);
    if (total > 0 && std::isfinite(total)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "`cumulative` must end with a total > 0. Received: ", total));
  }

  template <class T>
  static void CopyTo(const std::vector<T>& values, Tensor* tensor) {
    std::copy(values.begin(), values.end(), tensor->flat<T>().data());
  }
};

TFXCLASS_CPU("ActiveClasses", CpuActiveClassesOp);

}  // namespace
}  // namespace tfxclass
