// Losses in trees against core/tree_path.h, and the same formulas in double.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "gpu_tests/tree_path_cases.h"

namespace gpu_tests {
namespace {

using tfxclass::PathStep;

double SoftplusOf(double z) {
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

// Masses of the children of `node`, and of those that a step leads to.
double NodeLoss(const ClassTree& tree, const TreeNode& node,
                const PathStep* begin, const PathStep* end, double* products) {
  std::vector<double> mass(node.num_children), positive(node.num_children);
  double total = 0, loss = 0;
  for (const PathStep* s = begin; s < end; ++s) {
    mass[s->child - node.first_child] = s->mass;
    positive[s->child - node.first_child] = 1;
    total += s->mass;
  }
  if (tree.independent) {
    for (int64_t j = 0; j < node.num_children; ++j) {
      const double z = products[j];
      loss += SoftplusOf(z) - positive[j] * z;
      products[j] = 1 / (1 + std::exp(-z)) - positive[j];
    }
    return loss;
  }
  std::vector<double> logits(products, products + tree.NumRows(node));
  const bool is_binary = node.num_children == 2;
  if (is_binary) logits.push_back(0);
  double sum = 0;
  for (const double z : logits) sum += std::exp(z);
  for (int64_t j = 0; j < node.num_children; ++j) {
    const double share = std::exp(logits[j]) / sum;
    loss -= mass[j] == 0 ? 0 : mass[j] * std::log(share);
    if (j < tree.NumRows(node)) products[j] = total * share - mass[j];
  }
  return loss;
}

struct Expected {
  std::vector<int64_t> rows, splits = {0}, touched;
  std::vector<double> losses, slopes, queries_grad, touched_grads;
};

double DotOf(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d) sum += double{a[d]} * b[d];
  return sum;
}

Expected Reference(const TestTree& test_tree, const Batch& b) {
  const ClassTree tree = test_tree.View(test_tree.nodes.data());
  Expected e;
  std::map<int64_t, std::vector<double>> sums;
  e.queries_grad.resize(b.batch * b.dim);
  for (int64_t i = 0; i < b.batch; ++i) {
    std::vector<PathStep> steps;
    Expect(tfxclass::CollectSteps(tree, test_tree.leaves.data(),
                                  &b.labels[i * b.p], &b.weights[i * b.p], b.p,
                                  &steps),
           "the tree is sound");
    const int64_t first = e.rows.size();
    e.rows.resize(first + tfxclass::CountRows(tree, steps));
    tfxclass::WriteRows(tree, steps, e.rows.data() + first);
    e.splits.push_back(e.rows.size());
    const float* query = &b.queries[i * b.dim];
    std::vector<double> products;
    for (size_t r = first; r < e.rows.size(); ++r) {
      products.push_back(DotOf(query, &b.kernel[e.rows[r] * b.dim], b.dim));
    }
    double loss = 0, *at = products.data();
    tfxclass::ForEachParent(
        tree, steps,
        [&](const TreeNode& node, const PathStep* begin, const PathStep* end) {
          loss += NodeLoss(tree, node, begin, end, at);
          at += tree.NumRows(node);
        });
    e.losses.push_back(loss);
    for (size_t r = first; r < e.rows.size(); ++r) {
      const double factor = b.upstream[i] * products[r - first];
      auto& sum = sums[e.rows[r]];
      sum.resize(b.dim);
      for (int64_t d = 0; d < b.dim; ++d) {
        sum[d] += factor * query[d];
        e.queries_grad[i * b.dim + d] +=
            factor * b.kernel[e.rows[r] * b.dim + d];
      }
    }
    e.slopes.insert(e.slopes.end(), products.begin(), products.end());
  }
  for (const auto& [row, sum] : sums) {
    e.touched.push_back(row);
    e.touched_grads.insert(e.touched_grads.end(), sum.begin(), sum.end());
  }
  return e;
}

void CheckGrad(const Batch& b, const Expected& e, OnDevice* device,
               int64_t num_rows, Buffer<int64_t>* rows, Buffer<float>* slopes,
               const std::string& what) {
  const int64_t n = rows->size();
  Buffer<float> queries_grad(b.batch * b.dim);
  tfxclass::PathGradInput input = {device->queries.data(),
                                   device->kernel.data(),
                                   b.batch,
                                   num_rows,
                                   b.dim,
                                   rows->data(),
                                   slopes->data(),
                                   n,
                                   device->splits.data(),
                                   device->upstream.data()};
  PathGradient found(input, queries_grad.data(), device->unsound.data(),
                     &device->scratch);
  Expect(device->unsound.Read()[0] == 0, what + ": sound gradient");
  ExpectNear(queries_grad.Read(), e.queries_grad, 3e-6, what + ": queries");
  ExpectEqual(found.touched->Read(), e.touched, what + ": touched");
  ExpectNear(found.grads->Read(), e.touched_grads, 3e-6, what + ": gradients");
}

void Check(const TestTree& tree, int64_t batch, int64_t p, int64_t dim,
           int64_t more_depth, Random* random) {
  const std::string what = std::to_string(tree.leaves.size()) + " classes, " +
                           std::to_string(p) + " labels, dim " +
                           std::to_string(dim);
  const Batch b = MakeBatch(tree, batch, p, dim, random);
  const Expected e = Reference(tree, b);
  OnDevice device(tree, b);
  device.tree.max_depth += more_depth;
  ExpectEqual(device.Count(), e.splits, what + ": splits");
  const int64_t n = e.rows.size();
  Buffer<int64_t> rows(n);
  Buffer<float> losses(batch), slopes(n);
  Done(tfxclass::TreePathLoss(device.tree, device.paths, device.queries.data(),
                              device.kernel.data(), dim, device.splits.data(),
                              losses.data(), rows.data(), slopes.data(),
                              device.unsound.data(), &device.scratch, nullptr));
  Expect(device.unsound.Read()[0] == 0, what + ": sound");
  ExpectEqual(rows.Read(), e.rows, what + ": rows");
  ExpectNear(losses.Read(), e.losses, 2e-6, what + ": losses");
  ExpectNear(slopes.Read(), e.slopes, 3e-6, what + ": slopes");
  CheckGrad(b, e, &device, tree.num_rows, &rows, &slopes, what);
}

GPU_TEST(TreePathBinary) {
  Random random(11);
  Check(MakeTree(40, 2, false, false, &random), 90, 1, 20, 0, &random);
  Check(MakeTree(17, 2, true, false, &random), 9, 4, 5, 0, &random);
  Check(MakeTree(2, 2, false, false, &random), 3, 1, 1, 0, &random);
  Check(MakeTree(300, 2, false, false, &random), 5, 40, 130, 0, &random);
}

GPU_TEST(TreePathWide) {
  Random random(12);
  Check(MakeTree(60, 9, false, false, &random), 20, 3, 36, 0, &random);
  Check(MakeTree(50, 50, false, false, &random), 6, 1, 7, 0, &random);
  Check(MakeTree(90, 3, false, false, &random), 80, 2, 8, 0, &random);
}

GPU_TEST(TreePathIndependent) {
  Random random(13);
  Check(MakeTree(60, 6, false, true, &random), 20, 5, 12, 0, &random);
  Check(MakeTree(30, 2, false, true, &random), 10, 1, 3, 0, &random);
}

// A node with one child, which is its class.
GPU_TEST(TreePathOnlyChild) {
  for (const bool independent : {false, true}) {
    Random random(14);
    TestTree tree;
    tree.nodes = {{-1, 1, 1, 0, -1}, {0, 0, 0, 0, 0}};
    tree.leaves = {1};
    tree.num_rows = tree.max_depth = 1;
    tree.independent = independent;
    Check(tree, 6, 2, 4, 0, &random);
  }
}

GPU_TEST(TreePathNothing) {
  Random random(15);
  Check(MakeTree(9, 2, false, false, &random), 0, 3, 4, 0, &random);
  Check(MakeTree(9, 2, false, false, &random), 4, 0, 4, 0, &random);
  // One class: no edges.
  Check(MakeTree(1, 2, false, false, &random), 4, 2, 4, 0, &random);
}

// So deep that the edges of a sample lie in scratch memory.
GPU_TEST(TreePathScratch) {
  Random random(16);
  Check(MakeTree(40, 4, false, false, &random), 5, 20, 6, 300, &random);
}

GPU_TEST(TreePathDeterministic) {
  Random random(17);
  const TestTree tree = MakeTree(30, 3, false, false, &random);
  const Batch b = MakeBatch(tree, 70, 4, 8, &random);
  std::vector<float> first;
  for (int turn = 0; turn < 2; ++turn) {
    OnDevice device(tree, b);
    const int64_t n = device.Count().back();
    Buffer<int64_t> rows(n);
    Buffer<float> losses(b.batch), slopes(n), queries_grad(b.batch * b.dim);
    Done(tfxclass::TreePathLoss(
        device.tree, device.paths, device.queries.data(), device.kernel.data(),
        b.dim, device.splits.data(), losses.data(), rows.data(), slopes.data(),
        device.unsound.data(), &device.scratch, nullptr));
    const PathGradient gradient(
        {device.queries.data(), device.kernel.data(), b.batch, tree.num_rows,
         b.dim, rows.data(), slopes.data(), n, device.splits.data(),
         device.upstream.data()},
        queries_grad.data(), device.unsound.data(), &device.scratch);
    auto found = gradient.grads->Read();
    const auto of_losses = losses.Read();
    found.insert(found.end(), of_losses.begin(), of_losses.end());
    if (turn == 0) first = found;
    ExpectEqual(found, first, "losses and gradients");
  }
}

GPU_BENCHMARK(TreePathBenchmarks) {
  const int64_t batch = 4096, dim = 128;
  Random random(21);
  TestTree tree;
  tree.nodes = {{-1, 1, 2, 0, -1}};
  const int64_t num_classes = 1000000;
  for (int64_t n = 1; n < 2 * num_classes - 1; ++n) {  // a complete tree
    const bool is_leaf = n >= num_classes - 1;
    tree.nodes.push_back({(n - 1) / 2, is_leaf ? 0 : 2 * n + 1, is_leaf ? 0 : 2,
                          is_leaf ? 0 : n, is_leaf ? n - num_classes + 1 : -1});
    if (is_leaf) tree.leaves.push_back(n);
  }
  tree.num_rows = num_classes - 1;
  tree.max_depth = 20;
  Batch b = {batch, 1, dim, {}, {}, {}, {}, {}};
  b.labels = random.Ids(batch, num_classes);
  b.weights.assign(batch, 1.0f);
  b.queries = random.Normal(batch * dim);
  b.kernel = random.Normal(tree.num_rows * dim, 0.1f);
  b.upstream.assign(batch, 1.0f / batch);
  OnDevice device(tree, b);
  const int64_t n = device.Count().back();
  Buffer<int64_t> rows(n);
  Buffer<float> losses(batch), slopes(n), queries_grad(batch * dim);
  TestScratch scratch;
  const double row_bytes = dim * sizeof(float);
  Report(
      "tree loss, 4,096 of 1M x 128, one label (with the count)", MedianMs([&] {
        scratch.Reuse();
        Done(tfxclass::CountTreePaths(
            device.tree, device.paths, device.splits.data(),
            device.unsound.data(), &scratch, nullptr));
        Done(tfxclass::TreePathLoss(device.tree, device.paths,
                                    device.queries.data(), device.kernel.data(),
                                    dim, device.splits.data(), losses.data(),
                                    rows.data(), slopes.data(),
                                    device.unsound.data(), &scratch, nullptr));
      }),
      n * row_bytes, 2.0 * n * dim);
  TestScratch of_grad;
  const tfxclass::PathGradInput input = {device.queries.data(),
                                         device.kernel.data(),
                                         batch,
                                         tree.num_rows,
                                         dim,
                                         rows.data(),
                                         slopes.data(),
                                         n,
                                         device.splits.data(),
                                         device.upstream.data()};
  const PathGradient first(input, queries_grad.data(), device.unsound.data(),
                           &of_grad);
  const double ms = MedianMs([&] {
    of_grad.Reuse();
    first.Compute(input, queries_grad.data(), device.unsound.data(), &of_grad);
  });
  Report("tree gradient, the same", ms,
         n * row_bytes + first.touched->size() * row_bytes, 4.0 * n * dim);
}

}  // namespace
}  // namespace gpu_tests
