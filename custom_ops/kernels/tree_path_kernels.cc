// CPU kernels of the loss along the paths of a tree of classes.
#include <atomic>
#include <vector>

#include "core/row_update.h"
#include "core/tree_path.h"
#include "kernels/kernel_utils.h"
#include "kernels/tree_input.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The paths of a batch of labels [batch, p], found row by row.
class BatchPaths {
 public:
  // weights: shape of labels, or null for 1.
  BatchPaths(const ClassTree& tree, const Tensor& leaves, const Tensor& labels,
             const Tensor* weights)
      : tree_(tree),
        leaves_(leaves.flat<int64_t>().data()),
        labels_(labels.flat<int64_t>().data()),
        weights_(weights == nullptr ? nullptr : weights->flat<float>().data()),
        batch_(labels.dim_size(0)),
        p_(labels.dim_size(1)),
        ones_(weights == nullptr ? p_ : 0, 1.0f) {}

  bool Collect(int64_t i, std::vector<PathStep>* steps) const {
    return CollectSteps(tree_, leaves_, labels_ + i * p_,
                        weights_ == nullptr ? ones_.data() : weights_ + i * p_,
                        p_, steps);
  }

  // splits [batch + 1]: where the weight rows of each row begin.
  absl::Status Count(const ParallelFor& parallel, int64_t* splits) const {
    std::atomic<bool> sound{true};
    splits[0] = 0;
    parallel(batch_, p_ * 300, [&](int64_t begin, int64_t end) {
      std::vector<PathStep> steps;
      for (int64_t i = begin; i < end; ++i) {
        if (!Collect(i, &steps)) sound = false;
        splits[i + 1] = sound ? CountRows(tree_, steps) : 0;
      }
    });
    if (!sound) return NoTree();
    for (int64_t i = 0; i < batch_; ++i) splits[i + 1] += splits[i];
    return absl::OkStatus();
  }

 private:
  const ClassTree tree_;
  const int64_t *leaves_, *labels_;
  const float* weights_;
  const int64_t batch_, p_;
  const std::vector<float> ones_;
};

class TreePathLossOp : public TreeOp {
 public:
  using TreeOp::TreeOp;

  void Compute(OpKernelContext* c) override {
    const Tensor &queries = c->input(0), &kernel = c->input(1);
    const Tensor &leaves = c->input(3), &labels = c->input(4);
    const Tensor& weights = c->input(5);
    OP_REQUIRES_OK(c, CheckProducts(queries, kernel));
    OP_REQUIRES_OK(c, CheckLabels(leaves, labels));
    OP_REQUIRES_OK(c, CheckIds("labels", labels, leaves.dim_size(0), -1));
    const int64_t batch = queries.dim_size(0), dim = queries.dim_size(1);
    OP_REQUIRES_OK(c, CheckWeights(labels, weights, batch));
    ClassTree tree;
    OP_REQUIRES_OK(c, ReadTree(c->input(2), leaves.dim_size(0),
                               kernel.dim_size(0), independent_, &tree));
    const BatchPaths paths(tree, leaves, labels, &weights);
    Tensor *losses, *rows, *slopes, *splits;
    OP_REQUIRES_OK(c, AllocateOutput(c, 3, {batch + 1}, &splits));
    int64_t* starts = splits->flat<int64_t>().data();
    OP_REQUIRES_OK(c, paths.Count(PoolOf(c), starts));
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch}, &losses));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {starts[batch]}, &rows));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {starts[batch]}, &slopes));
    const float* x = queries.flat<float>().data();
    const float* w = kernel.flat<float>().data();
    float* loss = losses->flat<float>().data();
    int64_t* row = rows->flat<int64_t>().data();
    float* slope = slopes->flat<float>().data();
    const int64_t cost = 300 + starts[batch] / (batch + 1) * (dim / 4 + 20);
    PoolOf(c)(batch, cost, [&](int64_t begin, int64_t end) {
      std::vector<PathStep> steps;
      for (int64_t i = begin; i < end; ++i) {
        paths.Collect(i, &steps);
        WriteRows(tree, steps, row + starts[i]);
        loss[i] = PathLoss(tree, steps, x + i * dim, w, dim, row + starts[i],
                           starts[i + 1] - starts[i], slope + starts[i]);
      }
    });
  }
};

class TreePathGradOp : public OpKernel {
 public:
  explicit TreePathGradOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor &queries = c->input(0), &kernel = c->input(1);
    const Tensor &rows = c->input(2), &slopes = c->input(3);
    OP_REQUIRES_OK(c, CheckPathGrad(c));
    OP_REQUIRES_OK(c, CheckIds("rows", rows, kernel.dim_size(0)));
    const int64_t batch = queries.dim_size(0), dim = queries.dim_size(1);
    OP_REQUIRES_OK(c,
                   CheckSplits("splits", c->input(4), rows.dim_size(0), batch));
    const int64_t* r = rows.flat<int64_t>().data();
    const float* slope = slopes.flat<float>().data();
    const int64_t* starts = c->input(4).flat<int64_t>().data();
    const float* upstream = c->input(5).flat<float>().data();
    const float* x = queries.flat<float>().data();
    const float* w = kernel.flat<float>().data();
    Tensor* queries_grad;
    OP_REQUIRES_OK(c, c->allocate_output(0, queries.shape(), &queries_grad));
    float* dx = queries_grad->flat<float>().data();
    const int64_t cost = rows.dim_size(0) / (batch + 1) * (dim / 4 + 5) + 20;
    PoolOf(c)(batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        PathQueryGrad(w, dim, r + starts[i], slope + starts[i],
                      starts[i + 1] - starts[i], upstream[i], dx + i * dim);
      }
    });
    RowGrads(c, r, rows.dim_size(0), slope, starts, upstream, x);
  }

 private:
  // Sums the gradients of each touched row, in the order of the batch.
  static void RowGrads(OpKernelContext* c, const int64_t* rows, int64_t count,
                       const float* slopes, const int64_t* starts,
                       const float* upstream, const float* x) {
    const int64_t batch = c->input(0).dim_size(0);
    const int64_t dim = c->input(0).dim_size(1);
    const RowRuns groups = GroupRows(rows, count, c->input(1).dim_size(0));
    std::vector<int64_t> owner(count);
    for (int64_t i = 0; i < batch; ++i) {
      std::fill(owner.begin() + starts[i], owner.begin() + starts[i + 1], i);
    }
    Tensor *touched, *grads;
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {groups.size()}, &touched));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {groups.size(), dim}, &grads));
    std::copy(groups.rows.begin(), groups.rows.end(),
              touched->flat<int64_t>().data());
    float* grad = grads->flat<float>().data();
    const int64_t cost = count / (groups.size() + 1) * (dim / 4 + 5) + 20;
    PoolOf(c)(groups.size(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        float* __restrict sum = grad + g * dim;
        std::fill_n(sum, dim, 0.0f);
        for (int64_t s = groups.starts[g]; s < groups.starts[g + 1]; ++s) {
          const int64_t at = groups.positions[s];
          const float factor = upstream[owner[at]] * slopes[at];
          const float* __restrict query = x + owner[at] * dim;
          for (int64_t d = 0; d < dim; ++d) sum[d] += factor * query[d];
        }
      }
    });
  }
};

TFXCLASS_CPU("TreePathLoss", TreePathLossOp);
TFXCLASS_CPU("TreePathGrad", TreePathGradOp);

}  // namespace
}  // namespace tfxclass
