// A tree whose leaves are the classes, and what its nodes say of their
// children.
//
// Nodes are numbered level by level, so children come after their parent. A
// node with two children has one row of weights: their logits are its product
// with the features, and 0. One with more has a row a child, softmaxed among
// them. Where children are independent, as in a probabilistic label tree, each
// has a row and is there or not by itself. Views into arrays of others: cheap
// to copy, thread-safe to read; on a GPU too, into arrays that lie there.
#ifndef TFXCLASS_CORE_CLASS_TREE_H_
#define TFXCLASS_CORE_CLASS_TREE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

struct TreeNode {
  int64_t parent;  // -1 for the root
  int64_t first_child;
  int64_t num_children;  // 0 for a leaf
  int64_t first_row;
  int64_t class_id;  // of a leaf, -1 otherwise

  TFXCLASS_HD bool is_leaf() const { return num_children == 0; }
};

struct ClassTree {
  const TreeNode* nodes;
  int64_t num_nodes;
  int64_t num_classes;
  int64_t num_rows;
  bool independent;

  TFXCLASS_HD int64_t NumRows(const TreeNode& node) const {
    return !independent && node.num_children == 2 ? 1 : node.num_children;
  }

  // Whether node i and what it points to may be read. Any walk over nodes that
  // pass ends: parents are before and children after a node.
  TFXCLASS_HD bool IsSound(int64_t i) const {
    if (i < 0 || i >= num_nodes) return false;
    const TreeNode& node = nodes[i];
    if (node.parent >= i || node.parent < (i == 0 ? -1 : 0)) return false;
    if (node.is_leaf()) return IsClass(node.class_id);
    return IsRange(node.first_child, node.num_children, i + 1, num_nodes) &&
           IsRange(node.first_row, NumRows(node), 0, num_rows);
  }

  TFXCLASS_HD bool IsClass(int64_t id) const {
    return id >= 0 && id < num_classes;
  }

 private:
  TFXCLASS_HD static bool IsRange(int64_t begin, int64_t size, int64_t least,
                                  int64_t end) {
    return begin >= least && begin <= end && size >= 0 && size <= end - begin;
  }
};

// log(1 + exp(z)), exact at both ends.
TFXCLASS_HD inline float Softplus(float z) {
  return (z > 0 ? z : 0.0f) + std::log1p(std::exp(-std::abs(z)));
}

TFXCLASS_HD inline float Sigmoid(float z) {
  const float e = std::exp(-std::abs(z));
  return (z >= 0 ? 1 : e) / (1 + e);
}

struct LogSum {
  float top;   // the greatest of the logits
  double log;  // of the sum of exp(logit - top)
};

inline LogSum LogSumExp(const float* logits, int64_t count) {
  float top = logits[0];
  for (int64_t i = 1; i < count; ++i) top = std::max(top, logits[i]);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(logits[i] - top);
  return {top, std::log(sum)};
}

// Log-probabilities of the children of `node` from the products with its rows.
inline void ChildLogProbabilities(const ClassTree& tree, const TreeNode& node,
                                  const float* logits, float* out) {
  const int64_t count = node.num_children;
  if (tree.independent) {
    for (int64_t j = 0; j < count; ++j) out[j] = -Softplus(-logits[j]);
  } else if (count == 2) {
    const float z = logits[0];
    out[0] = -Softplus(-z);
    out[1] = -Softplus(z);
  } else {
    const LogSum sum = LogSumExp(logits, count);
    for (int64_t j = 0; j < count; ++j) {
      out[j] = static_cast<float>(logits[j] - sum.top - sum.log);
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLASS_TREE_H_
