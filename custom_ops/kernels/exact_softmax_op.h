// The inputs of the ops of the exact softmax, checked.
#ifndef TFXCLASS_KERNELS_EXACT_SOFTMAX_OP_H_
#define TFXCLASS_KERNELS_EXACT_SOFTMAX_OP_H_

#include <cmath>
#include <cstdint>
#include <utility>

#include "core/exact_softmax.h"
#include "kernels/kernel_utils.h"
#include "kernels/softmax_block_checks.h"

namespace tfxclass {

// Pointers to inputs of a call, and what they measure.
struct SoftmaxInputs {
  const float* queries = nullptr;
  const float* bias = nullptr;
  const int64_t* targets = nullptr;
  const float* target_values = nullptr;
  const float* logsumexp = nullptr;
  const float* factor = nullptr;
  Exponentials<const float> kept;
  int64_t batch = 0, dim = 0, width = 0;

  template <class T>
  ClassMatrix<T> Matrix(const T* rows, int64_t num_classes,
                        float epsilon) const {
    ClassMatrix<T> matrix;
    matrix.rows = rows;
    matrix.bias = bias;
    matrix.num_classes = num_classes;
    matrix.dim = dim;
    matrix.epsilon = epsilon;
    return matrix;
  }
  TargetValues Targets(int64_t num_classes) const {
    return {targets, target_values, batch, width, num_classes};
  }
  SoftmaxGradInput Grads(float uniform) const {
    return {logsumexp, factor, uniform, batch};
  }
};

// "`epsilon` must be a number >= 0".
inline absl::Status CheckEpsilon(const char* name, float epsilon) {
  if (std::isfinite(epsilon) && epsilon >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be a number >= 0. Received: ", epsilon));
}

// Numbers of the exponentials that are kept, and of their shifts.
inline std::pair<int64_t, int64_t> KeptSizes(
    int64_t batch, const tensorflow::TensorShape& kernel) {
  ClassMatrix<float> matrix;
  matrix.dim = kernel.dim_size(1);
  const int64_t rows = PanelsOf(batch) * kPanel, classes = kernel.dim_size(0);
  return {rows * classes, rows * CeilOf(classes, matrix.Chunk())};
}

// Reads the inputs of these names beside a kernel of shape `kernel`;
// `values` names the numbers of the targets.
inline absl::Status ReadSoftmaxInputs(tensorflow::OpKernelContext* c,
                                      const tensorflow::TensorShape& kernel,
                                      const char* values, bool has_grads,
                                      SoftmaxInputs* in) {
  const tensorflow::Tensor *queries, *targets, *numbers;
  TF_RETURN_IF_ERROR(c->input("queries", &queries));
  TF_RETURN_IF_ERROR(c->input("targets", &targets));
  TF_RETURN_IF_ERROR(c->input(values, &numbers));
  TF_RETURN_IF_ERROR(CheckRank("queries", *queries, 2));
  TF_RETURN_IF_ERROR(CheckRank("targets", *targets, 2));
  if (kernel.dims() != 2 || kernel.dim_size(1) != queries->dim_size(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The kernel must have shape (classes, ", queries->dim_size(1),
        ") beside these queries. Received: shape ", ShapeText(kernel)));
  }
  if (queries->dim_size(1) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`queries` must have 1 dimension or more. Received: shape ",
        ShapeText(queries->shape())));
  }
  const int64_t batch = queries->dim_size(0);
  if (targets->dim_size(0) != batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`targets` must have a row for each of the ", batch,
        " queries. Received: shape ", ShapeText(targets->shape())));
  }
  TF_RETURN_IF_ERROR(CheckSame(values, *numbers, targets->shape()));
  in->batch = batch;
  in->dim = queries->dim_size(1);
  in->width = targets->dim_size(1);
  in->queries = queries->flat<float>().data();
  in->targets = targets->flat<int64_t>().data();
  in->target_values = numbers->flat<float>().data();
  tensorflow::OpInputList bias;
  TF_RETURN_IF_ERROR(c->input_list("bias", &bias));
  if (bias.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`bias` must be one tensor or none. Received: ", bias.size()));
  }
  if (bias.size() == 1) {
    TF_RETURN_IF_ERROR(CheckSame(
        "bias", bias[0], tensorflow::TensorShape({kernel.dim_size(0)})));
    in->bias = bias[0].flat<float>().data();
  }
  if (!has_grads) return absl::OkStatus();
  const tensorflow::Tensor *logsumexp, *factor;
  TF_RETURN_IF_ERROR(c->input("logsumexp", &logsumexp));
  TF_RETURN_IF_ERROR(c->input("factor", &factor));
  const tensorflow::TensorShape of_rows({batch});
  TF_RETURN_IF_ERROR(CheckSame("logsumexp", *logsumexp, of_rows));
  TF_RETURN_IF_ERROR(CheckSame("factor", *factor, of_rows));
  in->logsumexp = logsumexp->flat<float>().data();
  in->factor = factor->flat<float>().data();
  tensorflow::OpInputList kept;
  TF_RETURN_IF_ERROR(c->input_list("kept", &kept));
  const int64_t found = kept.size() == 2 ? kept[0].NumElements() : -1;
  if (kept.size() == 0 || found == 0) return absl::OkStatus();
  const auto [panels, shifts] = KeptSizes(batch, kernel);
  if (found != panels || kept[1].NumElements() != shifts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`kept` must be what ExactSoftmax keeps of ", batch, " queries and ",
        kernel.dim_size(0), " classes. Received: ", kept.size(),
        " tensors, the first of ", std::max<int64_t>(found, 0), " numbers"));
  }
  in->kept = {kept[0].flat<float>().data(), kept[1].flat<float>().data()};
  return absl::OkStatus();
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_EXACT_SOFTMAX_OP_H_
