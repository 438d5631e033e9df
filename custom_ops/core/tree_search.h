// The most probable classes of a tree, and the probabilities of all of them.
//
// TreeSearch is best first: a node is opened only when none that is likelier
// is left, so classes come out by falling probability, exactly. Opening a node
// costs the products of its rows; for features that the tree is sure of that
// is about k depth of them, at worst (all classes alike) all. TreeLogs passes
// once over all nodes, O(num_nodes). Scores of both are sums in the same order.
// Thread-safe for different rows.
#ifndef TFXCLASS_CORE_TREE_SEARCH_H_
#define TFXCLASS_CORE_TREE_SEARCH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/class_tree.h"
#include "core/vectors.h"

namespace tfxclass {

namespace internal {

struct SearchItem {
  float score;
  int64_t class_id;  // -1 for inner nodes
  int64_t node;
};

// Of equals inner nodes go first, so that all equal classes are there before
// the one with the lowest id is taken.
inline bool IsWorse(const SearchItem& a, const SearchItem& b) {
  if (a.score != b.score) return a.score < b.score;
  if (a.class_id != b.class_id) return a.class_id > b.class_id;
  return a.node > b.node;
}

}  // namespace internal

struct TreeSearchScratch {
  std::vector<internal::SearchItem> heap;
  std::vector<float> logits, logs;
};

// ids, scores [k]: classes whose log-probability is at least `least`, best
// first, equals by rising id; then -1 and -infinity. NaN never enters. False if
// the tree is unsound.
inline bool TreeSearch(const ClassTree& tree, const float* query,
                       const float* kernel, int64_t dim, int64_t k, float least,
                       TreeSearchScratch* scratch, int64_t* ids,
                       float* scores) {
  auto& heap = scratch->heap;
  heap.clear();
  std::fill_n(ids, k, -1);
  std::fill_n(scores, k, -INFINITY);
  // Each node has one parent, so none is opened twice.
  const auto push = [&](float score, int64_t node, int64_t parent) {
    // Also false for NaN.
    if (!(score >= least)) return true;
    if (!tree.IsSound(node) || tree.nodes[node].parent != parent) return false;
    const bool is_leaf = tree.nodes[node].is_leaf();
    heap.push_back({score, is_leaf ? tree.nodes[node].class_id : -1, node});
    std::push_heap(heap.begin(), heap.end(), internal::IsWorse);
    return true;
  };
  if (!push(0, 0, -1)) return false;
  for (int64_t found = 0; found < k && !heap.empty();) {
    std::pop_heap(heap.begin(), heap.end(), internal::IsWorse);
    const internal::SearchItem item = heap.back();
    heap.pop_back();
    if (item.class_id >= 0) {
      ids[found] = item.class_id;
      scores[found++] = item.score;
      continue;
    }
    const TreeNode& node = tree.nodes[item.node];
    scratch->logits.resize(node.num_children);
    scratch->logs.resize(node.num_children);
    for (int64_t r = 0; r < tree.NumRows(node); ++r) {
      const float* row = kernel + (node.first_row + r) * dim;
      scratch->logits[r] = Dot(query, row, dim);
    }
    ChildLogProbabilities(tree, node, scratch->logits.data(),
                          scratch->logs.data());
    for (int64_t j = 0; j < node.num_children; ++j) {
      if (!push(item.score + scratch->logs[j], node.first_child + j,
                item.node)) {
        return false;
      }
    }
  }
  return true;
}

// Whether TreeLogs may read the whole tree and writes each class once.
inline bool IsSoundTree(const ClassTree& tree) {
  if (tree.num_classes > tree.num_nodes) return false;
  int64_t next_child = 1, num_leaves = 0;
  std::vector<bool> seen(tree.num_classes);
  for (int64_t i = 0; i < tree.num_nodes; ++i) {
    if (!tree.IsSound(i)) return false;
    const TreeNode& node = tree.nodes[i];
    if (!node.is_leaf()) {
      if (node.first_child != next_child) return false;
      next_child += node.num_children;
      continue;
    }
    if (seen[node.class_id]) return false;
    seen[node.class_id] = true;
    ++num_leaves;
  }
  return next_child == tree.num_nodes && num_leaves == tree.num_classes;
}

// logits [num_rows] of one row to logs [num_nodes] of the nodes; the tree is
// sound.
inline void TreeLogs(const ClassTree& tree, const float* logits, float* logs) {
  logs[0] = 0;
  for (int64_t i = 0; i < tree.num_nodes; ++i) {
    const TreeNode& node = tree.nodes[i];
    if (node.is_leaf()) continue;
    float* of_children = logs + node.first_child;
    ChildLogProbabilities(tree, node, logits + node.first_row, of_children);
    for (int64_t j = 0; j < node.num_children; ++j) of_children[j] += logs[i];
  }
}

// The gradient of the logits [num_rows] from that of the nodes [num_nodes],
// which are changed: to a node's own is added that of all below it. Rows of
// several nodes get the sum, rows of none 0.
inline void TreeLogsGrad(const ClassTree& tree, const float* logits,
                         float* of_nodes, float* grad) {
  std::vector<float> logs;
  std::fill_n(grad, tree.num_rows, 0.0f);
  for (int64_t i = tree.num_nodes - 1; i >= 0; --i) {
    const TreeNode& node = tree.nodes[i];
    if (node.is_leaf()) continue;
    const float* upstream = of_nodes + node.first_child;
    logs.resize(node.num_children);
    ChildLogProbabilities(tree, node, logits + node.first_row, logs.data());
    float total = 0;
    for (int64_t j = 0; j < node.num_children; ++j) total += upstream[j];
    of_nodes[i] += total;
    float* out = grad + node.first_row;
    for (int64_t j = 0; j < tree.NumRows(node); ++j) {
      const float p = std::exp(logs[j]);
      out[j] += upstream[j] - p * (tree.independent ? upstream[j] : total);
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TREE_SEARCH_H_
