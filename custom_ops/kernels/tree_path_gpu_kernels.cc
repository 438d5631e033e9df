// The loss along the paths of a tree of classes on the GPU.
//
// Each op waits once, for how long its output is. Trees, labels and rows that
// lead out of their arrays are errors, without saying where.
#include "kernels/gpu_op.h"
#include "kernels/tree_input.h"
#include "kernels/tree_path.cu.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status Unsound() {
  return absl::InvalidArgumentError(
      "`labels` must be in [-1, num_classes), and `nodes` and `leaves` those "
      "of a Tree of num_classes classes, at most `max_depth` deep, for as many "
      "rows as `kernel` has. Received: others");
}

// What an op waits for: how long its output is, and whether its input is sound.
struct PathResult {
  int64_t size;
  int32_t unsound;
};

absl::Status ReadSize(OpKernelContext* c, const PathResult* result,
                      int64_t* size) {
  PathResult found;
  TF_RETURN_IF_ERROR(ReadFromDevice(c, result, 1, &found));
  *size = found.size;
  return found.unsound == 0 ? absl::OkStatus() : Unsound();
}

class GpuTreeOp : public TreeOp {
 public:
  explicit GpuTreeOp(OpKernelConstruction* c) : TreeOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("max_depth", &max_depth_));
  }

 protected:
  absl::Status ReadGpuTree(const Tensor& nodes, const Tensor& leaves,
                           int64_t num_rows, GpuTree* tree) const {
    TF_RETURN_IF_ERROR(ReadTree(nodes, leaves.dim_size(0), num_rows,
                                independent_, &tree->tree));
    tree->leaves = leaves.flat<int64_t>().data();
    tree->max_depth = max_depth_;
    return absl::OkStatus();
  }

  // splits [batch + 1], and how many rows they lead to.
  static absl::Status Count(OpKernelContext* c, const GpuTree& tree,
                            const PathLabels& labels, int64_t* splits,
                            PathResult* result, Scratch* scratch,
                            int64_t* total) {
    TF_RETURN_IF_ERROR(ToStatus(CountTreePaths(
        tree, labels, splits, &result->unsound, scratch, StreamOf(c))));
    TF_RETURN_IF_ERROR(ToStatus(CopyInDevice(
        &result->size, splits + labels.batch, sizeof(int64_t), StreamOf(c))));
    return ReadSize(c, result, total);
  }

 private:
  int64_t max_depth_;
};

class GpuTreePathLossOp : public GpuTreeOp {
 public:
  using GpuTreeOp::GpuTreeOp;

  void Compute(OpKernelContext* c) override {
    const Tensor &queries = c->input(0), &kernel = c->input(1);
    const Tensor &leaves = c->input(3), &labels = c->input(4);
    const Tensor& weights = c->input(5);
    OP_REQUIRES_OK(c, CheckProducts(queries, kernel));
    OP_REQUIRES_OK(c, CheckLabels(leaves, labels));
    const int64_t batch = queries.dim_size(0);
    OP_REQUIRES_OK(c, CheckWeights(labels, weights, batch));
    GpuTree tree;
    OP_REQUIRES_OK(c,
                   ReadGpuTree(c->input(2), leaves, kernel.dim_size(0), &tree));
    const PathLabels of_batch = {labels.flat<int64_t>().data(),
                                 weights.flat<float>().data(), batch,
                                 labels.dim_size(1)};
    OpScratch scratch(c);
    PathResult* const result = scratch.Get<PathResult>(1);
    OP_REQUIRES(c, result != nullptr, ToStatus(kNoScratch));
    Tensor *losses, *rows, *slopes, *splits;
    OP_REQUIRES_OK(c, AllocateOutput(c, 3, {batch + 1}, &splits));
    int64_t* const starts = splits->flat<int64_t>().data();
    int64_t total = 0;
    OP_REQUIRES_OK(c,
                   Count(c, tree, of_batch, starts, result, &scratch, &total));
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch}, &losses));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {total}, &rows));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {total}, &slopes));
    OP_REQUIRES_OK(
        c, ToStatus(TreePathLoss(
               tree, of_batch, queries.flat<float>().data(),
               kernel.flat<float>().data(), queries.dim_size(1), starts,
               losses->flat<float>().data(), rows->flat<int64_t>().data(),
               slopes->flat<float>().data(), &result->unsound, &scratch,
               StreamOf(c))));
  }
};

class GpuTreePathGradOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES_OK(c, CheckPathGrad(c));
    const PathGradInput input = InputOf(c);
    Tensor *queries_grad, *touched, *grads;
    OP_REQUIRES_OK(c,
                   c->allocate_output(0, c->input(0).shape(), &queries_grad));
    OpScratch scratch(c);
    PathResult* const result = scratch.Get<PathResult>(1);
    OP_REQUIRES(c, result != nullptr, ToStatus(kNoScratch));
    TouchedPathRows rows;
    OP_REQUIRES_OK(
        c, ToStatus(FindTouchedRows(input, queries_grad->flat<float>().data(),
                                    &rows, &result->size, &result->unsound,
                                    &scratch, StreamOf(c))));
    int64_t size = 0;
    OP_REQUIRES_OK(c, ReadSize(c, result, &size));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {size}, &touched));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {size, input.dim}, &grads));
    OP_REQUIRES_OK(
        c, ToStatus(SumTouchedRows(input, rows, touched->flat<int64_t>().data(),
                                   grads->flat<float>().data(), StreamOf(c))));
  }

 private:
  static PathGradInput InputOf(OpKernelContext* c) {
    const Tensor &queries = c->input(0), &kernel = c->input(1);
    PathGradInput input;
    input.queries = queries.flat<float>().data();
    input.kernel = kernel.flat<float>().data();
    input.batch = queries.dim_size(0);
    input.num_rows = kernel.dim_size(0);
    input.dim = queries.dim_size(1);
    input.rows = c->input(2).flat<int64_t>().data();
    input.slopes = c->input(3).flat<float>().data();
    input.count = c->input(2).dim_size(0);
    input.splits = c->input(4).flat<int64_t>().data();
    input.upstream = c->input(5).flat<float>().data();
    return input;
  }
};

TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("TreePathLoss"), GpuTreePathLossOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("TreePathGrad"), GpuTreePathGradOp);

}  // namespace
}  // namespace tfxclass
