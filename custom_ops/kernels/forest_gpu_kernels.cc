// The hashing forest on the GPU: built by the host, queried on the device.
// Queries that are not finite find whatever they find.
#include <algorithm>

#include "core/flat_forest.h"
#include "kernels/forest_op.h"
#include "kernels/forest_query.cu.h"
#include "kernels/gpu_index.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

class ForestOnDevice {
 public:
  explicit ForestOnDevice(OpKernelContext* c) : kept_(c) {}

  absl::Status Upload(OpKernelContext* c, const HashingForest& forest) {
    const FlatForest flat = FlattenForest(forest);
    forest_.count = flat.count;
    forest_.dim = flat.dim;
    forest_.padded = flat.padded;
    forest_.num_trees = flat.num_trees();
    forest_.levels = flat.levels;
    forest_.least_scale = flat.least_scale;
    forest_.largest_leaf = flat.largest_leaf;
    TF_RETURN_IF_ERROR(kept_.Copy(c, flat.nodes, &forest_.nodes));
    TF_RETURN_IF_ERROR(kept_.Copy(c, flat.planes, &forest_.planes));
    TF_RETURN_IF_ERROR(kept_.Copy(c, flat.scales, &forest_.scales));
    TF_RETURN_IF_ERROR(kept_.Copy(c, flat.ids, &forest_.ids));
    TF_RETURN_IF_ERROR(kept_.Copy(c, flat.first_node, &forest_.first_node));
    return kept_.Copy(c, flat.first_plane, &forest_.first_plane);
  }

  const GpuForest& forest() const { return forest_; }

 private:
  KeptOnDevice kept_;
  GpuForest forest_;
};

class GpuForestQueryOp : public OpKernel {
 public:
  explicit GpuForestQueryOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<ForestIndexer>> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    const Tensor& queries = c->input(2);
    QueryOptions read;
    OP_REQUIRES_OK(c, ReadForestQuery(c, &read));
    const int64_t batch = queries.dim_size(0);
    const int64_t neighbors = read.num_neighbors;
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, c->allocate_output(0, {batch, neighbors}, &ids));
    OP_REQUIRES_OK(c, c->allocate_output(1, {batch, neighbors}, &scores));
    const auto forest = resource->index.ready();
    if (forest == nullptr) {
      OP_REQUIRES_OK(c, ToStatus(FillNone(ids, scores, StreamOf(c))));
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckForest(*forest, rows, queries));
    std::shared_ptr<ForestOnDevice> on_device;
    OP_REQUIRES_OK(c, CopyOfIndex(c, resource.get(), forest, &on_device));
    ForestQueryOptions options;
    options.num_neighbors = read.num_neighbors;
    options.num_candidates = read.num_candidates;
    options.normalize = normalize_;
    options.bucket = read.bucket;
    OpScratch scratch(c);
    OP_REQUIRES_OK(
        c, ToStatus(QueryForest(on_device->forest(), rows.flat<float>().data(),
                                queries.flat<float>().data(), batch, options,
                                ids->flat<int64_t>().data(),
                                scores->flat<float>().data(), &scratch,
                                StreamOf(c))));
  }

 private:
  static GpuStatus FillNone(Tensor* ids, Tensor* scores, GpuStream stream) {
    TFXCLASS_RETURN_IF_GPU_ERROR(
        FillInDevice(ids->data(), 0xff, ids->TotalBytes(), stream));
    return FillInDevice(scores->data(), 0, scores->TotalBytes(), stream);
  }

  bool normalize_;
};

TFXCLASS_GPU_INDEX_KERNELS("Forest", ForestIndexer);
REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME("ForestBuild")
                            .HostMemory("forest")
                            .HostMemory("kernel")
                            .HostMemory("num_trees")
                            .HostMemory("leaf_size")
                            .HostMemory("seed"),
                        ForestBuildOp<GpuRowsCopy>);
REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME("ForestAdvance")
                            .HostMemory("forest")
                            .HostMemory("kernel")
                            .HostMemory("step")
                            .HostMemory("interval")
                            .HostMemory("num_trees")
                            .HostMemory("leaf_size")
                            .HostMemory("seed"),
                        ForestAdvanceOp<GpuRowsCopy>);
REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME("ForestQuery")
                            .HostMemory("forest")
                            .HostMemory("kernel")
                            .HostMemory("num_neighbors")
                            .HostMemory("bucket")
                            .HostMemory("num_candidates"),
                        GpuForestQueryOp);

}  // namespace
}  // namespace tfxclass
