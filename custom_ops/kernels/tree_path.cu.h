// The loss of labels in a tree of classes, and its gradient, on the device: the
// twin of core/tree_path.h.
//
// Two launches with a size in between: CountTreePaths leaves where the rows of
// each sample begin, `splits`, whose last number is how long `rows` and
// `slopes` must be. The caller copies it (and *unsound) to the host: the one
// synchronisation of the loss. TreePathLoss then fills them. So it is with the
// gradient: FindTouchedRows counts the distinct rows, and SumTouchedRows writes
// their gradients, without memory for those of each sample.
//
// What the trees, labels, rows or splits hold is checked where it is read: if
// any of it leads out of its array, *unsound becomes 1 and results are
// undefined; nothing outside the arrays is read or written.
//
// A block of two warps a sample, which sorts the edges of the paths of its
// labels. Floor of forward and backward with a batch of b, depth l and one
// label: 2 b l rows of weights and b l sums of rows; 4,096 samples, 1M classes,
// dim 128: 3 x 42 MB, most of it cached as upper nodes are shared. So latency
// counts, l nodes one after the other, and small blocks: at least 10 samples at
// once on a multiprocessor.
#ifndef TFXCLASS_KERNELS_TREE_PATH_CU_H_
#define TFXCLASS_KERNELS_TREE_PATH_CU_H_

#include "core/class_tree.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

struct GpuTree {
  ClassTree tree;         // of nodes on the device
  const int64_t* leaves;  // [num_classes]
  int64_t max_depth;      // edges of the longest path; a longer one is unsound
};

// labels [batch, p], those below 0 are padding; p x max_depth <= 2^22. The
// weights are of the same shape.
struct PathLabels {
  const int64_t* labels;
  const float* weights;
  int64_t batch, p;
};

// splits [batch + 1]. Clears *unsound first; the launchers below do not.
// Scratch: 16 bytes an edge for 264 samples at once where a sample may have
// more than 2,048 edges, otherwise 4 bytes a sample.
GpuStatus CountTreePaths(const GpuTree& tree, const PathLabels& labels,
                         int64_t* splits, int32_t* unsound, Scratch* scratch,
                         GpuStream stream);

// queries [batch, dim], kernel [tree.num_rows, dim]; losses [batch]; rows and
// slopes [splits[batch]], the slope of the loss by each row's product.
GpuStatus TreePathLoss(const GpuTree& tree, const PathLabels& labels,
                       const float* queries, const float* kernel, int64_t dim,
                       const int64_t* splits, float* losses, int64_t* rows,
                       float* slopes, int32_t* unsound, Scratch* scratch,
                       GpuStream stream);

// What the loss was computed from and left; `count` is splits[batch].
struct PathGradInput {
  const float *queries, *kernel;  // [batch, dim], [num_rows, dim]
  int64_t batch, num_rows, dim;
  const int64_t* rows;
  const float* slopes;
  int64_t count;
  const int64_t* splits;
  const float* upstream;  // [batch]
};

// The touched rows, sorted, and what their gradients are computed from, in
// scratch memory. The run that begins at i is row number places[i].
struct TouchedPathRows {
  const int64_t* sorted = nullptr;  // [count]
  const int32_t* order = nullptr;   // [count]
  const int64_t* places = nullptr;  // [count + 1]
  const int32_t* owners = nullptr;  // [count], the sample of each of input.rows
  const float* factors = nullptr;   // [count], of its query
};

// queries_grad [batch, dim]; the number of distinct rows to *num_touched, on
// the device. Clears *unsound first. count < 2^31. Scratch: about 50 bytes a
// row.
GpuStatus FindTouchedRows(const PathGradInput& input, float* queries_grad,
                          TouchedPathRows* rows, int64_t* num_touched,
                          int32_t* unsound, Scratch* scratch, GpuStream stream);

// touched [*num_touched], distinct rows, rising, and the sums of their
// gradients, touched_grads [*num_touched, dim]. Sums go in the order of the
// batch; those of more than 64 samples in 16 stretches of it: the same result
// every time.
GpuStatus SumTouchedRows(const PathGradInput& input,
                         const TouchedPathRows& rows, int64_t* touched,
                         float* touched_grads, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_TREE_PATH_CU_H_
