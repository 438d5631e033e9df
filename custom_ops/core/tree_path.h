// The loss of labels in a tree of classes, and its gradient, along the paths
// from the root to the labels alone.
//
// CollectSteps finds the edges of a row's paths, each with the mass of the
// labels below it; PathLoss goes through the nodes above them: -sum of mass x
// log p(child | node), or where children are independent the binary losses of
// all children of these nodes, an edge of a path being positive. It leaves the
// rows of weights that it used and the slope of the loss with respect to each
// product. Time O(p depth (dim + log(p depth))) for p labels, times the width
// of the nodes; nothing grows with the number of classes but the depth.
// Thread-safe for different rows.
#ifndef TFXCLASS_CORE_TREE_PATH_H_
#define TFXCLASS_CORE_TREE_PATH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/class_tree.h"
#include "core/vectors.h"

namespace tfxclass {

struct PathStep {
  int64_t child;  // the node that the edge leads to
  float mass;
};

// Steps by rising child, so those of one parent are together. Labels below 0
// are padding. False if the tree is unsound.
inline bool CollectSteps(const ClassTree& tree, const int64_t* leaves,
                         const int64_t* labels, const float* weights, int64_t p,
                         std::vector<PathStep>* steps) {
  steps->clear();
  for (int64_t l = 0; l < p; ++l) {
    if (labels[l] < 0) continue;
    int64_t node = leaves[labels[l]];
    if (!tree.IsSound(node) || !tree.nodes[node].is_leaf()) return false;
    for (; node > 0; node = tree.nodes[node].parent) {
      const int64_t parent = tree.nodes[node].parent;
      if (!tree.IsSound(parent)) return false;
      const TreeNode& above = tree.nodes[parent];
      const int64_t place = node - above.first_child;
      if (place < 0 || place >= above.num_children) return false;
      steps->push_back({node, weights[l]});
    }
  }
  std::sort(
      steps->begin(), steps->end(),
      [](const PathStep& a, const PathStep& b) { return a.child < b.child; });
  size_t kept = 0;
  for (const PathStep& step : *steps) {
    if (kept > 0 && (*steps)[kept - 1].child == step.child) {
      (*steps)[kept - 1].mass += step.mass;
    } else {
      (*steps)[kept++] = step;
    }
  }
  steps->resize(kept);
  return true;
}

// body(node, first step, one past the last step) for each node above `steps`.
template <class Body>
void ForEachParent(const ClassTree& tree, const std::vector<PathStep>& steps,
                   const Body& body) {
  const PathStep* end = steps.data() + steps.size();
  for (const PathStep* begin = steps.data(); begin < end;) {
    const int64_t parent = tree.nodes[begin->child].parent;
    const PathStep* next = begin + 1;
    while (next < end && tree.nodes[next->child].parent == parent) ++next;
    body(tree.nodes[parent], begin, next);
    begin = next;
  }
}

inline int64_t CountRows(const ClassTree& tree,
                         const std::vector<PathStep>& steps) {
  int64_t count = 0;
  ForEachParent(tree, steps,
                [&](const TreeNode& node, const PathStep*, const PathStep*) {
                  count += tree.NumRows(node);
                });
  return count;
}

// rows [CountRows]
inline void WriteRows(const ClassTree& tree, const std::vector<PathStep>& steps,
                      int64_t* rows) {
  ForEachParent(tree, steps,
                [&](const TreeNode& node, const PathStep*, const PathStep*) {
                  for (int64_t r = 0; r < tree.NumRows(node); ++r) {
                    *rows++ = node.first_row + r;
                  }
                });
}

namespace internal {

// Each of these turns the products of a node into slopes and returns its loss.

inline double BinaryLoss(const TreeNode& node, const PathStep* begin,
                         const PathStep* end, float* product) {
  float mass[2] = {0, 0};
  for (const PathStep* s = begin; s < end; ++s) {
    mass[s->child - node.first_child] = s->mass;
  }
  const float z = *product;
  // Not mass * sigmoid(z) - mass[0]: that loses the digits of a small slope.
  *product = mass[1] * Sigmoid(z) - mass[0] * Sigmoid(-z);
  // A product with 0 would be NaN where the other is infinite.
  double loss = 0;
  if (mass[0] != 0) loss += mass[0] * Softplus(-z);
  if (mass[1] != 0) loss += mass[1] * Softplus(z);
  return loss;
}

inline double SoftmaxLoss(const TreeNode& node, const PathStep* begin,
                          const PathStep* end, float* products) {
  const LogSum sum = LogSumExp(products, node.num_children);
  double loss = 0, total = 0;
  for (const PathStep* s = begin; s < end; ++s) {
    const float z = products[s->child - node.first_child];
    loss += s->mass * (sum.log - (z - sum.top));
    total += s->mass;
  }
  for (int64_t j = 0; j < node.num_children; ++j) {
    products[j] = total * std::exp(products[j] - sum.top - sum.log);
  }
  for (const PathStep* s = begin; s < end; ++s) {
    products[s->child - node.first_child] -= s->mass;
  }
  return loss;
}

inline double IndependentLoss(const TreeNode& node, const PathStep* begin,
                              const PathStep* end, float* products) {
  double loss = 0;
  for (int64_t j = 0; j < node.num_children; ++j) {
    const bool is_positive =
        begin < end && begin->child - node.first_child == j;
    begin += is_positive;
    const float z = is_positive ? -products[j] : products[j];
    loss += Softplus(z);
    products[j] = is_positive ? -Sigmoid(z) : Sigmoid(z);
  }
  return loss;
}

}  // namespace internal

// kernel [num_rows, dim]; rows as WriteRows leaves them; slopes [CountRows] are
// written.
inline float PathLoss(const ClassTree& tree, const std::vector<PathStep>& steps,
                      const float* query, const float* kernel, int64_t dim,
                      const int64_t* rows, int64_t num_rows, float* slopes) {
  constexpr int64_t kAhead = 4;
  for (int64_t r = 0; r < num_rows; ++r) {
    if (r + kAhead < num_rows) {
      __builtin_prefetch(kernel + rows[r + kAhead] * dim);
    }
    slopes[r] = Dot(query, kernel + rows[r] * dim, dim);
  }
  double loss = 0;
  ForEachParent(
      tree, steps,
      [&](const TreeNode& node, const PathStep* begin, const PathStep* end) {
        if (tree.independent) {
          loss += internal::IndependentLoss(node, begin, end, slopes);
        } else if (node.num_children == 2) {
          loss += internal::BinaryLoss(node, begin, end, slopes);
        } else {
          loss += internal::SoftmaxLoss(node, begin, end, slopes);
        }
        slopes += tree.NumRows(node);
      });
  return static_cast<float>(loss);
}

// grad [dim] = scale * sum of slopes[i] * kernel[rows[i]]
inline void PathQueryGrad(const float* kernel, int64_t dim, const int64_t* rows,
                          const float* slopes, int64_t count, float scale,
                          float* __restrict grad) {
  std::fill_n(grad, dim, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const float factor = scale * slopes[i];
    const float* __restrict row = kernel + rows[i] * dim;
    for (int64_t d = 0; d < dim; ++d) grad[d] += factor * row[d];
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TREE_PATH_H_
