// CPU kernels of the hashing forest, and the resource that holds one.
#include <initializer_list>

#include "core/forest_query.h"
#include "core/refreshing_forest.h"
#include "kernels/kernel_utils.h"
#include "tensorflow/core/framework/resource_op_kernel.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

class ForestResource : public tensorflow::ResourceBase {
 public:
  std::string DebugString() const override { return "HashingForest"; }
  RefreshingForest forest;
};

class ForestHandleOp : public tensorflow::ResourceOpKernel<ForestResource> {
 public:
  explicit ForestHandleOp(OpKernelConstruction* c) : ResourceOpKernel(c) {}

 private:
  absl::Status CreateResource(ForestResource** resource) override {
    *resource = new ForestResource;
    return absl::OkStatus();
  }
};

absl::Status LookupForest(OpKernelContext* c,
                          RefCountPtr<ForestResource>* forest) {
  return tensorflow::LookupResource(c, tensorflow::HandleFromInput(c, 0),
                                    forest);
}

absl::Status CheckKernel(const Tensor& kernel) {
  if (kernel.dtype() != tensorflow::DT_FLOAT || kernel.dims() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("`kernel` must be float32 [num_classes, dim]. Received: ",
                     tensorflow::DataTypeString(kernel.dtype()), " of shape ",
                     ShapeText(kernel.shape())));
  }
  if (kernel.dim_size(0) < 1 || kernel.dim_size(0) > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("A hashing forest takes 1 to 2^31 - 1 rows. Received: ",
                     kernel.dim_size(0)));
  }
  return absl::OkStatus();
}

// The scalar inputs of these names from `first` on, each at least 1.
absl::Status PositiveScalars(OpKernelContext* c, int first,
                             std::initializer_list<const char*> names,
                             int64_t* values) {
  for (const char* name : names) {
    const Tensor& input = c->input(first++);
    if (input.NumElements() != 1 || input.flat<int64_t>()(0) < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`", name, "` must be one integer >= 1. Received: ",
          input.SummarizeValue(3), " of shape ", ShapeText(input.shape())));
    }
    *values++ = input.flat<int64_t>()(0);
  }
  return absl::OkStatus();
}

const char kNotFinite[] =
    "`kernel` must be finite to build a hashing forest. Received: a row with "
    "NaN or infinity. A smaller learning rate or gradient clipping helps "
    "where training diverged";

class ForestBuildOp : public OpKernel {
 public:
  explicit ForestBuildOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<ForestResource> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupForest(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    int64_t sizes[2];
    OP_REQUIRES_OK(c, PositiveScalars(c, 2, {"num_trees", "leaf_size"}, sizes));
    ForestOptions options;
    options.num_trees = sizes[0];
    options.leaf_size = sizes[1];
    options.seed = c->input(4).flat<int64_t>()(0);
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckKernel(rows));
    OP_REQUIRES(
        c,
        resource->forest.Build(rows.flat<float>().data(), rows.dim_size(0),
                               rows.dim_size(1), options, PoolOf(c)),
        absl::InvalidArgumentError(kNotFinite));
  }
};

class ForestAdvanceOp : public OpKernel {
 public:
  explicit ForestAdvanceOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<ForestResource> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupForest(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    int64_t sizes[3];
    OP_REQUIRES_OK(c, PositiveScalars(
                          c, 3, {"interval", "num_trees", "leaf_size"}, sizes));
    ForestOptions options;
    options.num_trees = sizes[1];
    options.leaf_size = sizes[2];
    const int64_t step = c->input(2).flat<int64_t>()(0);
    // Another forest each time, the same for the same step.
    options.seed = c->input(6).flat<int64_t>()(0) ^ (step * 0x9E3779B97F4A7C15);
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckKernel(rows));
    OP_REQUIRES(c,
                resource->forest.Advance(
                    step, sizes[0], rows.flat<float>().data(), rows.dim_size(0),
                    rows.dim_size(1), options, PoolOf(c)),
                absl::InvalidArgumentError(kNotFinite));
  }
};

class ForestQueryOp : public OpKernel {
 public:
  explicit ForestQueryOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(OpKernelContext* c) override {
    RefCountPtr<ForestResource> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupForest(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    const Tensor& queries = c->input(2);
    OP_REQUIRES_OK(c, CheckRank("queries", queries, 2));
    OP_REQUIRES_OK(c, CheckFinite("queries", queries));
    int64_t neighbors;
    OP_REQUIRES_OK(c, PositiveScalars(c, 3, {"num_neighbors"}, &neighbors));
    QueryOptions options;
    options.num_neighbors = neighbors;
    options.bucket = c->input(4).flat<int64_t>()(0);
    options.num_candidates = c->input(5).flat<int64_t>()(0);
    options.normalize = normalize_;
    OP_REQUIRES(c, options.bucket >= 0 && options.num_candidates >= 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "`bucket` and `num_candidates` must be >= 0. Received: ",
                    options.bucket, " and ", options.num_candidates)));
    const int64_t batch = queries.dim_size(0);
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, c->allocate_output(0, {batch, neighbors}, &ids));
    OP_REQUIRES_OK(c, c->allocate_output(1, {batch, neighbors}, &scores));
    const auto forest = resource->forest.ready();
    if (forest == nullptr) {
      ids->flat<int64_t>().setConstant(-1);
      scores->flat<float>().setZero();
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckKernel(rows));
    OP_REQUIRES(c,
                rows.dim_size(0) == forest->count &&
                    rows.dim_size(1) == forest->dim &&
                    queries.dim_size(1) == forest->dim,
                absl::InvalidArgumentError(absl::StrCat(
                    "The forest is for a kernel of shape (", forest->count,
                    ", ", forest->dim, "). Received: kernel of shape ",
                    ShapeText(rows.shape()), ", queries of shape ",
                    ShapeText(queries.shape()))));
    const int64_t cost = forest->trees.size() * 2000 + neighbors * 100;
    PoolOf(c)(batch, cost, [&](int64_t begin, int64_t end) {
      ForestSearcher searcher(*forest, rows.flat<float>().data(), options);
      for (int64_t i = begin; i < end; ++i) {
        searcher.Search(queries.flat<float>().data() + i * forest->dim,
                        ids->flat<int64_t>().data() + i * neighbors,
                        scores->flat<float>().data() + i * neighbors);
      }
    });
  }

 private:
  bool normalize_;
};

class ForestSaveOp : public OpKernel {
 public:
  explicit ForestSaveOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<ForestResource> resource;
    OP_REQUIRES_OK(c, LookupForest(c, &resource));
    const RefreshingForest::State state = resource->forest.Save();
    Tensor *ready, *pending, *steps;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &ready));
    OP_REQUIRES_OK(c, c->allocate_output(1, {}, &pending));
    OP_REQUIRES_OK(c, c->allocate_output(2, {2}, &steps));
    ready->scalar<tensorflow::tstring>()() = state.ready;
    pending->scalar<tensorflow::tstring>()() = state.pending;
    steps->flat<int64_t>()(0) = state.swap_at;
    steps->flat<int64_t>()(1) = state.next_start;
  }
};

class ForestRestoreOp : public OpKernel {
 public:
  explicit ForestRestoreOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<ForestResource> resource;
    OP_REQUIRES_OK(c, LookupForest(c, &resource));
    OP_REQUIRES(c,
                c->input(1).NumElements() == 1 &&
                    c->input(2).NumElements() == 1 &&
                    c->input(3).NumElements() == 2,
                absl::InvalidArgumentError(
                    "`ready` and `pending` must be scalars, `steps` of "
                    "length 2"));
    RefreshingForest::State state;
    state.ready = c->input(1).flat<tensorflow::tstring>()(0);
    state.pending = c->input(2).flat<tensorflow::tstring>()(0);
    state.swap_at = c->input(3).flat<int64_t>()(0);
    state.next_start = c->input(3).flat<int64_t>()(1);
    OP_REQUIRES(
        c, resource->forest.Restore(state),
        absl::InvalidArgumentError(absl::StrCat(
            "The bytes are no hashing forest. Received: ", state.ready.size(),
            " and ", state.pending.size(), " bytes")));
  }
};

#define TFXCLASS_CPU(name, kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)
TFXCLASS_CPU("Tfxclass>ForestHandle", ForestHandleOp);
TFXCLASS_CPU("Tfxclass>ForestBuild", ForestBuildOp);
TFXCLASS_CPU("Tfxclass>ForestAdvance", ForestAdvanceOp);
TFXCLASS_CPU("Tfxclass>ForestQuery", ForestQueryOp);
TFXCLASS_CPU("Tfxclass>ForestSave", ForestSaveOp);
TFXCLASS_CPU("Tfxclass>ForestRestore", ForestRestoreOp);
#undef TFXCLASS_CPU

}  // namespace
}  // namespace tfxclass
