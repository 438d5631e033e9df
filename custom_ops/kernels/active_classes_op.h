// What the op of the active classes checks and returns, wherever it runs.
#ifndef TFXCLASS_KERNELS_ACTIVE_CLASSES_OP_H_
#define TFXCLASS_KERNELS_ACTIVE_CLASSES_OP_H_

#include <string>

#include "core/active_classes.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {

struct ActiveClassesOutputs {
  tensorflow::Tensor *positions, *num_targets, *num_candidates;
  tensorflow::Tensor *target_count, *used;
};

// Inputs: targets, candidates, scores, seed, num_sampled, candidate_share and
// cumulative. Seeds and numbers are in host memory.
class ActiveClassesOp : public tensorflow::OpKernel {
 public:
  explicit ActiveClassesOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    std::string fill;
    OP_REQUIRES_OK(c, c->GetAttr("num_classes", &options_.num_classes));
    OP_REQUIRES_OK(c, c->GetAttr("sample_overflow", &options_.sample_overflow));
    OP_REQUIRES_OK(c, c->GetAttr("fill", &fill));
    options_.fill = fill == "uniform"       ? FillLaw::kUniform
                    : fill == "log_uniform" ? FillLaw::kLogUniform
                                            : FillLaw::kFrequency;
  }

 protected:
  // All but what lies in the ids and in `cumulative`.
  absl::Status Read(tensorflow::OpKernelContext* c,
                    ActiveClassesOptions* options) const {
    const tensorflow::Tensor &candidates = c->input(1), &scores = c->input(2);
    if (candidates.shape() != scores.shape()) {
      return absl::InvalidArgumentError(
          absl::StrCat("`scores` must have the shape of `candidates` ",
                       ShapeText(candidates.shape()), ". Received: shape ",
                       ShapeText(scores.shape())));
    }
    *options = options_;
    int64_t seed, stream;
    TF_RETURN_IF_ERROR(ReadSeed(c, &seed, &stream));
    options->seed = seed;
    options->stream = stream;
    TF_RETURN_IF_ERROR(ReadScalar(c, "num_sampled", &options->num_sampled));
    TF_RETURN_IF_ERROR(
        ReadScalar(c, "candidate_share", &options->candidate_share));
    return CheckNumbers(*options, c->input(6).NumElements());
  }

  // All but the ids and their counts: how many there are is not known yet.
  static absl::Status Allocate(tensorflow::OpKernelContext* c,
                               ActiveClassesOutputs* out) {
    const auto& of_targets = c->input(0).shape();
    TF_RETURN_IF_ERROR(c->allocate_output(2, of_targets, &out->positions));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 3, {}, &out->num_targets));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 4, {}, &out->num_candidates));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 6, {}, &out->used));
    return c->allocate_output(5, of_targets, &out->target_count);
  }

 private:
  static absl::Status CheckNumbers(const ActiveClassesOptions& options,
                                   int64_t num_cumulative) {
    if (options.num_sampled < 1 || options.num_sampled > options.num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`num_sampled` must be in [1, num_classes]. Received: num_sampled=",
          options.num_sampled, " with num_classes=", options.num_classes));
    }
    // Written so that NaN is refused, too.
    if (!(options.candidate_share >= 0 && options.candidate_share <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("`candidate_share` must be in [0, 1]. Received: ",
                       options.candidate_share));
    }
    if (options.fill == FillLaw::kFrequency &&
        num_cumulative != options.num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`cumulative` must have an element for each of the ",
          options.num_classes, " classes. Received: ", num_cumulative));
    }
    return absl::OkStatus();
  }

  ActiveClassesOptions options_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ACTIVE_CLASSES_OP_H_
