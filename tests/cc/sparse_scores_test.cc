// Scores of a sparse linear model, against sums in double.
#include "core/sparse_scores.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"
#include "core/philox.h"

namespace tfxclass {
namespace {

constexpr int64_t kFeatures = 12, kDense = 3, kBatch = 3, kTerms = 9;

// One block at a time, the last one first.
void BackwardsFor(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  for (int64_t i = total; i-- > 0;) body(i, i + 1);
}

// A model and a batch of random numbers.
struct Problem {
  Problem(uint64_t seed, int64_t num_labels, int64_t num_groups,
          ScoreActivation activation)
      : random(seed) {
    const int64_t width = num_labels + num_groups;
    for (int64_t f = 0; f < kFeatures; ++f) {
      places.push_back(f < kDense ? f : -1);
      const int64_t length = f < 2 * kDense ? 0 : random.Below(2 * width);
      splits.push_back(splits.back() + length);
    }
    for (int64_t i = 0; i < splits.back(); ++i) {
      columns.push_back(random.Below(width));
    }
    Fill(kDense * width, &dense);
    Fill(splits.back(), &entries);
    Fill(width, &biases);
    FillFull(width);
    Fill(kBatch * kTerms, &values);
    for (int64_t i = 0; i < kBatch * kTerms; ++i) {
      ids.push_back(random.Below(kFeatures));
      if (i % 4 == 0) values[i] = 0;
    }
    for (int64_t c = 0; c < num_labels && num_groups > 0; ++c) {
      groups.push_back(random.Below(num_groups));
    }
    model = {num_labels,
             num_groups,
             places.data(),
             dense.data(),
             splits.data(),
             columns.data(),
             entries.data(),
             biases.data(),
             num_groups > 0 ? groups.data() : nullptr,
             activation,
             1.5f,
             -0.5f,
             1.2f};
  }

  void Fill(int64_t count, std::vector<float>* numbers) {
    for (int64_t i = 0; i < count; ++i) {
      numbers->push_back((random.Below(2001) - 1000.0f) / 1000);
    }
  }

  void FillFull(int64_t width) {
    full.resize(kFeatures * width);
    for (int64_t f = 0; f < kFeatures; ++f) {
      for (int64_t c = 0; c < width && places[f] >= 0; ++c) {
        full[f * width + c] = dense[places[f] * width + c];
      }
      for (int64_t i = splits[f]; i < splits[f + 1]; ++i) {
        full[f * width + columns[i]] += entries[i];
      }
    }
  }

  double Margin(int64_t row, int64_t column) const {
    double sum = biases[column];
    for (int64_t i = row * kTerms; i < (row + 1) * kTerms; ++i) {
      sum += values[i] * full[ids[i] * model.width() + column];
    }
    return sum;
  }

  double Gate(int64_t row, int64_t label) const {
    if (model.groups == nullptr) return 1;
    const double margin = Margin(row, model.num_labels + groups[label]);
    return 1 / (1 + std::exp(-model.group_slope * margin));
  }

  // The exact scores of a row.
  std::vector<double> Exact(int64_t row) const {
    std::vector<double> scores;
    double total = 0;
    for (int64_t c = 0; c < model.num_labels; ++c) {
      const double margin = Margin(row, c);
      const double odds = std::exp(model.slope * margin + model.intercept);
      scores.push_back(odds * Gate(row, c));
      total += scores.back();
      if (model.activation == ScoreActivation::kNone) scores.back() = margin;
      if (model.activation == ScoreActivation::kSigmoid) {
        scores.back() /= 1 + odds;
      }
    }
    if (model.activation == ScoreActivation::kSoftmax) {
      for (double& score : scores) score /= total;
    }
    return scores;
  }

  std::vector<float> Found(const ParallelFor& parallel) const {
    std::vector<float> scores(kBatch * model.num_labels);
    SparseScorer scorer(model, kBatch, kTerms, ids.data(), values.data());
    CHECK(scorer.Score(parallel, scores.data()));
    return scores;
  }

  Philox random;
  std::vector<int32_t> places, columns, groups;
  std::vector<int64_t> splits{0}, ids;
  std::vector<float> dense, entries, biases, values;
  std::vector<double> full;  // the weights, [features, width]
  SparseModel model;
};

void EqualsSumsInDouble() {
  for (const auto activation :
       {ScoreActivation::kNone, ScoreActivation::kSigmoid,
        ScoreActivation::kSoftmax}) {
    for (const int64_t num_labels : {1, 9, 2047, 2048, 2051}) {
      for (const int64_t num_groups : {0, 5}) {
        const Problem problem(num_labels, num_labels, num_groups, activation);
        const std::vector<float> found = problem.Found(SerialFor);
        CHECK(found == problem.Found(BackwardsFor));
        for (int64_t row = 0; row < kBatch; ++row) {
          const std::vector<double> exact = problem.Exact(row);
          for (int64_t c = 0; c < num_labels; ++c) {
            const float score = found[row * num_labels + c];
            // Sums of at most some hundred terms below 1.
            CHECK(std::abs(score - exact[c]) < 2e-5);
          }
        }
      }
    }
  }
}

void ColumnsOutOfRangeAreTold() {
  for (const int32_t wrong : {-1, 14, INT32_MAX, INT32_MIN}) {
    Problem problem(1, 9, 5, ScoreActivation::kSigmoid);
    for (auto& column : problem.columns) column = wrong;
    std::vector<float> scores(kBatch * 9);
    SparseScorer scorer(problem.model, kBatch, kTerms, problem.ids.data(),
                        problem.values.data());
    CHECK(!scorer.Score(SerialFor, scores.data()));
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::EqualsSumsInDouble();
  tfxclass::ColumnsOutOfRangeAreTold();
  return 0;
}
