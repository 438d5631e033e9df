// Shapes of the passes over blocks of logits.
#ifndef TFXCLASS_KERNELS_SOFTMAX_BLOCK_CHECKS_H_
#define TFXCLASS_KERNELS_SOFTMAX_BLOCK_CHECKS_H_

#include "kernels/kernel_utils.h"

namespace tfxclass {

// A scalar, int32 or int64, in the memory of the host.
inline int64_t IndexOf(const tensorflow::Tensor& scalar) {
  return scalar.dtype() == tensorflow::DT_INT32 ? scalar.scalar<int32_t>()()
                                                : scalar.scalar<int64_t>()();
}

inline absl::Status CheckSame(const char* name,
                              const tensorflow::Tensor& tensor,
                              const tensorflow::TensorShape& shape) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must have shape ", ShapeText(shape),
                   ". Received: shape ", ShapeText(tensor.shape())));
}

// The offset of logits [batch, block] among the classes.
inline absl::Status CheckOffset(const tensorflow::Tensor& logits,
                                const tensorflow::Tensor& offset) {
  TF_RETURN_IF_ERROR(CheckRank("logits", logits, 2));
  TF_RETURN_IF_ERROR(CheckRank("offset", offset, 0));
  const int64_t first = IndexOf(offset);
  const int64_t block = logits.dim_size(1);
  if (FitsWithin(first, block, INT64_MAX)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "`offset` must be in [0, 2^63 - 1 - block]. Received: ", first,
      " with a block of ", block, " classes"));
}

// logits [batch, block], targets and values [batch, p], offset scalar.
inline absl::Status CheckBlock(const tensorflow::Tensor& logits,
                               const tensorflow::Tensor& targets,
                               const tensorflow::Tensor& values,
                               const tensorflow::Tensor& offset) {
  TF_RETURN_IF_ERROR(CheckOffset(logits, offset));
  TF_RETURN_IF_ERROR(CheckRank("targets", targets, 2));
  if (targets.dim_size(0) != logits.dim_size(0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`targets` must have a row for each row of `logits`. Received: shape ",
        ShapeText(targets.shape()), " with logits of shape ",
        ShapeText(logits.shape())));
  }
  return CheckSame("values of the targets", values, targets.shape());
}

// Inputs 0 to 3 as CheckBlock has them, then two of these names, [batch].
inline absl::Status CheckBlockInputs(tensorflow::OpKernelContext* c,
                                     const char* fifth, const char* sixth) {
  TF_RETURN_IF_ERROR(
      CheckBlock(c->input(0), c->input(1), c->input(2), c->input(3)));
  const tensorflow::TensorShape of_rows({c->input(0).dim_size(0)});
  TF_RETURN_IF_ERROR(CheckSame(fifth, c->input(4), of_rows));
  return CheckSame(sixth, c->input(5), of_rows);
}

// logits [batch, block], scores and ids [batch, k], offset scalar.
inline absl::Status CheckTopK(const tensorflow::Tensor& logits,
                              const tensorflow::Tensor& offset,
                              const tensorflow::Tensor& scores,
                              const tensorflow::Tensor& ids) {
  TF_RETURN_IF_ERROR(CheckOffset(logits, offset));
  TF_RETURN_IF_ERROR(CheckRank("scores", scores, 2));
  TF_RETURN_IF_ERROR(CheckSame("ids", ids, scores.shape()));
  const int64_t batch = logits.dim_size(0);
  if (scores.dim_size(0) == batch && scores.dim_size(1) > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "`scores` must have shape (", batch, ", k) with k > 0. Received: shape ",
      ShapeText(scores.shape())));
}

// buffer [n, ...], rows [count, ...] to be written from row `start` on.
inline absl::Status CheckWriteRows(const tensorflow::Tensor& buffer,
                                   const tensorflow::Tensor& rows,
                                   const tensorflow::Tensor& start) {
  TF_RETURN_IF_ERROR(CheckRank("start", start, 0));
  if (buffer.dims() == 0 || rows.dims() != buffer.dims()) {
    return absl::InvalidArgumentError(
        absl::StrCat("`rows` must have the rank of `buffer`. Received: shape ",
                     ShapeText(rows.shape()), " with buffer of shape ",
                     ShapeText(buffer.shape())));
  }
  const int64_t count = rows.dim_size(0);
  tensorflow::TensorShape expected = buffer.shape();
  TF_RETURN_IF_ERROR(expected.SetDimWithStatus(0, count));
  TF_RETURN_IF_ERROR(CheckSame("rows", rows, expected));
  const int64_t first = IndexOf(start);
  if (FitsWithin(first, count, buffer.dim_size(0))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`rows` must fit into `buffer`. Received: start=", first,
                   " and ", count, " rows with ", buffer.dim_size(0)));
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_SOFTMAX_BLOCK_CHECKS_H_
