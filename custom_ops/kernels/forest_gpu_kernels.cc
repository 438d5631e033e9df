// The hashing forest on the GPU: built by the host, queried on the device.
// Queries that are not finite find whatever they find.
#include "core/flat_forest.h"
#include "kernels/device_writer.h"
#include "kernels/forest_device_rows.h"
#include "kernels/forest_op.h"
#include "kernels/forest_query.cu.h"
#include "kernels/gpu_index.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ForestOnDevice {
 public:
  explicit ForestOnDevice(OpKernelContext* c) : memory_(c) {}

  absl::Status Upload(OpKernelContext* c, const HashingForest& forest) {
    const FlatForest flat = FlattenForest(forest);
    forest_.count = flat.count;
    forest_.dim = flat.dim;
    forest_.padded = flat.padded;
    forest_.num_trees = flat.num_trees();
    forest_.levels = flat.levels;
    forest_.least_scale = flat.least_scale;
    forest_.largest_leaf = flat.largest_leaf;
    return ToStatus(Write(c, forest, flat));
  }

  const GpuForest& forest() const { return forest_; }

 private:
  GpuStatus Write(OpKernelContext* c, const HashingForest& forest,
                  const FlatForest& flat) {
    auto* const nodes = memory_.Get<ForestNode>(flat.num_nodes);
    auto* const planes = memory_.Get<int16_t>(flat.num_planes() * flat.padded);
    auto* const scales = memory_.Get<float>(flat.num_planes());
    auto* const ids = memory_.Get<int32_t>(flat.num_trees() * flat.count);
    auto* const first_node = memory_.Get<int64_t>(flat.num_trees());
    auto* const first_plane = memory_.Get<int64_t>(flat.num_trees());
    if (nodes == nullptr || planes == nullptr || scales == nullptr ||
        ids == nullptr || first_node == nullptr || first_plane == nullptr) {
      return kNoScratch;
    }
    forest_.nodes = nodes;
    forest_.planes = planes;
    forest_.scales = scales;
    forest_.ids = ids;
    forest_.first_node = first_node;
    forest_.first_plane = first_plane;
    OpScratch page_locked(c, OpScratch::kPageLocked);
    DeviceWriter writer(&page_locked, PoolOf(c), StreamOf(c));
    for (int64_t t = 0; t < flat.num_trees(); ++t) {
      const HashingTree& tree = *forest.trees[t];
      TFXCLASS_RETURN_IF_GPU_ERROR(
          writer.Write(tree.nodes, nodes + flat.first_node[t]));
      TFXCLASS_RETURN_IF_GPU_ERROR(writer.Write(
          tree.normals.values, planes + flat.first_plane[t] * flat.padded));
      TFXCLASS_RETURN_IF_GPU_ERROR(
          writer.Write(tree.ids, ids + t * flat.count));
    }
    TFXCLASS_RETURN_IF_GPU_ERROR(writer.Write(flat.scales, scales));
    TFXCLASS_RETURN_IF_GPU_ERROR(writer.Write(flat.first_node, first_node));
    TFXCLASS_RETURN_IF_GPU_ERROR(writer.Write(flat.first_plane, first_plane));
    return writer.Finish();
  }

  OpScratch memory_;  // which lives as long as the forest it is for
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
                  ForestBuildOp<RowsOnGpu>);
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
                  ForestAdvanceOp<RowsOnGpu>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("ForestQuery")
                      .HostMemory("forest")
                      .HostMemory("kernel")
                      .HostMemory("num_neighbors")
                      .HostMemory("bucket")
                      .HostMemory("num_candidates"),
                  GpuForestQueryOp);

}  // namespace
}  // namespace tfxclass
