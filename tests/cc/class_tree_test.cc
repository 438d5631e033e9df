// The loss along paths and the search, against every class' own path.
#include "core/class_tree.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"
#include "core/philox.h"
#include "core/tree_path.h"
#include "core/tree_search.h"

namespace tfxclass {
namespace {

constexpr int64_t kDim = 11;

struct Tree {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> leaves;
  int64_t num_rows = 0;

  ClassTree view(bool independent) const {
    return {nodes.data(), static_cast<int64_t>(nodes.size()),
            static_cast<int64_t>(leaves.size()), num_rows, independent};
  }
};

// Leaves are opened, level by level, with 2 to `widest` children.
Tree RandomTree(Philox* random, int64_t num_inner, int64_t widest,
                bool independent) {
  Tree tree;
  tree.nodes.push_back({-1, 0, 0, 0, 0});
  size_t at = 0;
  for (int64_t i = 0; i < num_inner; ++i) {
    // Never past the last node that is there.
    const size_t next = std::min(at + random->Below(2), tree.nodes.size() - 1);
    const int64_t count = 2 + random->Below(widest - 1);
    const int64_t first = tree.nodes.size();
    TreeNode& node = tree.nodes[next];
    node.first_child = first;
    node.num_children = count;
    node.first_row = tree.num_rows;
    tree.num_rows += !independent && count == 2 ? 1 : count;
    for (int64_t j = 0; j < count; ++j) {
      tree.nodes.push_back({static_cast<int64_t>(next), 0, 0, 0, 0});
    }
    at = next + 1;
  }
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    TreeNode& node = tree.nodes[i];
    if (!node.is_leaf()) {
      node.class_id = -1;
      continue;
    }
    node.class_id = tree.leaves.size();
    tree.leaves.push_back(i);
  }
  return tree;
}

std::vector<float> Normal(Philox* random, int64_t count, double spread) {
  std::vector<float> values(count);
  for (float& v : values) {
    v = spread * std::sqrt(-2 * std::log(random->Uniform())) *
        std::cos(6.283185307 * random->Uniform());
  }
  return values;
}

// In double, from the definition.
double LogOfChild(const ClassTree& tree, const TreeNode& node, int64_t place,
                  const std::vector<double>& products) {
  const double* z = products.data() + node.first_row;
  if (tree.independent) return -std::log1p(std::exp(-z[place]));
  if (node.num_children == 2) {
    return -std::log1p(std::exp(place == 0 ? -z[0] : z[0]));
  }
  double sum = 0;
  for (int64_t j = 0; j < node.num_children; ++j) sum += std::exp(z[j]);
  return z[place] - std::log(sum);
}

double LogOfClass(const ClassTree& tree, int64_t leaf,
                  const std::vector<double>& products) {
  double log = 0;
  for (int64_t n = leaf; n > 0; n = tree.nodes[n].parent) {
    const TreeNode& above = tree.nodes[tree.nodes[n].parent];
    log += LogOfChild(tree, above, n - above.first_child, products);
  }
  return log;
}

struct Case {
  Tree tree;
  std::vector<float> kernel, query;
  std::vector<double> products;

  Case(Philox* random, bool independent)
      : tree(RandomTree(random, 1 + random->Below(60), 2 + random->Below(5),
                        independent)),
        kernel(Normal(random, tree.num_rows * kDim, 0.5)),
        query(Normal(random, kDim, 1)) {
    for (int64_t r = 0; r < tree.num_rows; ++r) {
      double sum = 0;
      for (int64_t d = 0; d < kDim; ++d) {
        sum += double{kernel[r * kDim + d]} * query[d];
      }
      products.push_back(sum);
    }
  }
};

float LossOf(const Case& c, const ClassTree& tree,
             const std::vector<int64_t>& labels,
             const std::vector<float>& weights, std::vector<int64_t>* rows,
             std::vector<float>* slopes) {
  std::vector<PathStep> steps;
  CHECK(CollectSteps(tree, c.tree.leaves.data(), labels.data(), weights.data(),
                     labels.size(), &steps));
  rows->resize(CountRows(tree, steps));
  slopes->resize(rows->size());
  WriteRows(tree, steps, rows->data());
  return PathLoss(tree, steps, c.query.data(), c.kernel.data(), kDim,
                  rows->data(), rows->size(), slopes->data());
}

void LossIsThatOfThePaths() {
  for (int64_t seed = 0; seed < NumberCases(300); ++seed) {
    Philox random(seed);
    const Case c(&random, false);
    const ClassTree tree = c.tree.view(false);
    CHECK(IsSoundTree(tree));
    std::vector<int64_t> labels(random.Below(6));
    for (auto& label : labels) label = random.Below(tree.num_classes + 1) - 1;
    const std::vector<float> weights(labels.size(), 0.25f);
    std::vector<int64_t> rows;
    std::vector<float> slopes;
    const float loss = LossOf(c, tree, labels, weights, &rows, &slopes);
    double expected = 0;
    for (const int64_t label : labels) {
      if (label < 0) continue;
      expected -= 0.25 * LogOfClass(tree, c.tree.leaves[label], c.products);
    }
    CHECK(std::abs(loss - expected) <= 1e-5 * (1 + expected));
    CHECK(std::is_sorted(rows.begin(), rows.end()));
    CHECK(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
    // Slopes by differences of the products.
    for (size_t r = 0; r < rows.size(); ++r) {
      double sides[2] = {0, 0};
      for (int side = 0; side < 2; ++side) {
        auto moved = c.products;
        moved[rows[r]] += side ? 1e-5 : -1e-5;
        for (const int64_t label : labels) {
          if (label < 0) continue;
          sides[side] -= 0.25 * LogOfClass(tree, c.tree.leaves[label], moved);
        }
      }
      CHECK(std::abs(slopes[r] - (sides[1] - sides[0]) / 2e-5) < 1e-4);
    }
  }
}

void IndependentLossCountsAllChildren() {
  for (int64_t seed = 0; seed < NumberCases(200); ++seed) {
    Philox random(seed, 1);
    const Case c(&random, true);
    const ClassTree tree = c.tree.view(true);
    std::vector<int64_t> labels(1 + random.Below(4));
    for (auto& label : labels) label = random.Below(tree.num_classes);
    const std::vector<float> weights(labels.size(), 1.0f);
    std::vector<int64_t> rows;
    std::vector<float> slopes;
    const float loss = LossOf(c, tree, labels, weights, &rows, &slopes);
    std::vector<bool> positive(tree.num_nodes);
    for (const int64_t label : labels) {
      for (int64_t n = c.tree.leaves[label]; n >= 0; n = tree.nodes[n].parent) {
        positive[n] = true;
      }
    }
    double expected = 0;
    size_t used = 0;
    for (int64_t n = 0; n < tree.num_nodes; ++n) {
      const TreeNode& node = tree.nodes[n];
      if (!positive[n] || node.is_leaf()) continue;
      for (int64_t j = 0; j < node.num_children; ++j, ++used) {
        const int64_t r = node.first_row + j;
        const double sign = positive[node.first_child + j] ? -1 : 1;
        const double z = sign * c.products[r];
        expected += std::log1p(std::exp(z));
        CHECK(rows[used] == r);
        CHECK(std::abs(slopes[used] - sign / (1 + std::exp(-z))) < 1e-5);
      }
    }
    CHECK(used == rows.size());
    CHECK(std::abs(loss - expected) <= 1e-5 * (1 + expected));
  }
}

void SearchIsExhaustive() {
  for (int64_t seed = 0; seed < NumberCases(300); ++seed) {
    Philox random(seed, 2);
    const bool independent = seed % 2;
    const Case c(&random, independent);
    const ClassTree tree = c.tree.view(independent);
    std::vector<float> logits(c.products.begin(), c.products.end());
    for (int64_t r = 0; r < tree.num_rows; ++r) {
      logits[r] = Dot(c.query.data(), c.kernel.data() + r * kDim, kDim);
    }
    std::vector<float> logs(tree.num_nodes);
    TreeLogs(tree, logits.data(), logs.data());
    std::vector<int64_t> order(tree.num_classes);
    for (int64_t i = 0; i < tree.num_classes; ++i) {
      order[i] = i;
      const double log = LogOfClass(tree, c.tree.leaves[i], c.products);
      CHECK(std::abs(logs[c.tree.leaves[i]] - log) < 1e-4);
    }
    const auto score = [&](int64_t id) { return logs[c.tree.leaves[id]]; };
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    const int64_t k = 1 + random.Below(tree.num_classes + 3);
    const float least = seed % 3 ? -INFINITY : -4.0f;
    std::vector<int64_t> ids(k);
    std::vector<float> scores(k);
    TreeSearchScratch scratch;
    CHECK(TreeSearch(tree, c.query.data(), c.kernel.data(), kDim, k, least,
                     &scratch, ids.data(), scores.data()));
    for (int64_t i = 0; i < k; ++i) {
      const bool exists = i < tree.num_classes && score(order[i]) >= least;
      CHECK(ids[i] == (exists ? order[i] : -1));
      CHECK(scores[i] == (exists ? score(order[i]) : -INFINITY));
    }
  }
}

void NanIsNotFound() {
  Philox random(3);
  Case c(&random, false);
  c.query[4] = NAN;
  int64_t id;
  float score;
  TreeSearchScratch scratch;
  CHECK(TreeSearch(c.tree.view(false), c.query.data(), c.kernel.data(), kDim, 1,
                   -INFINITY, &scratch, &id, &score));
  CHECK(id == -1 && score == -INFINITY);
}

void GreatLogitsAreExact() {
  CHECK(Softplus(200) == 200 && Softplus(-80) > 0 && Softplus(-200) == 0);
  CHECK(Sigmoid(200) == 1 && Sigmoid(-80) > 0 && Sigmoid(-200) == 0);
  CHECK(std::abs(Softplus(-20) - 2.0611536e-9f) < 1e-15f);
}

// A changed number must not lead out of the arrays, nor in circles.
void DamagedTreesAreRefusedOrHarmless() {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Philox random(seed, 4);
    Case c(&random, seed % 2);
    TreeNode& node = c.tree.nodes[random.Below(c.tree.nodes.size())];
    int64_t* const fields[] = {&node.parent, &node.first_child,
                               &node.num_children, &node.first_row,
                               &node.class_id};
    const int64_t values[] = {-7, -1, 0, 1, 5, 400, int64_t{1} << 62};
    *fields[random.Below(5)] = values[random.Below(7)];
    const ClassTree tree = c.tree.view(seed % 2);
    IsSoundTree(tree);
    std::vector<PathStep> steps;
    for (int64_t label = 0; label < tree.num_classes; ++label) {
      const float weight = 1;
      if (!CollectSteps(tree, c.tree.leaves.data(), &label, &weight, 1,
                        &steps)) {
        continue;
      }
      std::vector<int64_t> rows(CountRows(tree, steps));
      std::vector<float> slopes(rows.size());
      WriteRows(tree, steps, rows.data());
      PathLoss(tree, steps, c.query.data(), c.kernel.data(), kDim, rows.data(),
               rows.size(), slopes.data());
    }
    int64_t ids[4];
    float scores[4];
    TreeSearchScratch scratch;
    TreeSearch(tree, c.query.data(), c.kernel.data(), kDim, 4, -INFINITY,
               &scratch, ids, scores);
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::LossIsThatOfThePaths();
  tfxclass::IndependentLossCountsAllChildren();
  tfxclass::SearchIsExhaustive();
  tfxclass::NanIsNotFound();
  tfxclass::GreatLogitsAreExact();
  tfxclass::DamagedTreesAreRefusedOrHarmless();
}
