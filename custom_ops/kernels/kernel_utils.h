// What the OpKernels share: threads, checks and access to variables.
#ifndef TFXCLASS_KERNELS_KERNEL_UTILS_H_
#define TFXCLASS_KERNELS_KERNEL_UTILS_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/parallel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tfxclass {

// TensorFlow's intra-op pool as a ParallelFor. Its Shard counts the cost in
// cycles; 3 a nanosecond is near enough.
inline ParallelFor PoolOf(tensorflow::OpKernelContext* context) {
  auto* threads = context->device()->tensorflow_cpu_worker_threads()->workers;
  const int num_threads =
      context->device()->tensorflow_cpu_worker_threads()->num_threads;
  return [=](int64_t total, int64_t cost, const RangeBody& body) {
    tensorflow::Shard(num_threads, threads, total, cost * 3, body);
  };
}

// "(3, 4)"
inline std::string ShapeText(const tensorflow::TensorShape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.dims(); ++i) {
    absl::StrAppend(&text, i ? ", " : "", shape.dim_size(i));
  }
  return text + ")";
}

inline absl::Status CheckRank(const char* name,
                              const tensorflow::Tensor& tensor, int rank) {
  if (tensor.dims() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", name, "` must have rank ",
                                                 rank, ". Received: shape ",
                                                 ShapeText(tensor.shape())));
}

inline absl::Status CheckScalar(const char* name,
                                const tensorflow::Tensor& tensor) {
  if (tensor.NumElements() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be a scalar. Received: shape ",
                   ShapeText(tensor.shape())));
}

// Every id must be in [lowest, num_classes).
inline absl::Status CheckIds(const char* name, const tensorflow::Tensor& tensor,
                             int64_t num_classes, int64_t lowest = 0) {
  const auto ids = tensor.flat<int64_t>();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids(i) < lowest || ids(i) >= num_classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", name, "` must be in [", lowest, ", ", num_classes,
                       "). Received: ", ids(i), " at position ", i));
    }
  }
  return absl::OkStatus();
}

inline absl::Status CheckFinite(const char* name,
                                const tensorflow::Tensor& tensor) {
  const auto values = tensor.flat<float>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values(i))) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", name, "` must be finite. Received: ", values(i),
                       " at position ", i));
    }
  }
  return absl::OkStatus();
}

// The variable behind input `index`; the caller locks var->mu().
inline absl::Status LookupVariable(
    tensorflow::OpKernelContext* context, int index,
    tensorflow::core::RefCountPtr<tensorflow::Var>* variable) {
  return tensorflow::LookupResource(
      context, tensorflow::HandleFromInput(context, index), variable);
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_KERNEL_UTILS_H_
