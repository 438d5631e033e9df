// What the ops that write rows of a variable check and open in common.
#ifndef TFXCLASS_KERNELS_ROW_OP_H_
#define TFXCLASS_KERNELS_ROW_OP_H_

#include <atomic>
#include <cstdint>

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

// The types that an op expects. The first `num_full` slots have the shape of
// the matrix and type `full`. The others are float32, one number for each row.
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

// The memory of the variables once all checks have passed. Slots that a rule
// does not have are null.
struct RowMatrices {
  void* matrices[4] = {nullptr, nullptr, nullptr, nullptr};
  int64_t num_rows = 0, dim = 0;

  template <class T>
  T* matrix(int i) const {
    return static_cast<T*>(matrices[i]);
  }
};

// Inputs of all ops here: `variable`, `slots` (num_slots of them), `ids`, then
// the op's own. Attributes: T of the rows, S of gradients, row_moments,
// bfloat16_moments (ops/row_update_ops.cc).
class RowOp : public tensorflow::OpKernel {
 public:
  // `num_moments` of the slots are first moments.
  RowOp(tensorflow::OpKernelConstruction* c, int least_slots, int most_slots,
        int num_moments)
      : tensorflow::OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("T", &types_.variable));
    OP_REQUIRES_OK(c, c->GetAttr("S", &types_.full));
    OP_REQUIRES_OK(c, c->GetAttr("row_moments", &row_moments_));
    OP_REQUIRES_OK(c, c->GetAttr("bfloat16_moments", &bfloat16_moments_));
    OP_REQUIRES(c, row_moments_ || !bfloat16_moments_,
                absl::InvalidArgumentError(
                    "`bfloat16_moments` needs `row_moments`. Received: "
                    "bfloat16_moments=true, row_moments=false"));
    OP_REQUIRES(c, !row_moments_ || types_.full == tensorflow::DT_FLOAT,
                absl::InvalidArgumentError(absl::StrCat(
                    "`row_moments` needs S to be float. Received: ",
                    tensorflow::DataTypeString(types_.full))));
    types_.num_full = row_moments_ ? num_moments : most_slots;
    if (bfloat16_moments_) types_.full = tensorflow::DT_BFLOAT16;
    OP_REQUIRES_OK(c, c->GetAttr("num_slots", &num_slots_));
    OP_REQUIRES(c, num_slots_ >= least_slots && num_slots_ <= most_slots,
                absl::InvalidArgumentError(absl::StrCat(
                    "`slots` must be ", least_slots, " to ", most_slots,
                    " variables. Received: ", num_slots_)));
  }

 protected:
  const tensorflow::Tensor& Ids(tensorflow::OpKernelContext* c) const {
    return c->input(1 + num_slots_);
  }
  int num_slots() const { return num_slots_; }
  bool has_row_moments() const { return row_moments_; }
  bool has_bfloat16_moments() const { return bfloat16_moments_; }

  // Locks the variables, checks everything and only then makes them writable.
  // check_ids(ids, num_rows) looks at the ids themselves, check_shape(shape) at
  // the shape of the matrix.
  template <class CheckIds, class CheckShape, class Copy>
  absl::Status Open(tensorflow::OpKernelContext* c,
                    const tensorflow::Tensor* grads, const CheckIds& check_ids,
                    const CheckShape& check_shape, const Copy& copy,
                    RowVariables* variables, RowMatrices* rows) const {
    const int matrices = 1 + num_slots_;
    const tensorflow::Tensor& ids = Ids(c);
    TF_RETURN_IF_ERROR(CheckRank("ids", ids, 1));
    TF_RETURN_IF_ERROR(variables->Lock(c, 0, matrices));
    TF_RETURN_IF_ERROR(CheckMatrices(*variables, matrices, types_));
    const auto& shape = (*variables)[0].shape();
    const int64_t num_rows = shape.dim_size(0);
    TF_RETURN_IF_ERROR(check_ids(ids, num_rows));
    if (grads != nullptr) {
      TF_RETURN_IF_ERROR(CheckRowGradients(ids, *grads, shape));
    }
    TF_RETURN_IF_ERROR(check_shape(shape));
    size_t copied;
    TF_RETURN_IF_ERROR(variables->MakeWritable(c, copy, &copied));
    WarnOfCopies(c, copied);
    for (int i = 0; i < matrices; ++i) {
      rows->matrices[i] = variables->bytes(i);
    }
    rows->num_rows = num_rows;
    rows->dim = num_rows ? shape.num_elements() / num_rows : 0;
    return absl::OkStatus();
  }

 private:
  // One copy is a checkpoint, say, or the snapshot of an index. Several in a
  // row are a reader that keeps what it read in each step.
  void WarnOfCopies(tensorflow::OpKernelContext* c, size_t copied) const {
    constexpr size_t kLarge = 16 << 20;
    constexpr int kInARow = 3;
    if (copied < kLarge) {
      copies_in_a_row_ = 0;
    } else if (copies_in_a_row_++ == kInARow - 1 &&
               !has_warned_.exchange(true)) {
      LOG(WARNING)
          << "Each step copies the variable "
          << c->input(0).scalar<tensorflow::ResourceHandle>()().name() << ", "
          << (copied >> 20)
          << " MB, because a tensor that was read from it, such as "
             "tf.convert_to_tensor(head.kernel), is kept in each step. Fix: "
             "keep head.kernel.numpy(), which is a copy, or nothing.";
    }
  }

  RowTypes types_;
  bool row_moments_ = false, bfloat16_moments_ = false;
  int num_slots_ = 0;
  mutable std::atomic<int> copies_in_a_row_{0};
  mutable std::atomic<bool> has_warned_{false};
};

// For Open where there is nothing more to check.
inline absl::Status AnyShape(const tensorflow::TensorShape&) {
  return absl::OkStatus();
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_OP_H_
