// Trees, labels and rows that lead out of the arrays are found, not followed.
#include <string>

#include "gpu_tests/tree_path_cases.h"

namespace gpu_tests {
namespace {

using tfxclass::PathStep;

// Whether core finds every path of the batch.
bool IsSound(const TestTree& test_tree, const Batch& b) {
  const ClassTree tree = test_tree.View(test_tree.nodes.data());
  for (int64_t i = 0; i < b.batch; ++i) {
    std::vector<PathStep> steps;
    for (int64_t l = i * b.p; l < (i + 1) * b.p; ++l) {
      if (b.labels[l] >= tree.num_classes) return false;
    }
    if (!tfxclass::CollectSteps(tree, test_tree.leaves.data(),
                                &b.labels[i * b.p], &b.weights[i * b.p], b.p,
                                &steps)) {
      return false;
    }
  }
  return true;
}

int64_t Wild(Random* random) {
  switch (random->Below(4)) {
    case 0:
      return -1 - random->Below(100);
    case 1:
      return INT64_MAX - random->Below(3);
    case 2:
      return INT64_MIN + random->Below(3);
    default:
      return random->Below(60);
  }
}

// What leads out of the arrays is found, as the processor finds it.
GPU_TEST(TreePathUnsound) {
  Random random(18);
  int num_unsound = 0;
  for (int turn = 0; turn < 60; ++turn) {
    TestTree tree = MakeTree(20, 2 + turn % 4, false, turn % 2, &random);
    Batch b = MakeBatch(tree, 4, 3, 4, &random);
    if (turn % 3 == 0) {
      b.labels[random.Below(12)] = Wild(&random);
    } else if (turn % 3 == 1) {
      tree.leaves[random.Below(20)] = Wild(&random);
    } else {
      TreeNode* node = &tree.nodes[random.Below(8)];
      reinterpret_cast<int64_t*>(node)[random.Below(5)] = Wild(&random);
    }
    OnDevice device(tree, b);
    const int64_t n = device.Count().back();
    const bool found_unsound = device.unsound.Read()[0] != 0;
    if (!IsSound(tree, b)) {
      ++num_unsound;
      Expect(found_unsound, "turn " + std::to_string(turn) + " is unsound");
    }
    Buffer<int64_t> rows(n);
    Buffer<float> losses(b.batch), slopes(n);
    Done(tfxclass::TreePathLoss(
        device.tree, device.paths, device.queries.data(), device.kernel.data(),
        b.dim, device.splits.data(), losses.data(), rows.data(), slopes.data(),
        device.unsound.data(), &device.scratch, nullptr));
  }
  Expect(num_unsound > 20, "enough of the trees are unsound");
}

// A path is unsound if it is longer than the depth, by one edge too.
GPU_TEST(TreePathTooDeep) {
  Random random(19);
  const TestTree tree = MakeTree(20, 2, true, false, &random);
  for (int64_t label = 0; label < 20; ++label) {
    Batch b = MakeBatch(tree, 1, 1, 4, &random);
    b.labels = {label};
    int64_t depth = 0;
    for (int64_t n = tree.leaves[label]; n > 0; n = tree.nodes[n].parent) {
      ++depth;
    }
    OnDevice device(tree, b);
    device.tree.max_depth = 3;
    device.Count();
    Expect((device.unsound.Read()[0] != 0) == (depth > 3),
           "depth " + std::to_string(depth));
  }
}

GPU_TEST(TreePathGradUnsound) {
  const int64_t dim = 4, num_rows = 5, n = 6;
  Random random(20);
  Buffer<float> queries(random.Normal(2 * dim)), slopes(random.Normal(n));
  Buffer<float> kernel(random.Normal(num_rows * dim)),
      upstream(std::vector<float>{1, 1});
  const std::vector<std::vector<int64_t>> all_splits = {
      {0, 3, 6}, {0, 9, 6}, {-4, 3, 6}, {0, 3, 7}, {5, 2, 6}};
  const std::vector<std::vector<int64_t>> all_rows = {{0, 1, 2, 3, 4, -1},
                                                      {0, 1, 2, 3, 4, 5}};
  for (size_t s = 0; s < all_splits.size(); ++s) {
    for (size_t r = 0; r < all_rows.size(); ++r) {
      Buffer<int64_t> splits(all_splits[s]), rows(all_rows[r]);
      Buffer<float> queries_grad(2 * dim);
      Buffer<int32_t> unsound(1);
      TestScratch scratch;
      const PathGradient gradient(
          {queries.data(), kernel.data(), 2, num_rows, dim, rows.data(),
           slopes.data(), n, splits.data(), upstream.data()},
          queries_grad.data(), unsound.data(), &scratch);
      Expect(unsound.Read()[0] == 1, "splits or rows are unsound");
    }
  }
}

}  // namespace
}  // namespace gpu_tests
