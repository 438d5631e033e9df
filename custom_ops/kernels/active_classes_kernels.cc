// CPU kernel of the union of the active classes.
#include "core/active_classes.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ActiveClassesOp : public OpKernel {
 public:
  explicit ActiveClassesOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string fill;
    OP_REQUIRES_OK(c, c->GetAttr("num_classes", &options_.num_classes));
    OP_REQUIRES_OK(c, c->GetAttr("sample_overflow", &options_.sample_overflow));
    OP_REQUIRES_OK(c, c->GetAttr("fill", &fill));
    options_.fill = fill == "uniform"       ? FillLaw::kUniform
                    : fill == "log_uniform" ? FillLaw::kLogUniform
                                            : FillLaw::kFrequency;
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& targets = c->input(0);
    const Tensor& candidates = c->input(1);
    const Tensor& scores = c->input(2);
    const Tensor& seed = c->input(3);
    const int64_t num_classes = options_.num_classes;
    OP_REQUIRES_OK(c, CheckIds("targets", targets, num_classes, -1));
    OP_REQUIRES_OK(c, CheckIds("candidates", candidates, num_classes, -1));
    OP_REQUIRES(c, candidates.shape() == scores.shape(),
                absl::InvalidArgumentError(absl::StrCat(
                    "`scores` must have the shape of `candidates` ",
                    ShapeText(candidates.shape()), ". Received: shape ",
                    ShapeText(scores.shape()))));
    OP_REQUIRES(
        c, seed.NumElements() == 2,
        absl::InvalidArgumentError(absl::StrCat(
            "`seed` must have 2 elements. Received: ", seed.NumElements())));
    OP_REQUIRES(
        c, c->input(4).NumElements() == 1 && c->input(5).NumElements() == 1,
        absl::InvalidArgumentError(
            "`num_sampled` and `max_candidates` must be scalars"));
    ActiveClassesOptions options = options_;
    options.num_sampled = c->input(4).flat<int64_t>()(0);
    options.max_candidates = c->input(5).flat<int64_t>()(0);
    OP_REQUIRES(
        c, options.num_sampled >= 1 && options.num_sampled <= num_classes,
        absl::InvalidArgumentError(absl::StrCat(
            "`num_sampled` must be in [1, num_classes]. Received: num_sampled=",
            options.num_sampled, " with num_classes=", num_classes)));
    OP_REQUIRES(c, options.max_candidates >= 0,
                absl::InvalidArgumentError(
                    absl::StrCat("`max_candidates` must be >= 0. Received: ",
                                 options.max_candidates)));
    if (options.fill == FillLaw::kFrequency) {
      OP_REQUIRES_OK(c, CheckCumulative(c->input(6)));
      options.cumulative = c->input(6).flat<double>().data();
    }
    options.seed = seed.flat<int64_t>()(0);
    options.stream = seed.flat<int64_t>()(1);
    Tensor *ids, *log_count, *positions, *num_targets, *num_candidates;
    Tensor* target_count;
    const int64_t n = options.num_sampled;
    OP_REQUIRES_OK(c, c->allocate_output(0, {n}, &ids));
    OP_REQUIRES_OK(c, c->allocate_output(1, {n}, &log_count));
    OP_REQUIRES_OK(c, c->allocate_output(2, targets.shape(), &positions));
    OP_REQUIRES_OK(c, c->allocate_output(3, {}, &num_targets));
    OP_REQUIRES_OK(c, c->allocate_output(4, {}, &num_candidates));
    OP_REQUIRES_OK(c, c->allocate_output(5, targets.shape(), &target_count));
    ActiveClasses active;
    const bool fits = SelectActiveClasses(
        options, targets.flat<int64_t>().data(), targets.NumElements(),
        candidates.flat<int64_t>().data(), scores.flat<float>().data(),
        candidates.NumElements(), positions->flat<int64_t>().data(), &active);
    OP_REQUIRES(c, fits,
                absl::InvalidArgumentError(absl::StrCat(
                    "`num_sampled` must be at least the number of distinct "
                    "labels in the batch. Received: num_sampled=",
                    n, " with ", active.num_targets, " distinct labels")));
    std::copy(active.ids.begin(), active.ids.end(),
              ids->flat<int64_t>().data());
    std::copy(active.log_expected_count.begin(),
              active.log_expected_count.end(), log_count->flat<float>().data());
    std::copy(active.target_log_expected_count.begin(),
              active.target_log_expected_count.end(),
              target_count->flat<float>().data());
    num_targets->scalar<int64_t>()() = active.num_targets;
    num_candidates->scalar<int64_t>()() = active.num_candidates;
  }

 private:
  absl::Status CheckCumulative(const Tensor& cumulative) const {
    const int64_t n = cumulative.NumElements();
    if (n != options_.num_classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("`cumulative` must have an element for each of the ",
                       options_.num_classes, " classes. Received: ", n));
    }
    const double total = cumulative.flat<double>()(n - 1);
    if (total > 0 && std::isfinite(total)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "`cumulative` must end with a total > 0. Received: ", total));
  }

  ActiveClassesOptions options_;
};

REGISTER_KERNEL_BUILDER(
    Name("Tfxclass>ActiveClasses").Device(tensorflow::DEVICE_CPU),
    ActiveClassesOp);

}  // namespace
}  // namespace tfxclass
