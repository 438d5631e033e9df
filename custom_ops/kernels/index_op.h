// What the kernels of the refreshing indexes share: the resource that holds
// one, its handle, the input checks, and the ops that mark, save and restore.
#ifndef TFXCLASS_KERNELS_INDEX_OP_H_
#define TFXCLASS_KERNELS_INDEX_OP_H_

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "core/refreshing.h"
#include "kernels/kernel_utils.h"
#include "tensorflow/core/framework/resource_op_kernel.h"

namespace tfxclass {

// Indexer::kName is what messages call the index, "hashing forest".
template <typename Indexer>
class IndexResource : public tensorflow::ResourceBase {
 public:
  std::string DebugString() const override { return Indexer::kName; }
  Refreshing<Indexer> index;
  typename Indexer::Marks marks;

  // What a GPU has of the index `of`.
  struct DeviceCopy {
    std::mutex mutex;
    std::shared_ptr<const void> of;
    std::shared_ptr<void> copy;
  } on_device;
};

template <typename Indexer>
class IndexHandleOp
    : public tensorflow::ResourceOpKernel<IndexResource<Indexer>> {
 public:
  explicit IndexHandleOp(tensorflow::OpKernelConstruction* c)
      : tensorflow::ResourceOpKernel<IndexResource<Indexer>>(c) {}

 private:
  absl::Status CreateResource(IndexResource<Indexer>** resource) override {
    *resource = new IndexResource<Indexer>;
    return absl::OkStatus();
  }
};

// The index behind input 0.
template <typename Indexer>
absl::Status LookupIndex(
    tensorflow::OpKernelContext* c,
    tensorflow::core::RefCountPtr<IndexResource<Indexer>>* resource) {
  return LookupInput(c, 0, resource);
}

// Rows on a GPU are never half.
inline absl::Status CheckKernel(const char* index_name,
                                const tensorflow::Tensor& kernel,
                                bool may_be_half) {
  const bool is_half = may_be_half && kernel.dtype() == tensorflow::DT_BFLOAT16;
  if ((kernel.dtype() != tensorflow::DT_FLOAT && !is_half) ||
      kernel.dims() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`kernel` must be float32", may_be_half ? ", or bfloat16," : "",
        " [num_classes, dim]. Received: ",
        tensorflow::DataTypeString(kernel.dtype()), " of shape ",
        ShapeText(kernel.shape())));
  }
  const auto fits = [](int64_t n) { return n >= 1 && n <= INT32_MAX; };
  if (!fits(kernel.dim_size(0)) || !fits(kernel.dim_size(1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A ", index_name,
        " takes 1 to 2^31 - 1 rows of as many numbers. Received: shape ",
        ShapeText(kernel.shape())));
  }
  return absl::OkStatus();
}

// The rows of a tensor that CheckKernel passed.
inline ClassRows RowsOf(const tensorflow::Tensor& kernel) {
  const int64_t count = kernel.dim_size(0), dim = kernel.dim_size(1);
  if (kernel.dtype() == tensorflow::DT_FLOAT) {
    return {kernel.flat<float>().data(), count, dim};
  }
  const void* const half = kernel.flat<tensorflow::bfloat16>().data();
  return {nullptr, count, dim, static_cast<const Bf16*>(half)};
}

inline absl::Status NotFinite(const char* index_name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "`kernel` must be finite to build a ", index_name,
      ". Received: a row with NaN or infinity. A smaller learning rate or "
      "gradient clipping helps where training diverged"));
}

// The scalar inputs of these names, each at least 1.
inline absl::Status PositiveScalars(tensorflow::OpKernelContext* c,
                                    std::initializer_list<const char*> names,
                                    int64_t* values) {
  for (const char* name : names) {
    TF_RETURN_IF_ERROR(ReadInteger(c, name, 1, INT64_MAX, values++));
  }
  return absl::OkStatus();
}

// Whether an index of rows of width `dim` can be built with these options.
// (Those of LSH tables have another: lsh_op.h.)
template <class Options>
absl::Status CheckOptions(const Options&, int64_t /*dim*/) {
  return absl::OkStatus();
}

// What is drawn at `step`: another each time, the same for the same step.
inline uint64_t SeedOfStep(int64_t seed, int64_t step) {
  return seed ^ (static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15ull);
}

// The rows of a variable where they lie. (Those on a GPU: RowsOnGpu.)
class RowsInPlace {
 public:
  static constexpr bool kInPlace = true;

  RowsInPlace(tensorflow::OpKernelContext*, const tensorflow::Tensor& kernel)
      : rows_(RowsOf(kernel)) {}

  const ClassRows& rows() const { return rows_; }
  // Why rows could not be read.
  absl::Status status() const { return absl::OkStatus(); }

 private:
  const ClassRows rows_;
};

// Builds the index of input 0 from the rows of the variable of input 1.
template <typename Indexer, class RowReader>
absl::Status BuildIndex(tensorflow::OpKernelContext* c,
                        const typename Indexer::Options& options) {
  tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
  tensorflow::core::RefCountPtr<tensorflow::Var> kernel;
  TF_RETURN_IF_ERROR(LookupIndex(c, &resource));
  TF_RETURN_IF_ERROR(LookupVariable(c, 1, &kernel));
  tensorflow::tf_shared_lock lock(*kernel->mu());
  TF_RETURN_IF_ERROR(
      CheckKernel(Indexer::kName, *kernel->tensor(), RowReader::kInPlace));
  TF_RETURN_IF_ERROR(CheckOptions(options, kernel->tensor()->dim_size(1)));
  const RowReader reader(c, *kernel->tensor());
  const bool built = resource->index.Build(reader.rows(), options, PoolOf(c));
  TF_RETURN_IF_ERROR(reader.status());
  return built ? absl::OkStatus() : NotFinite(Indexer::kName);
}

// Refreshes the same as is due.
template <typename Indexer, class RowReader>
absl::Status AdvanceIndex(tensorflow::OpKernelContext* c,
                          const RefreshSteps& steps,
                          const typename Indexer::Options& options) {
  tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
  tensorflow::core::RefCountPtr<tensorflow::Var> kernel;
  TF_RETURN_IF_ERROR(LookupIndex(c, &resource));
  TF_RETURN_IF_ERROR(LookupVariable(c, 1, &kernel));
  tensorflow::tf_shared_lock lock(*kernel->mu());
  TF_RETURN_IF_ERROR(
      CheckKernel(Indexer::kName, *kernel->tensor(), RowReader::kInPlace));
  TF_RETURN_IF_ERROR(CheckOptions(options, kernel->tensor()->dim_size(1)));
  const RowReader reader(c, *kernel->tensor());
  const bool has_index =
      resource->index.Advance(steps, reader.rows(), options, PoolOf(c));
  TF_RETURN_IF_ERROR(reader.status());
  return has_index ? absl::OkStatus() : NotFinite(Indexer::kName);
}

// Inputs `step`, `interval`, `lag` and `drifted`.
inline absl::Status ReadRefreshSteps(tensorflow::OpKernelContext* c,
                                     RefreshSteps* steps) {
  TF_RETURN_IF_ERROR(ReadScalar(c, "step", &steps->step));
  int64_t sizes[2];
  TF_RETURN_IF_ERROR(PositiveScalars(c, {"interval", "lag"}, sizes));
  steps->interval = sizes[0];
  steps->lag = sizes[1];
  if (steps->lag > steps->interval) {
    return absl::InvalidArgumentError(
        absl::StrCat("`lag` must be at most `interval`. Received: ", steps->lag,
                     " and ", steps->interval));
  }
  return ReadScalar(c, "drifted", &steps->drifted);
}

// Inputs: index, ids int64.
template <typename Indexer>
class IndexMarkOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    const tensorflow::Tensor& ids = c->input(1);
    // Without an index nothing is marked.
    const int64_t num_rows = resource->index.num_rows();
    OP_REQUIRES_OK(c, CheckIds("ids", ids, num_rows ? num_rows : INT32_MAX));
    resource->index.Mark(ids.flat<int64_t>().data(), ids.NumElements());
  }
};

// Outputs: count, seconds.
template <typename Indexer>
class IndexTimesOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    const auto times = resource->index.times();
    tensorflow::Tensor *count, *seconds;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {}, &count));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {}, &seconds));
    count->scalar<int64_t>()() = times.count;
    seconds->scalar<double>()() = times.seconds;
  }
};

// *to = bytes; throws std::bad_alloc. (Where memory is short, tstring's own
// assignment writes through the null that malloc returned.)
inline void AssignBytes(const std::string& bytes, tensorflow::tstring* to) {
  using tensorflow::tstring;
  static_assert(std::is_standard_layout<tstring>::value &&
                    sizeof(tstring) == sizeof(TF_TString),
                "a tstring is its TF_TString");
  if (bytes.size() <= TF_TString_SmallCapacity) {
    *to = bytes;
    return;
  }
  char* const copy = static_cast<char*>(std::malloc(bytes.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, bytes.c_str(), bytes.size() + 1);
  TF_TString owner;
  owner.u.large.size = TF_TString_ToInternalSizeT(bytes.size(), TF_TSTR_LARGE);
  owner.u.large.cap = bytes.size();
  owner.u.large.ptr = copy;
  TF_TString_Move(reinterpret_cast<TF_TString*>(to), &owner);
}

// Outputs: ready, pending, steps, touched.
template <typename Indexer>
class IndexSaveOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    const auto state = resource->index.Save();
    tensorflow::Tensor *ready, *pending, *steps, *touched;
    const int64_t num_touched = state.touched.size();
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {}, &ready));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {}, &pending));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {3}, &steps));
    OP_REQUIRES_OK(c, AllocateOutput(c, 3, {num_touched}, &touched));
    AssignBytes(state.ready, &ready->scalar<tensorflow::tstring>()());
    AssignBytes(state.pending, &pending->scalar<tensorflow::tstring>()());
    steps->flat<int64_t>()(0) = state.swap_at;
    steps->flat<int64_t>()(1) = state.next_start;
    steps->flat<int64_t>()(2) = state.begun;
    std::copy(state.touched.begin(), state.touched.end(),
              touched->flat<int64_t>().data());
  }
};

// Inputs: index, then the outputs of IndexSaveOp.
template <typename Indexer, class RowReader>
class IndexRestoreOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::core::RefCountPtr<IndexResource<Indexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES(c,
                c->input(1).NumElements() == 1 &&
                    c->input(2).NumElements() == 1 &&
                    c->input(3).NumElements() == 3,
                absl::InvalidArgumentError(
                    "`ready` and `pending` must be scalars, `steps` of "
                    "length 3"));
    const auto touched = c->input(4).flat<int64_t>();
    OP_REQUIRES_OK(c, CheckIds("touched", c->input(4), INT32_MAX));
    typename Refreshing<Indexer>::State state;
    state.ready = c->input(1).flat<tensorflow::tstring>()(0);
    state.pending = c->input(2).flat<tensorflow::tstring>()(0);
    state.swap_at = c->input(3).flat<int64_t>()(0);
    state.next_start = c->input(3).flat<int64_t>()(1);
    state.begun = c->input(3).flat<int64_t>()(2);
    state.touched.assign(touched.data(), touched.data() + touched.size());
    OP_REQUIRES(c, resource->index.Restore(state, RowReader::kInPlace),
                absl::InvalidArgumentError(
                    absl::StrCat("The bytes are no ", Indexer::kName,
                                 ". Received: ", state.ready.size(), " and ",
                                 state.pending.size(), " bytes")));
  }
};

// Kernels of the ops that REGISTER_INDEX_OPS of ops/index_ops.h declares.
#define TFXCLASS_INDEX_KERNELS(prefix, Indexer)          \
  TFXCLASS_CPU(prefix "Handle", IndexHandleOp<Indexer>); \
  TFXCLASS_CPU(prefix "Mark", IndexMarkOp<Indexer>);     \
  TFXCLASS_CPU(prefix "Times", IndexTimesOp<Indexer>);   \
  TFXCLASS_CPU(prefix "Save", IndexSaveOp<Indexer>);     \
  TFXCLASS_CPU(prefix "Restore", IndexRestoreOp<Indexer, RowsInPlace>)

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_INDEX_OP_H_
