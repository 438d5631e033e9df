// Trees, batches and their copies on the device, for tests of paths in trees.
#ifndef TFXCLASS_GPU_TESTS_TREE_PATH_CASES_H_
#define TFXCLASS_GPU_TESTS_TREE_PATH_CASES_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/tree_path.h"
#include "gpu_tests/harness.h"
#include "kernels/tree_path.cu.h"

namespace gpu_tests {

using tfxclass::ClassTree;
using tfxclass::GpuTree;
using tfxclass::PathLabels;
using tfxclass::TreeNode;

struct TestTree {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> leaves;
  int64_t num_rows = 0, max_depth = 0;
  bool independent = false;

  ClassTree View(const TreeNode* at) const {
    return {at, static_cast<int64_t>(nodes.size()),
            static_cast<int64_t>(leaves.size()), num_rows, independent};
  }
};

// How a node of `count` leaves is split: a chain puts one leaf aside, otherwise
// up to `width` random parts.
inline std::vector<int64_t> Parts(int64_t count, int64_t width, bool chain,
                                  Random* random) {
  if (chain) return {1, count - 1};
  std::vector<int64_t> parts(
      std::min(count, 2 + (width > 2 ? random->Below(width - 1) : 0)), 1);
  for (int64_t rest = count - parts.size(); rest > 0; --rest) {
    ++parts[random->Below(parts.size())];
  }
  return parts;
}

inline TestTree MakeTree(int64_t num_classes, int64_t width, bool chain,
                         bool independent, Random* random) {
  TestTree tree;
  tree.independent = independent;
  tree.leaves.resize(num_classes);
  std::vector<int64_t> sizes = {num_classes}, depths = {0}, classes;
  for (int64_t c = 0; c < num_classes; ++c) {
    classes.insert(classes.begin() + random->Below(c + 1), c);
  }
  tree.nodes.push_back({-1, 0, 0, 0, -1});
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    TreeNode node = tree.nodes[n];
    tree.max_depth = std::max(tree.max_depth, depths[n]);
    if (sizes[n] == 1) {
      node.class_id = classes.back();
      classes.pop_back();
      tree.leaves[node.class_id] = n;
    } else {
      const auto parts = Parts(sizes[n], width, chain, random);
      node.first_child = tree.nodes.size();
      node.num_children = parts.size();
      node.first_row = tree.num_rows;
      for (const int64_t part : parts) {
        tree.nodes.push_back({static_cast<int64_t>(n), 0, 0, 0, -1});
        sizes.push_back(part);
        depths.push_back(depths[n] + 1);
      }
      tree.num_rows += tree.View(nullptr).NumRows(node);
    }
    tree.nodes[n] = node;
  }
  return tree;
}

struct Batch {
  int64_t batch, p, dim;
  std::vector<int64_t> labels;
  std::vector<float> weights, queries, kernel, upstream;
};

inline Batch MakeBatch(const TestTree& tree, int64_t batch, int64_t p,
                       int64_t dim, Random* random) {
  Batch b = {batch, p, dim, {}, {}, {}, {}, {}};
  b.labels = random->Ids(batch * p, tree.leaves.size());
  for (size_t l = 0; l < b.labels.size(); l += 5) b.labels[l] = l % 2 ? -1 : -2;
  b.weights = random->Normal(batch * p);
  for (float& weight : b.weights) weight = std::abs(weight) + 0.1f;
  b.queries = random->Normal(batch * dim);
  b.kernel = random->Normal(tree.num_rows * dim, 0.5f);
  b.upstream = random->Normal(batch);
  return b;
}

struct OnDevice {
  Buffer<TreeNode> nodes;
  Buffer<int64_t> leaves, labels;
  Buffer<float> weights, queries, kernel, upstream;
  Buffer<int64_t> splits;
  Buffer<int32_t> unsound{1};
  TestScratch scratch;
  GpuTree tree;
  PathLabels paths;

  OnDevice(const TestTree& t, const Batch& b)
      : nodes(t.nodes),
        leaves(t.leaves),
        labels(b.labels),
        weights(b.weights),
        queries(b.queries),
        kernel(b.kernel),
        upstream(b.upstream),
        splits(b.batch + 1),
        tree{t.View(nodes.data()), leaves.data(), t.max_depth},
        paths{labels.data(), weights.data(), b.batch, b.p} {}

  // Where the rows of each sample begin.
  std::vector<int64_t> Count() {
    Done(tfxclass::CountTreePaths(tree, paths, splits.data(), unsound.data(),
                                  &scratch, nullptr));
    return splits.Read();
  }
};

// The gradient of the distinct rows, in buffers that hold no more.
struct PathGradient {
  std::unique_ptr<Buffer<int64_t>> touched;
  std::unique_ptr<Buffer<float>> grads;

  PathGradient(const tfxclass::PathGradInput& input, float* queries_grad,
               int32_t* unsound, TestScratch* scratch) {
    Buffer<int64_t> num_touched(1);
    tfxclass::TouchedPathRows rows;
    Done(tfxclass::FindTouchedRows(input, queries_grad, &rows,
                                   num_touched.data(), unsound, scratch,
                                   nullptr));
    const int64_t count = num_touched.Read()[0];
    touched = std::make_unique<Buffer<int64_t>>(count);
    grads = std::make_unique<Buffer<float>>(count * input.dim);
    Sum(input, rows);
  }

  // The same again, without waiting.
  void Compute(const tfxclass::PathGradInput& input, float* queries_grad,
               int32_t* unsound, TestScratch* scratch) const {
    int64_t* const num_touched = scratch->Get<int64_t>(1);
    tfxclass::TouchedPathRows rows;
    Done(tfxclass::FindTouchedRows(input, queries_grad, &rows, num_touched,
                                   unsound, scratch, nullptr));
    Sum(input, rows);
  }

 private:
  void Sum(const tfxclass::PathGradInput& input,
           const tfxclass::TouchedPathRows& rows) const {
    Done(tfxclass::SumTouchedRows(input, rows, touched->data(), grads->data(),
                                  nullptr));
  }
};

}  // namespace gpu_tests

#endif  // TFXCLASS_GPU_TESTS_TREE_PATH_CASES_H_
