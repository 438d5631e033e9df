// What the ops that write rows of a variable check and open in common.
#ifndef TFXCLASS_KERNELS_ROW_OP_H_
#define TFXCLASS_KERNELS_ROW_OP_H_

#include <cstdint>
#include <cstring>

#include "core/row_update.h"
#include "kernels/kernel_utils.h"
#include "kernels/row_variables.h"

namespace tfxclass {

template <class T>
absl::Status ReadScalar(tensorflow::OpKernelContext* c, const char* name,
                        T* value) {
  const tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(c->input(name, &tensor));
  TF_RETURN_IF_ERROR(CheckRank(name, *tensor, 0));
  *value = tensor->scalar<T>()();
  return absl::OkStatus();
}

// ids [n], grads [n, ...] with the variable's inner shape.
inline absl::Status CheckRowGradients(const tensorflow::Tensor& ids,
                                      const tensorflow::Tensor& grads,
                                      const tensorflow::TensorShape& variable) {
  tensorflow::TensorShape expected = variable;
  expected.set_dim(0, ids.dim_size(0));
  if (grads.shape() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "`grads` must have a row of the variable's shape for each id, ",
      ShapeText(expected), ". Received: shape ", ShapeText(grads.shape()),
      " with a variable of shape ", ShapeText(variable)));
}

// grads [n, ...] of n ids, whatever the variable is.
inline absl::Status CheckGradRows(const tensorflow::Tensor& grads, int64_t n) {
  if (grads.dims() > 0 && grads.dim_size(0) == n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`grads` must have a row for each of the ", n,
                   " ids. Received: shape ", ShapeText(grads.shape())));
}

// The matrix (the first variable) and its slots: float32, of one shape.
inline absl::Status CheckMatrices(const RowVariables& variables, int count) {
  TF_RETURN_IF_ERROR(variables.CheckInitialized());
  const auto& shape = variables[0].shape();
  for (int i = 0; i < count; ++i) {
    if (variables[i].dtype() != tensorflow::DT_FLOAT) {
      return absl::InvalidArgumentError(
          absl::StrCat("The variable and its slots must be float32. Received: ",
                       tensorflow::DataTypeString(variables[i].dtype())));
    }
    if (variables[i].shape() != shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("Slot ", i - 1, " must have the shape of the variable, ",
                       ShapeText(shape), ". Received: shape ",
                       ShapeText(variables[i].shape())));
    }
  }
  if (shape.dims() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "The variable must have rows, so rank 1 or more. Received: shape ()");
}

inline absl::Status CheckLastStep(const tensorflow::Tensor& last_step,
                                  int64_t num_rows) {
  if (last_step.dtype() == tensorflow::DT_INT64 &&
      last_step.shape() == tensorflow::TensorShape({num_rows})) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "`last_step` must be int64 of shape (", num_rows,
      "). Received: ", tensorflow::DataTypeString(last_step.dtype()),
      " of shape ", ShapeText(last_step.shape())));
}

// What an op knows when its checks are passed. Slots missing: null.
struct RowMatrices {
  float* matrices[4] = {nullptr, nullptr, nullptr, nullptr};
  int64_t num_rows = 0, dim = 0;
  int64_t* last_step = nullptr;
  RowRuns groups;
};

// Inputs of all ops here: `variable`, `slots` (num_slots of them), `last_step`
// (none or one), `ids`, then the op's own.
class RowOp : public tensorflow::OpKernel {
 public:
  RowOp(tensorflow::OpKernelConstruction* c, int least_slots, int most_slots,
        int least_last_step)
      : tensorflow::OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("num_slots", &num_slots_));
    OP_REQUIRES_OK(c, c->GetAttr("num_last_step", &num_last_step_));
    OP_REQUIRES(c, num_last_step_ >= least_last_step && num_last_step_ <= 1,
                absl::InvalidArgumentError(absl::StrCat(
                    "`last_step` must be ", least_last_step,
                    " to 1 variables. Received: ", num_last_step_)));
    OP_REQUIRES(c, num_slots_ >= least_slots && num_slots_ <= most_slots,
                absl::InvalidArgumentError(absl::StrCat(
                    "`slots` must be ", least_slots, " to ", most_slots,
                    " variables. Received: ", num_slots_)));
  }

 protected:
  const tensorflow::Tensor& Ids(tensorflow::OpKernelContext* c) const {
    return c->input(1 + num_slots_ + num_last_step_);
  }

  // Locks, checks everything but the groups, and only then makes the variables
  // writable. check_ids(ids, num_rows) looks at the ids themselves.
  template <class CheckIds, class Copy>
  absl::Status Open(tensorflow::OpKernelContext* c,
                    const tensorflow::Tensor* grads, const CheckIds& check_ids,
                    const Copy& copy, RowVariables* variables,
                    RowMatrices* rows) {
    const int matrices = 1 + num_slots_;
    const tensorflow::Tensor& ids = Ids(c);
    TF_RETURN_IF_ERROR(CheckRank("ids", ids, 1));
    TF_RETURN_IF_ERROR(variables->Lock(c, 0, matrices + num_last_step_));
    TF_RETURN_IF_ERROR(CheckMatrices(*variables, matrices));
    const auto& shape = (*variables)[0].shape();
    rows->num_rows = shape.dim_size(0);
    TF_RETURN_IF_ERROR(check_ids(ids, rows->num_rows));
    if (grads != nullptr) {
      TF_RETURN_IF_ERROR(CheckRowGradients(ids, *grads, shape));
    }
    if (num_last_step_) {
      TF_RETURN_IF_ERROR(CheckLastStep((*variables)[matrices], rows->num_rows));
    }
    TF_RETURN_IF_ERROR(variables->MakeWritable(c, copy));
    for (int i = 0; i < matrices; ++i) {
      rows->matrices[i] = variables->data<float>(i);
    }
    if (num_last_step_) rows->last_step = variables->data<int64_t>(matrices);
    rows->dim = rows->num_rows ? shape.num_elements() / rows->num_rows : 0;
    return absl::OkStatus();
  }

  // On the host, with the groups.
  absl::Status Open(tensorflow::OpKernelContext* c,
                    const tensorflow::Tensor* grads, RowVariables* variables,
                    RowMatrices* rows) {
    const auto check = [](const tensorflow::Tensor& ids, int64_t num_rows) {
      return CheckIds("ids", ids, num_rows);
    };
    const auto copy = [](void* to, const void* from, size_t bytes) {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    };
    TF_RETURN_IF_ERROR(Open(c, grads, check, copy, variables, rows));
    rows->groups = GroupRows(Ids(c).flat<int64_t>().data(),
                             Ids(c).NumElements(), rows->num_rows);
    return absl::OkStatus();
  }

 private:
  int num_slots_ = 0, num_last_step_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_OP_H_
