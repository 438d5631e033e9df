// What the ops that write rows of a variable check and open in common.
#ifndef TFXCLASS_KERNELS_ROW_OP_H_
#define TFXCLASS_KERNELS_ROW_OP_H_

#include <cstdint>

#include "core/skipped_steps.h"
#include "kernels/kernel_utils.h"
#include "kernels/row_variables.h"

namespace tfxclass {

// ids [n], grads [n, ...] with the variable's inner shape.
inline absl::Status CheckRowGradients(const tensorflow::Tensor& ids,
                                      const tensorflow::Tensor& grads,
                                      const tensorflow::TensorShape& variable) {
  tensorflow::TensorShape expected = variable;
  TF_RETURN_IF_ERROR(expected.SetDimWithStatus(0, ids.dim_size(0)));
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

// What an op expects of the matrix and of its slots: the first `num_full` have
// the matrix' shape and `full`, the others are float32 with a number a row.
struct RowTypes {
  tensorflow::DataType variable, full;
  int num_full;
};

inline absl::Status CheckMatrix(const char* name,
                                const tensorflow::Tensor& tensor,
                                tensorflow::DataType dtype,
                                const tensorflow::TensorShape& shape) {
  if (tensor.dtype() != dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " must be ", tensorflow::DataTypeString(dtype),
        ". Received: ", tensorflow::DataTypeString(tensor.dtype())));
  }
  if (tensor.shape() == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must have shape ", ShapeText(shape),
      " beside this variable. Received: shape ", ShapeText(tensor.shape())));
}

// The matrix (the first variable) and its slots, `count` in all.
inline absl::Status CheckMatrices(const RowVariables& variables, int count,
                                  const RowTypes& types) {
  TF_RETURN_IF_ERROR(variables.CheckInitialized());
  const auto& shape = variables[0].shape();
  TF_RETURN_IF_ERROR(
      CheckMatrix("The variable", variables[0], types.variable, shape));
  if (shape.dims() == 0) {
    return absl::InvalidArgumentError(
        "The variable must have rows, so rank 1 or more. Received: shape ()");
  }
  for (int s = 0; s + 1 < count; ++s) {
    const std::string name = absl::StrCat("Slot ", s);
    const bool is_full = s < types.num_full;
    TF_RETURN_IF_ERROR(CheckMatrix(
        name.c_str(), variables[s + 1],
        is_full ? types.full : tensorflow::DT_FLOAT,
        is_full ? shape : tensorflow::TensorShape({shape.dim_size(0)})));
  }
  return absl::OkStatus();
}

inline absl::Status CheckHistory(const char* name,
                                 const tensorflow::Tensor& tensor,
                                 tensorflow::DataType dtype,
                                 const tensorflow::TensorShape& shape) {
  if (tensor.dtype() == dtype && tensor.shape() == shape) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be ", tensorflow::DataTypeString(dtype),
                   " of shape ", ShapeText(shape),
                   ". Received: ", tensorflow::DataTypeString(tensor.dtype()),
                   " of shape ", ShapeText(tensor.shape())));
}

// The input `terms`, [least to most, steps].
inline absl::Status ReadTerms(tensorflow::OpKernelContext* c, int64_t least,
                              int64_t most, SkipTerms* terms) {
  const tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(c->input("terms", &tensor));
  TF_RETURN_IF_ERROR(CheckRank("terms", *tensor, 2));
  if (tensor->dim_size(0) < least || tensor->dim_size(0) > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("`terms` must have ", least, " to ", most,
                     " rows. Received: shape ", ShapeText(tensor->shape())));
  }
  terms->values = tensor->flat<float>().data();
  terms->terms = tensor->dim_size(0);
  terms->steps = tensor->dim_size(1);
  return absl::OkStatus();
}

// What an op knows when its checks are passed. What is missing is null.
struct RowMatrices {
  void* matrices[4] = {nullptr, nullptr, nullptr, nullptr};
  int64_t num_rows = 0, dim = 0;
  int64_t* last_step = nullptr;
  int64_t* clock = nullptr;
  float* rates = nullptr;
  double* log_keeps = nullptr;

  template <class T>
  T* matrix(int i) const {
    return static_cast<T*>(matrices[i]);
  }
};

// Inputs of all ops here: `variable`, `slots` (num_slots of them), `history`
// (none, or last_step, clock, rates if `has_rates`, and, where rows decay,
// log_keeps), `ids`, then the op's own. Attributes: T of the rows, S of slots
// and gradients, `compact` slots, capacity.
class RowOp : public tensorflow::OpKernel {
 public:
  // `num_moments` of the slots are first moments.
  RowOp(tensorflow::OpKernelConstruction* c, int least_slots, int most_slots,
        int num_moments, bool has_rates, bool needs_history)
      : tensorflow::OpKernel(c), has_rates_(has_rates) {
    OP_REQUIRES_OK(c, c->GetAttr("T", &types_.variable));
    OP_REQUIRES_OK(c, c->GetAttr("S", &types_.full));
    OP_REQUIRES_OK(c, c->GetAttr("compact", &compact_));
    types_.num_full = most_slots;
    if (compact_)
      types_ = {types_.variable, tensorflow::DT_BFLOAT16, num_moments};
    OP_REQUIRES_OK(c, c->GetAttr("num_slots", &num_slots_));
    OP_REQUIRES_OK(c, c->GetAttr("num_history", &num_history_));
    OP_REQUIRES_OK(c, c->GetAttr("capacity", &capacity_));
    constexpr int64_t kMostSteps = int64_t{1} << 40;
    OP_REQUIRES(c, capacity_ <= kMostSteps,
                absl::InvalidArgumentError(
                    absl::StrCat("`capacity` must be in [1, ", kMostSteps,
                                 "]. Received: ", capacity_)));
    const int least = has_rates ? 3 : 2;
    const bool is_some = num_history_ == least || num_history_ == least + 1;
    OP_REQUIRES(c, is_some || (num_history_ == 0 && !needs_history),
                absl::InvalidArgumentError(
                    absl::StrCat("`history` must be ", least, " to ", least + 1,
                                 " variables. Received: ", num_history_)));
    OP_REQUIRES(c, num_slots_ >= least_slots && num_slots_ <= most_slots,
                absl::InvalidArgumentError(absl::StrCat(
                    "`slots` must be ", least_slots, " to ", most_slots,
                    " variables. Received: ", num_slots_)));
  }

 protected:
  const tensorflow::Tensor& Ids(tensorflow::OpKernelContext* c) const {
    return c->input(1 + num_slots_ + num_history_);
  }
  int64_t capacity() const { return capacity_; }
  int num_slots() const { return num_slots_; }
  bool is_compact() const { return compact_; }

  // Locks, checks everything but the groups, and only then makes the variables
  // writable. check_ids(ids, num_rows) looks at the ids themselves;
  // look(variables, &is_idle) at the clock, and says whether there is nothing
  // to write: then rows->num_rows stays 0.
  template <class CheckIds, class Look, class Copy>
  absl::Status Open(tensorflow::OpKernelContext* c,
                    const tensorflow::Tensor* grads, const CheckIds& check_ids,
                    const Look& look, const Copy& copy, RowVariables* variables,
                    RowMatrices* rows) const {
    const int matrices = 1 + num_slots_;
    const tensorflow::Tensor& ids = Ids(c);
    TF_RETURN_IF_ERROR(CheckRank("ids", ids, 1));
    TF_RETURN_IF_ERROR(variables->Lock(c, 0, matrices + num_history_));
    TF_RETURN_IF_ERROR(CheckMatrices(*variables, matrices, types_));
    const auto& shape = (*variables)[0].shape();
    const int64_t num_rows = shape.dim_size(0);
    TF_RETURN_IF_ERROR(check_ids(ids, num_rows));
    if (grads != nullptr) {
      TF_RETURN_IF_ERROR(CheckRowGradients(ids, *grads, shape));
    }
    TF_RETURN_IF_ERROR(CheckHistories(*variables, num_rows));
    bool is_idle = false;
    TF_RETURN_IF_ERROR(look(variables, &is_idle));
    if (is_idle) return absl::OkStatus();
    TF_RETURN_IF_ERROR(variables->MakeWritable(c, copy));
    for (int i = 0; i < matrices; ++i) {
      rows->matrices[i] = variables->bytes(i);
    }
    rows->num_rows = num_rows;
    rows->dim = num_rows ? shape.num_elements() / num_rows : 0;
    TakeHistory(variables, rows);
    return absl::OkStatus();
  }

  // The clock, in host memory; 0 without a history.
  absl::Status ReadClock(RowVariables* variables, int64_t* clock) const {
    *clock = num_history_ ? *variables->data<int64_t>(num_slots_ + 2) : 0;
    if (*clock >= 0 && *clock < INT64_MAX) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "`clock` must be in [0, ", INT64_MAX, "). Received: ", *clock));
  }

 private:
  absl::Status CheckHistories(const RowVariables& variables,
                              int64_t num_rows) const {
    if (num_history_ == 0) return absl::OkStatus();
    int i = 1 + num_slots_;
    TF_RETURN_IF_ERROR(CheckHistory("last_step", variables[i++],
                                    tensorflow::DT_INT64,
                                    tensorflow::TensorShape({num_rows})));
    TF_RETURN_IF_ERROR(CheckHistory("clock", variables[i++],
                                    tensorflow::DT_INT64,
                                    tensorflow::TensorShape({})));
    if (has_rates_) {
      TF_RETURN_IF_ERROR(CheckHistory("rates", variables[i++],
                                      tensorflow::DT_FLOAT,
                                      tensorflow::TensorShape({capacity_})));
    }
    if (i == variables.size()) return absl::OkStatus();
    return CheckHistory("log_keeps", variables[i], tensorflow::DT_DOUBLE,
                        tensorflow::TensorShape({capacity_ + 1}));
  }

  void TakeHistory(RowVariables* variables, RowMatrices* rows) const {
    if (num_history_ == 0) return;
    int i = 1 + num_slots_;
    rows->last_step = variables->data<int64_t>(i++);
    rows->clock = variables->data<int64_t>(i++);
    if (has_rates_) rows->rates = variables->data<float>(i++);
    if (i < variables->size()) rows->log_keeps = variables->data<double>(i);
  }

  const bool has_rates_;
  RowTypes types_;
  bool compact_ = false;
  int num_slots_ = 0, num_history_ = 0;
  int64_t capacity_ = 1;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_OP_H_
