// CPU kernel of linear one-vs-rest classifiers on sparse rows.
#include <limits>
#include <string>
#include <vector>

#include "core/linear_groups.h"
#include "kernels/kernel_utils.h"
#include "kernels/labeled_rows.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status CheckDistinct(const Tensor& labels, int64_t num_labels) {
  std::vector<bool> seen(num_labels);
  const auto ids = labels.flat<int64_t>();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (seen[ids(i)]) {
      return absl::InvalidArgumentError(
          absl::StrCat("A label must be in one group, once. Received: ", ids(i),
                       " again at position ", i));
    }
    seen[ids(i)] = true;
  }
  return absl::OkStatus();
}

// The squared norm of each row must be a float32.
absl::Status CheckNorms(const Tensor& splits, const Tensor& values,
                        double bias) {
  const auto at = splits.flat<int64_t>();
  const auto value = values.flat<float>();
  for (int64_t row = 0; row + 1 < at.size(); ++row) {
    double norm = bias * bias;
    for (int64_t n = at(row); n < at(row + 1); ++n) {
      norm += static_cast<double>(value(n)) * value(n);
    }
    if (norm > std::numeric_limits<float>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "The sum of the squares of a row's `values`, and of `bias`, must be "
          "at most 3.4e38. Received: ",
          norm, " of row ", row, ". Fix: scale the values"));
    }
  }
  return absl::OkStatus();
}

template <class T>
Ragged<T> RaggedOf(const Tensor& splits, const Tensor& values) {
  return {splits.flat<int64_t>().data(), values.flat<T>().data()};
}

// The weights of all tiles as one matrix, by feature; in the order of the
// tiles, and so of the columns. A tile that is done is freed.
void Transpose(std::vector<TileWeights>* tiles, int64_t num_features,
               int64_t* splits, int32_t* columns, float* weights) {
  std::vector<int64_t> next(splits, splits + num_features);
  for (TileWeights& tile : *tiles) {
    for (size_t i = 0; i < tile.weights.size(); ++i) {
      const int64_t at = next[tile.features[i]]++;
      columns[at] = tile.first + tile.columns[i];
      weights[at] = tile.weights[i];
    }
    tile = TileWeights();
  }
}

class LinearOneVsRestOp : public OpKernel {
 public:
  explicit LinearOneVsRestOp(OpKernelConstruction* c) : OpKernel(c) {
    int64_t seed;
    OP_REQUIRES_OK(c, c->GetAttr("num_features", &num_features_));
    OP_REQUIRES_OK(c, c->GetAttr("num_labels", &num_labels_));
    OP_REQUIRES_OK(c, c->GetAttr("c", &options_.c));
    OP_REQUIRES_OK(c, c->GetAttr("bias", &options_.bias));
    OP_REQUIRES_OK(c, c->GetAttr("num_epochs", &options_.num_epochs));
    OP_REQUIRES_OK(c, c->GetAttr("tolerance", &options_.tolerance));
    OP_REQUIRES_OK(c, c->GetAttr("threshold", &threshold_));
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed));
    options_.seed = seed;
    OP_REQUIRES(c, options_.c > 0 && std::isfinite(options_.c),
                absl::InvalidArgumentError(absl::StrCat(
                    "`c` must be positive. Received: ", options_.c)));
    for (const float value : {options_.bias, options_.tolerance, threshold_}) {
      OP_REQUIRES(
          c, value >= 0 && std::isfinite(value),
          absl::InvalidArgumentError(absl::StrCat(
              "`bias`, `tolerance` and `threshold` must be at least 0. "
              "Received: ",
              options_.bias, ", ", options_.tolerance, ", ", threshold_)));
    }
    constexpr int64_t kMostEpochs = 100000;
    OP_REQUIRES(c, options_.num_epochs <= kMostEpochs,
                absl::InvalidArgumentError(
                    absl::StrCat("`num_epochs` must be at most ", kMostEpochs,
                                 ". Received: ", options_.num_epochs)));
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    OP_REQUIRES(c, num_features_ < kMost && num_labels_ < kMost,
                absl::InvalidArgumentError(absl::StrCat(
                    "`num_features` and `num_labels` must be below ", kMost,
                    ". Received: ", num_features_, ", ", num_labels_)));
  }

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES_OK(c, Check(c));
    LinearProblem problem;
    problem.num_features = num_features_;
    problem.num_labels = num_labels_;
    problem.num_groups = c->input(5).NumElements() - 1;
    problem.features = RaggedOf<int32_t>(c->input(0), c->input(1));
    problem.values = c->input(2).flat<float>().data();
    problem.labels = RaggedOf<int64_t>(c->input(3), c->input(4));
    problem.group_labels = RaggedOf<int64_t>(c->input(5), c->input(6));
    problem.group_rows = RaggedOf<int64_t>(c->input(7), c->input(8));
    if (HasStart(c)) {
      problem.start = {c->input(9).flat<int64_t>().data(),
                       c->input(10).flat<int32_t>().data(),
                       c->input(11).flat<float>().data(),
                       c->input(12).flat<float>().data()};
    }
    std::vector<TileWeights> tiles =
        TrainGroups(problem, options_, threshold_, PoolOf(c));
    for (const TileWeights& tile : tiles) {
      OP_REQUIRES(c, tile.is_finite,
                  absl::InvalidArgumentError(
                      "Weights must be finite. Received: some that have "
                      "overflowed. Fix: scale the values, or a smaller `c`"));
    }
    OP_REQUIRES_OK(c, Write(c, &tiles));
  }

 private:
  absl::Status Check(OpKernelContext* c) const {
    static const char* const kNames[] = {
        "feature_splits", "features",         "values",
        "label_splits",   "labels",           "group_label_splits",
        "group_labels",   "group_row_splits", "group_rows",
        "start_splits",   "start_columns",    "start_values",
        "start_biases"};
    TF_RETURN_IF_ERROR(
        CheckLabeledRows(c, 0, kNames, num_features_, num_labels_));
    for (int i = 5; i < 13; ++i) {
      TF_RETURN_IF_ERROR(CheckRank(kNames[i], c->input(i), 1));
    }
    const int64_t rows = c->input(0).NumElements() - 1;
    TF_RETURN_IF_ERROR(
        CheckSplits(kNames[5], c->input(5), c->input(6).NumElements()));
    const int64_t groups = c->input(5).NumElements() - 1;
    TF_RETURN_IF_ERROR(
        CheckSplits(kNames[7], c->input(7), c->input(8).NumElements(), groups));
    TF_RETURN_IF_ERROR(CheckNorms(c->input(0), c->input(2), options_.bias));
    TF_RETURN_IF_ERROR(CheckIds(kNames[6], c->input(6), num_labels_));
    TF_RETURN_IF_ERROR(CheckIds(kNames[8], c->input(8), rows));
    if (HasStart(c)) TF_RETURN_IF_ERROR(CheckStart(c));
    return CheckDistinct(c->input(6), num_labels_);
  }

  // Without weights to begin with, their splits are empty.
  static bool HasStart(OpKernelContext* c) {
    return c->input(9).NumElements() > 0;
  }

  absl::Status CheckStart(OpKernelContext* c) const {
    const int64_t entries = c->input(10).NumElements();
    const int64_t width = c->input(6).NumElements();
    TF_RETURN_IF_ERROR(
        CheckSplits("start_splits", c->input(9), entries, num_features_));
    if (c->input(11).NumElements() != entries ||
        c->input(12).NumElements() != width) {
      return absl::InvalidArgumentError(
          absl::StrCat("`start` must have a value for each of its ", entries,
                       " columns and a bias for each of ", width,
                       " labels. Received: ", c->input(11).NumElements(),
                       " values and ", c->input(12).NumElements(), " biases"));
    }
    TF_RETURN_IF_ERROR(CheckFinite("start_values", c->input(11)));
    TF_RETURN_IF_ERROR(CheckFinite("start_biases", c->input(12)));
    const auto splits = c->input(9).flat<int64_t>();
    const auto columns = c->input(10).flat<int32_t>();
    for (int64_t f = 0; f < num_features_; ++f) {
      for (int64_t n = splits(f); n < splits(f + 1); ++n) {
        const int64_t least = n > splits(f) ? columns(n - 1) + 1 : 0;
        if (columns(n) < least || columns(n) >= width) {
          return absl::InvalidArgumentError(absl::StrCat(
              "`start` must have columns that ascend within a feature, below ",
              width, ". Received: ", columns(n), " of feature ", f));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Write(OpKernelContext* c,
                     std::vector<TileWeights>* tiles) const {
    Tensor *splits, *columns, *weights, *biases;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {num_features_ + 1}, &splits));
    TF_RETURN_IF_ERROR(c->allocate_output(3, c->input(6).shape(), &biases));
    int64_t* at = splits->flat<int64_t>().data();
    float* bias = biases->flat<float>().data();
    std::fill_n(at, num_features_ + 1, 0);
    for (const TileWeights& tile : *tiles) {
      for (const int32_t feature : tile.features) ++at[feature + 1];
      bias = std::copy(tile.biases.begin(), tile.biases.end(), bias);
    }
    for (int64_t f = 0; f < num_features_; ++f) at[f + 1] += at[f];
    TF_RETURN_IF_ERROR(AllocateOutput(c, 1, {at[num_features_]}, &columns));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 2, {at[num_features_]}, &weights));
    Transpose(tiles, num_features_, at, columns->flat<int32_t>().data(),
              weights->flat<float>().data());
    return absl::OkStatus();
  }

  int64_t num_features_ = 0, num_labels_ = 0;
  float threshold_ = 0;
  DualOptions options_;
};

TFXCLASS_CPU("LinearOneVsRest", LinearOneVsRestOp);

}  // namespace
}  // namespace tfxclass
