// What the OpKernels share: threads, checks and access to variables.
#ifndef TFXCLASS_KERNELS_KERNEL_UTILS_H_
#define TFXCLASS_KERNELS_KERNEL_UTILS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/parallel.h"
#include "core/shared_loop.h"
#include "core/sizes.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tfxclass {

// TensorFlow's intra-op pool as a ParallelFor.
inline ParallelFor PoolOf(tensorflow::OpKernelContext* context) {
  auto* threads = context->device()->tensorflow_cpu_worker_threads()->workers;
  const int num_threads =
      context->device()->tensorflow_cpu_worker_threads()->num_threads;
  return [=](int64_t total, int64_t cost, const RangeBody& body) {
    const int most = tensorflow::GetPerThreadMaxParallelism();
    const LoopPlan plan(total, cost, std::min(num_threads, most));
    RunShared(total, plan, body, [threads](std::function<void()> task) {
      threads->Schedule(std::move(task));
    });
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

// The input `name`, one number.
template <class T>
absl::Status ReadScalar(tensorflow::OpKernelContext* c, const char* name,
                        T* value) {
  const tensorflow::Tensor* tensor;
  *value = T();
  TF_RETURN_IF_ERROR(c->input(name, &tensor));
  if (tensor->NumElements() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", name, "` must be a scalar. Received: shape ",
                     ShapeText(tensor->shape())));
  }
  *value = tensor->flat<T>()(0);
  return absl::OkStatus();
}

// The input `name`, one integer in [least, most].
inline absl::Status ReadInteger(tensorflow::OpKernelContext* c,
                                const char* name, int64_t least, int64_t most,
                                int64_t* value) {
  TF_RETURN_IF_ERROR(ReadScalar(c, name, value));
  if (*value >= least && *value <= most) return absl::OkStatus();
  const std::string range = most == INT64_MAX
                                ? absl::StrCat(">= ", least)
                                : absl::StrCat("in [", least, ", ", most, "]");
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be ", range, ". Received: ", *value));
}

// The input `seed`, two integers.
inline absl::Status ReadSeed(tensorflow::OpKernelContext* c, int64_t* seed,
                             int64_t* stream) {
  const tensorflow::Tensor* tensor;
  *seed = *stream = 0;
  TF_RETURN_IF_ERROR(c->input("seed", &tensor));
  if (tensor->NumElements() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`seed` must have 2 elements. Received: ", tensor->NumElements()));
  }
  *seed = tensor->flat<int64_t>()(0);
  *stream = tensor->flat<int64_t>()(1);
  return absl::OkStatus();
}

// An output of the shape `dims`, however great they are: TensorFlow ends the
// process where their product overflows.
inline absl::Status AllocateOutput(tensorflow::OpKernelContext* c, int index,
                                   std::initializer_list<int64_t> dims,
                                   tensorflow::Tensor** output) {
  tensorflow::TensorShape shape;
  for (const int64_t dim : dims) {
    TF_RETURN_IF_ERROR(shape.AddDimWithStatus(dim));
  }
  return c->allocate_output(index, shape, output);
}

// Every id must be in [lowest, num_classes).
template <class Id = int64_t>
absl::Status CheckIds(const char* name, const tensorflow::Tensor& tensor,
                      int64_t num_classes, int64_t lowest = 0) {
  const auto ids = tensor.flat<Id>();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids(i) < lowest || ids(i) >= num_classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", name, "` must be in [", lowest, ", ", num_classes,
                       "). Received: ", ids(i), " at position ", i));
    }
  }
  return absl::OkStatus();
}

// `splits` must cut `total` values into rows: `rows` of them, or any number if
// that is -1.
inline absl::Status CheckSplits(const char* name,
                                const tensorflow::Tensor& splits, int64_t total,
                                int64_t rows = -1) {
  const auto at = splits.flat<int64_t>();
  const int64_t n = at.size();
  bool sound =
      n >= 1 && (rows < 0 || n - 1 == rows) && at(0) == 0 && at(n - 1) == total;
  for (int64_t i = 1; sound && i < n; ++i) sound = at(i - 1) <= at(i);
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "`", name, "` must rise from 0 to the number of values, ", total,
      rows < 0 ? "" : absl::StrCat(", with ", rows, " rows"),
      ". Received: shape ", ShapeText(splits.shape()), ": ",
      splits.SummarizeValue(5)));
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

// The resource behind input `index`.
template <class Resource>
absl::Status LookupInput(tensorflow::OpKernelContext* context, int index,
                         tensorflow::core::RefCountPtr<Resource>* resource) {
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(tensorflow::HandleFromInput(context, index, &handle));
  return tensorflow::LookupResource(context, handle, resource);
}

// The variable behind input `index`; the caller locks var->mu().
inline absl::Status LookupVariable(
    tensorflow::OpKernelContext* context, int index,
    tensorflow::core::RefCountPtr<tensorflow::Var>* variable) {
  return LookupInput(context, index, variable);
}

// Calls body(); what it throws as a status. An exception that reached
// TensorFlow would end the process.
template <class Body>
absl::Status StatusOf(const Body& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("It takes more memory than is free");
  } catch (const std::length_error&) {
    return absl::ResourceExhaustedError("It takes more memory than there is");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("No thread could be started: ", error.what()));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

// What every kernel is registered as (TFXCLASS_REGISTER).
template <class Kernel>
class Guarded : public Kernel {
 public:
  using Kernel::Kernel;

  void Compute(tensorflow::OpKernelContext* c) final {
    const absl::Status status = StatusOf([&] { Kernel::Compute(c); });
    if (!status.ok()) {
      c->SetStatus(absl::Status(
          status.code(),
          absl::StrCat(this->type_string_view(), ": ", status.message())));
    }
  }
};

#define TFXCLASS_REGISTER(name, ...) \
  REGISTER_KERNEL_BUILDER(name, ::tfxclass::Guarded<__VA_ARGS__>)
#define TFXCLASS_CPU(name, ...)                                            \
  TFXCLASS_REGISTER(Name("Tfxclass>" name).Device(tensorflow::DEVICE_CPU), \
                    __VA_ARGS__)

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_KERNEL_UTILS_H_
