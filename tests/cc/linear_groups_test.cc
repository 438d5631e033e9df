// Linear one-vs-rest: the optimum, threads, sparse rows and odd shapes.
#include "core/linear_groups.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "threads.h"

namespace tfxclass {
namespace {

// Random sparse rows, labels and groups, in the arrays that a problem reads.
struct Case {
  Case(int64_t rows, int64_t features, int64_t labels, int64_t groups) {
    Philox random(7);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t f = 0; f < features; ++f) {
        if (random.Below(3)) continue;
        feature.push_back(f);
        value.push_back(random.Uniform() - 0.3f);
      }
      feature_split.push_back(feature.size());
      for (int64_t l = 0; l < labels; ++l) {
        if (random.Below(4) == 0) label.push_back(l);
      }
      label_split.push_back(label.size());
    }
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t l = g; l < labels; l += groups) group_label.push_back(l);
      group_label_split.push_back(group_label.size());
      for (int64_t i = 0; i < rows; ++i) {
        if (groups == 1 || random.Below(4)) group_row.push_back(i);
      }
      group_row_split.push_back(group_row.size());
    }
    problem.num_features = features;
    problem.num_labels = labels;
    problem.num_groups = groups;
    problem.features = {feature_split.data(), feature.data()};
    problem.values = value.data();
    problem.labels = {label_split.data(), label.data()};
    problem.group_labels = {group_label_split.data(), group_label.data()};
    problem.group_rows = {group_row_split.data(), group_row.data()};
  }
  std::vector<int32_t> feature;
  std::vector<int64_t> label, group_label, group_row;
  std::vector<int64_t> feature_split{0}, label_split{0};
  std::vector<int64_t> group_label_split{0}, group_row_split{0};
  std::vector<float> value;
  LinearProblem problem;
};

void SameWhateverTheThreads() {
  const Case some(60, 20, 150, 3);
  DualOptions options;
  options.num_epochs = 3;
  const auto one = TrainGroups(some.problem, options, 0, SerialFor);
  const auto many = TrainGroups(some.problem, options, 0, ThreadedFor);
  CHECK(one.size() == 3 && many.size() == 3);
  for (size_t t = 0; t < one.size(); ++t) {
    CHECK(one[t].features == many[t].features);
    CHECK(one[t].columns == many[t].columns);
    CHECK(one[t].weights == many[t].weights);
    CHECK(one[t].biases == many[t].biases);
  }
}

// The weights of the last label of a tile, by feature; its bias comes last.
std::vector<float> WeightsOfLast(const TileWeights& tile) {
  const size_t last = tile.biases.size() - 1;
  std::vector<float> weights;
  for (size_t i = 0; i < tile.weights.size(); ++i) {
    if (tile.columns[i] == last) weights.push_back(tile.weights[i]);
  }
  weights.push_back(tile.biases[last]);
  return weights;
}

// A label's weights do not depend on the other labels of its group: a tile of
// another width is other machine code.
void LabelsAreIndependent() {
  DualOptions options;
  std::vector<float> alone;
  for (int64_t first = 99; first >= 0; first -= 7) {
    Case some(40, 12, 100, 1);
    some.group_label.erase(some.group_label.begin(),
                           some.group_label.begin() + first);
    some.group_label_split = {0, 100 - first};
    some.problem.group_labels = {some.group_label_split.data(),
                                 some.group_label.data()};
    const auto tiles = TrainGroups(some.problem, options, 0, SerialFor);
    CHECK(tiles.size() == (first < 100 - kTileLabels ? 2 : 1));
    const std::vector<float> weights = WeightsOfLast(tiles.back());
    if (alone.empty()) alone = weights;
    CHECK(weights == alone);
  }
}

void NothingToLearn() {
  const Case no_rows(0, 5, 3, 1), no_labels(10, 5, 0, 1), wide(3, 0, 70, 2);
  DualOptions options;
  const auto empty = TrainGroups(no_rows.problem, options, 0, SerialFor);
  CHECK(empty.size() == 1 && empty[0].weights.empty());
  CHECK(empty[0].biases == std::vector<float>(3, 0.0f));
  CHECK(TrainGroups(no_labels.problem, options, 0, SerialFor).empty());
  const auto biases = TrainGroups(wide.problem, options, 0, SerialFor);
  CHECK(biases.size() == 2 && biases[0].weights.empty());
  for (const float bias : biases[0].biases) CHECK(std::isfinite(bias));
}

void WeightsBelowTheThresholdAreDropped() {
  const Case some(50, 20, 9, 1);
  const auto all = TrainGroups(some.problem, {}, 0, SerialFor);
  const auto kept = TrainGroups(some.problem, {}, 0.2f, SerialFor);
  std::vector<float> expected;
  for (const float weight : all[0].weights) {
    if (std::fabs(weight) >= 0.2f) expected.push_back(weight);
  }
  CHECK(!expected.empty() && expected.size() < all[0].weights.size());
  CHECK(kept[0].weights == expected);
}

// [features, 9] of the weights of a tile of nine labels.
std::vector<float> Dense(const TileWeights& tile, int64_t features) {
  std::vector<float> dense(9 * features);
  for (size_t i = 0; i < tile.weights.size(); ++i) {
    dense[9 * tile.features[i] + tile.columns[i]] = tile.weights[i];
  }
  return dense;
}

// A feature of one row needs no weights of its own while a tile is solved.
void LoneFeaturesHaveTheirWeights() {
  Case shared(40, 12, 9, 1), lone(40, 12, 9, 1);
  // The last feature is moved to the end of the rows that it is in but one.
  std::vector<int64_t> split{0};
  std::vector<int32_t> feature;
  std::vector<float> value;
  bool is_first = true;
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t n = shared.feature_split[row];
         n < shared.feature_split[row + 1]; ++n) {
      if (shared.feature[n] == 11 && !is_first) continue;
      is_first = is_first && shared.feature[n] != 11;
      feature.push_back(shared.feature[n]);
      value.push_back(shared.value[n]);
    }
    split.push_back(feature.size());
  }
  lone.problem.features = {split.data(), feature.data()};
  lone.problem.values = value.data();
  // With zeros to begin with, all features are shared.
  const std::vector<int64_t> no_weights(13, 0);
  const std::vector<float> no_biases(9, 0.0f);
  LinearProblem plain = lone.problem;
  plain.start = {no_weights.data(), nullptr, nullptr, no_biases.data()};
  const auto found = TrainGroups(lone.problem, {}, 0, SerialFor);
  const auto expected = TrainGroups(plain, {}, 0, SerialFor);
  const std::vector<float> some = Dense(found[0], 12);
  const std::vector<float> all = Dense(expected[0], 12);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(std::fabs(some[i] - all[i]) < 1e-4f);
  }
  CHECK(found[0].features.back() == 11);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::SameWhateverTheThreads();
  tfxclass::LabelsAreIndependent();
  tfxclass::NothingToLearn();
  tfxclass::WeightsBelowTheThresholdAreDropped();
  tfxclass::LoneFeaturesHaveTheirWeights();
}
