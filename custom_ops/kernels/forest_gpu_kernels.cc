// The hashing forest on the GPU: built by the host, queried on the device.
// Queries that are not finite find whatever they find.
#include "core/flat_forest.h"
#include "kernels/forest_op.h"
#include "kernels/forest_query.cu.h"
#include "kernels/gpu_index.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

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

class GpuForestQueryOp : public ForestQueryOp {
 public:
  using ForestQueryOp::ForestQueryOp;

 private:
  bool is_on_host() const override { return false; }

  absl::Status FindNothing(OpKernelContext* c, const Found& found) override {
    TF_RETURN_IF_ERROR(ToStatus(FillInDevice(
        found.ids->data(), 0xff, found.ids->TotalBytes(), StreamOf(c))));
    return ToStatus(FillInDevice(found.scores->data(), 0,
                                 found.scores->TotalBytes(), StreamOf(c)));
  }

  absl::Status Find(OpKernelContext* c, IndexResource<ForestIndexer>* resource,
                    const Forest& forest, const Tensor& rows,
                    const QueryOptions& read, const Found& found) override {
    if (forest->sketch) {
      return absl::InvalidArgumentError(
          "The forest has a sketch of the rows, which GPUs do not walk by. It "
          "was built on a CPU. Fix: placement=\"host\", or rebuild()");
    }
    std::shared_ptr<ForestOnDevice> on_device;
    TF_RETURN_IF_ERROR(CopyOfIndex(c, resource, forest, &on_device));
    ForestQueryOptions options;
    options.num_neighbors = read.num_neighbors;
    options.num_candidates = read.num_candidates;
    options.normalize = read.normalize;
    options.bucket = read.bucket;
    OpScratch scratch(c);
    const Tensor& queries = c->input(2);
    return ToStatus(
        QueryForest(on_device->forest(), rows.flat<float>().data(),
                    queries.flat<float>().data(), queries.dim_size(0), options,
                    found.ids->flat<int64_t>().data(),
                    found.scores->flat<float>().data(), &scratch, StreamOf(c)));
  }
};

TFXCLASS_GPU_INDEX_KERNELS("Forest", ForestIndexer);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("ForestBuild")
                      .HostMemory("forest")
                      .HostMemory("kernel")
                      .HostMemory("num_trees")
                      .HostMemory("leaf_size")
                      .HostMemory("seed"),
                  ForestBuildOp<GpuRowsCopy>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("ForestAdvance")
                      .HostMemory("forest")
                      .HostMemory("kernel")
                      .HostMemory("step")
                      .HostMemory("interval")
                      .HostMemory("lag")
                      .HostMemory("drifted")
                      .HostMemory("num_trees")
                      .HostMemory("leaf_size")
                      .HostMemory("seed"),
                  ForestAdvanceOp<GpuRowsCopy>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("ForestQuery")
                      .HostMemory("forest")
                      .HostMemory("kernel")
                      .HostMemory("num_neighbors")
                      .HostMemory("bucket")
                      .HostMemory("num_candidates"),
                  GpuForestQueryOp);

}  // namespace
}  // namespace tfxclass
