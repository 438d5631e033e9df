// CPU kernels of the best classes of a tree, and of all of them.
#include <atomic>
#include <vector>

#include "core/tree_search.h"
#include "kernels/kernel_utils.h"
#include "kernels/tree_input.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class TreeTopKOp : public TreeOp {
 public:
  explicit TreeTopKOp(OpKernelConstruction* c) : TreeOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("k", &k_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor &queries = c->input(0), &kernel = c->input(1);
    OP_REQUIRES_OK(c, CheckProducts(queries, kernel));
    float least;
    OP_REQUIRES_OK(c, ReadScalar(c, "least", &least));
    ClassTree tree;
    // There are fewer classes than nodes; a class is not looked up by its id.
    OP_REQUIRES_OK(c, ReadTree(c->input(2),
                               c->input(2).dims() ? c->input(2).dim_size(0) : 0,
                               kernel.dim_size(0), independent_, &tree));
    OP_REQUIRES(c, k_ <= tree.num_nodes,
                absl::InvalidArgumentError(
                    absl::StrCat("`k` must be at most the number of nodes, ",
                                 tree.num_nodes, ". Received: ", k_)));
    const int64_t batch = queries.dim_size(0), dim = queries.dim_size(1);
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch, k_}, &ids));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {batch, k_}, &scores));
    const float* x = queries.flat<float>().data();
    const float* w = kernel.flat<float>().data();
    int64_t* id = ids->flat<int64_t>().data();
    float* score = scores->flat<float>().data();
    std::atomic<bool> sound{true};
    const int64_t cost = SaturatedProduct(k_ * 20, dim / 4 + 50);
    PoolOf(c)(batch, cost, [&](int64_t begin, int64_t end) {
      TreeSearchScratch scratch;
      for (int64_t i = begin; i < end; ++i) {
        if (!TreeSearch(tree, x + i * dim, w, dim, k_, least, &scratch,
                        id + i * k_, score + i * k_)) {
          sound = false;
        }
      }
    });
    if (!sound) c->SetStatus(NoTree());
  }

 private:
  int64_t k_;
};

absl::Status ReadWholeTree(const Tensor& logits, const Tensor& nodes,
                           int64_t num_classes, bool independent,
                           ClassTree* tree) {
  TF_RETURN_IF_ERROR(CheckRank("logits", logits, 2));
  TF_RETURN_IF_ERROR(
      ReadTree(nodes, num_classes, logits.dim_size(1), independent, tree));
  return IsSoundTree(*tree) ? absl::OkStatus() : NoTree();
}

class TreeLogProbabilitiesOp : public TreeOp {
 public:
  explicit TreeLogProbabilitiesOp(OpKernelConstruction* c) : TreeOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("num_classes", &num_classes_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    ClassTree tree;
    OP_REQUIRES_OK(c, ReadWholeTree(logits, c->input(1), num_classes_,
                                    independent_, &tree));
    const int64_t batch = logits.dim_size(0);
    Tensor* result;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch, num_classes_}, &result));
    const float* x = logits.flat<float>().data();
    float* out = result->flat<float>().data();
    PoolOf(c)(batch, tree.num_nodes * 10, [&](int64_t begin, int64_t end) {
      std::vector<float> logs(tree.num_nodes);
      for (int64_t i = begin; i < end; ++i) {
        TreeLogs(tree, x + i * tree.num_rows, logs.data());
        for (int64_t n = 0; n < tree.num_nodes; ++n) {
          const TreeNode& node = tree.nodes[n];
          if (node.is_leaf()) out[i * num_classes_ + node.class_id] = logs[n];
        }
      }
    });
  }

 private:
  int64_t num_classes_;
};

class TreeLogProbabilitiesGradOp : public TreeOp {
 public:
  using TreeOp::TreeOp;

  void Compute(OpKernelContext* c) override {
    const Tensor &logits = c->input(0), &upstream = c->input(2);
    OP_REQUIRES_OK(c, CheckRank("upstream", upstream, 2));
    const int64_t num_classes = upstream.dim_size(1);
    ClassTree tree;
    OP_REQUIRES_OK(c, ReadWholeTree(logits, c->input(1), num_classes,
                                    independent_, &tree));
    const int64_t batch = logits.dim_size(0);
    OP_REQUIRES(c, upstream.dim_size(0) == batch,
                absl::InvalidArgumentError(absl::StrCat(
                    "`upstream` must have ", batch, " rows. Received: shape ",
                    ShapeText(upstream.shape()))));
    Tensor* result;
    OP_REQUIRES_OK(c, c->allocate_output(0, logits.shape(), &result));
    const float* x = logits.flat<float>().data();
    const float* u = upstream.flat<float>().data();
    float* out = result->flat<float>().data();
    PoolOf(c)(batch, tree.num_nodes * 20, [&](int64_t begin, int64_t end) {
      std::vector<float> of_nodes(tree.num_nodes);
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t n = 0; n < tree.num_nodes; ++n) {
          const TreeNode& node = tree.nodes[n];
          of_nodes[n] =
              node.is_leaf() ? u[i * num_classes + node.class_id] : 0.0f;
        }
        TreeLogsGrad(tree, x + i * tree.num_rows, of_nodes.data(),
                     out + i * tree.num_rows);
      }
    });
  }
};

TFXCLASS_CPU("TreeTopK", TreeTopKOp);
TFXCLASS_CPU("TreeLogProbabilities", TreeLogProbabilitiesOp);
TFXCLASS_CPU("TreeLogProbabilitiesGrad", TreeLogProbabilitiesGradOp);

}  // namespace
}  // namespace tfxclass
