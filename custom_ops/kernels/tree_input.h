// What the kernels of a tree of classes share.
#ifndef TFXCLASS_KERNELS_TREE_INPUT_H_
#define TFXCLASS_KERNELS_TREE_INPUT_H_

#include "core/class_tree.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {

static_assert(sizeof(TreeNode) == 5 * sizeof(int64_t), "a row of `nodes`");

// A view of `nodes` [num_nodes, 5]. What they hold is checked where it is read:
// a step must not pass over all of them.
inline absl::Status ReadTree(const tensorflow::Tensor& nodes,
                             int64_t num_classes, int64_t num_rows,
                             bool independent, ClassTree* tree) {
  if (nodes.dims() != 2 || nodes.dim_size(0) == 0 || nodes.dim_size(1) != 5) {
    return absl::InvalidArgumentError(
        absl::StrCat("`nodes` must have shape (num_nodes, 5), one node at "
                     "least. Received: shape ",
                     ShapeText(nodes.shape())));
  }
  *tree = {reinterpret_cast<const TreeNode*>(nodes.flat<int64_t>().data()),
           nodes.dim_size(0), num_classes, num_rows, independent};
  return absl::OkStatus();
}

// A kernel with the attribute `independent`.
class TreeOp : public tensorflow::OpKernel {
 public:
  explicit TreeOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("independent", &independent_));
  }

 protected:
  bool independent_;
};

inline absl::Status NoTree() {
  return absl::InvalidArgumentError(
      "`nodes` and `leaves` must be those of a Tree of num_classes classes, "
      "for as many rows as `kernel` has. Received: others");
}

inline absl::Status CheckProducts(const tensorflow::Tensor& queries,
                                  const tensorflow::Tensor& kernel) {
  TF_RETURN_IF_ERROR(CheckRank("queries", queries, 2));
  TF_RETURN_IF_ERROR(CheckRank("kernel", kernel, 2));
  if (queries.dim_size(1) == kernel.dim_size(1)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "`queries` and `kernel` must be of one width. Received: shapes ",
      ShapeText(queries.shape()), " and ", ShapeText(kernel.shape())));
}

inline absl::Status CheckLabels(const tensorflow::Tensor& leaves,
                                const tensorflow::Tensor& labels) {
  TF_RETURN_IF_ERROR(CheckRank("leaves", leaves, 1));
  return CheckRank("labels", labels, 2);
}

inline absl::Status CheckWeights(const tensorflow::Tensor& labels,
                                 const tensorflow::Tensor& weights,
                                 int64_t batch) {
  if (labels.dim_size(0) == batch && weights.shape() == labels.shape()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("`labels` and `weights` must have shape (", batch,
                   ", p). Received: shapes ", ShapeText(labels.shape()),
                   " and ", ShapeText(weights.shape())));
}

// Inputs of the gradient: queries, kernel, rows, slopes, splits, upstream.
inline absl::Status CheckPathGrad(tensorflow::OpKernelContext* c) {
  const tensorflow::Tensor &rows = c->input(2), &slopes = c->input(3);
  TF_RETURN_IF_ERROR(CheckProducts(c->input(0), c->input(1)));
  TF_RETURN_IF_ERROR(CheckRank("rows", rows, 1));
  if (slopes.shape() != rows.shape()) {
    return absl::InvalidArgumentError(
        absl::StrCat("`slopes` must have shape ", ShapeText(rows.shape()),
                     ". Received: shape ", ShapeText(slopes.shape())));
  }
  const int64_t batch = c->input(0).dim_size(0);
  if (c->input(4).NumElements() != batch + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`splits` must rise from 0 to ", rows.dim_size(0), ", with ", batch + 1,
        " numbers. Received: shape ", ShapeText(c->input(4).shape())));
  }
  const tensorflow::Tensor& upstream = c->input(5);
  if (upstream.shape() == tensorflow::TensorShape({batch})) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("`upstream` must have shape (",
                                                 batch, "). Received: shape ",
                                                 ShapeText(upstream.shape())));
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_TREE_INPUT_H_
