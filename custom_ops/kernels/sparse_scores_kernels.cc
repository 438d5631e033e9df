// CPU kernel of the scores of a linear model with sparse weights.
#include <string>

#include "core/sparse_scores.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

enum Input {
  kIds,
  kValues,
  kPlaces,
  kDense,
  kSplits,
  kColumns,
  kEntries,
  kBiases,
  kGroups,
};

absl::Status CheckLength(const char* name, const Tensor& tensor, int64_t length,
                         const char* meaning) {
  TF_RETURN_IF_ERROR(CheckRank(name, tensor, 1));
  if (tensor.NumElements() == length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must have ", length, " elements, ", meaning,
                   ". Received: shape ", ShapeText(tensor.shape())));
}

class SparseScoresOp : public OpKernel {
 public:
  explicit SparseScoresOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string activation;
    OP_REQUIRES_OK(c, c->GetAttr("num_labels", &num_labels_));
    OP_REQUIRES_OK(c, c->GetAttr("activation", &activation));
    OP_REQUIRES_OK(c, c->GetAttr("group_slope", &group_slope_));
    if (activation == "sigmoid") activation_ = ScoreActivation::kSigmoid;
    if (activation == "softmax") activation_ = ScoreActivation::kSoftmax;
  }

  void Compute(OpKernelContext* c) override {
    SparseModel model;
    OP_REQUIRES_OK(c, CheckSizes(c));
    OP_REQUIRES_OK(c, CheckFeatures(c));
    OP_REQUIRES_OK(c, CheckGroups(c));
    OP_REQUIRES_OK(c, Read(c, &model));
    const Tensor& ids = c->input(kIds);
    const int64_t batch = ids.dim_size(0);
    Tensor* scores;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch, num_labels_}, &scores));
    SparseScorer scorer(model, batch, ids.dim_size(1),
                        ids.flat<int64_t>().data(),
                        c->input(kValues).flat<float>().data());
    OP_REQUIRES(
        c, scorer.Score(PoolOf(c), scores->flat<float>().data()),
        absl::InvalidArgumentError(absl::StrCat(
            "`columns` must be in [0, ", model.width(),
            "). Received: others in the lists of the batch's features")));
  }

 private:
  absl::Status CheckSizes(OpKernelContext* c) const {
    TF_RETURN_IF_ERROR(CheckRank("ids", c->input(kIds), 2));
    if (c->input(kValues).shape() != c->input(kIds).shape()) {
      return absl::InvalidArgumentError(
          absl::StrCat("`values` must have the shape of `ids` ",
                       ShapeText(c->input(kIds).shape()), ". Received: shape ",
                       ShapeText(c->input(kValues).shape())));
    }
    TF_RETURN_IF_ERROR(CheckRank("places", c->input(kPlaces), 1));
    const int64_t features = c->input(kPlaces).NumElements();
    TF_RETURN_IF_ERROR(CheckLength("splits", c->input(kSplits), features + 1,
                                   "one more than `places`"));
    TF_RETURN_IF_ERROR(CheckRank("columns", c->input(kColumns), 1));
    TF_RETURN_IF_ERROR(CheckLength("entries", c->input(kEntries),
                                   c->input(kColumns).NumElements(),
                                   "as many as `columns`"));
    return CheckColumns(c);
  }

  absl::Status CheckColumns(OpKernelContext* c) const {
    const Tensor &dense = c->input(kDense), &biases = c->input(kBiases);
    TF_RETURN_IF_ERROR(CheckRank("biases", biases, 1));
    TF_RETURN_IF_ERROR(CheckRank("dense", dense, 2));
    const int64_t width = biases.NumElements();
    TF_RETURN_IF_ERROR(CheckRank("groups", c->input(kGroups), 1));
    if (HasGroups(c)) {
      TF_RETURN_IF_ERROR(CheckLength("groups", c->input(kGroups), num_labels_,
                                     "one for each label, or none"));
    }
    if (HasGroups(c) ? width < num_labels_ : width != num_labels_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`biases` must have one element for each of the ", num_labels_,
          " labels, then for each group. Received: shape ",
          ShapeText(biases.shape())));
    }
    if (dense.dim_size(1) == width) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("`dense` must have a column for each of the ", width,
                     " biases. Received: shape ", ShapeText(dense.shape())));
  }

  // The features that the batch has: all would take longer than the scores.
  absl::Status CheckFeatures(OpKernelContext* c) const {
    const auto ids = c->input(kIds).flat<int64_t>();
    const auto values = c->input(kValues).flat<float>();
    const auto places = c->input(kPlaces).flat<int32_t>();
    const auto splits = c->input(kSplits).flat<int64_t>();
    const int64_t dense = c->input(kDense).dim_size(0);
    const int64_t entries = c->input(kEntries).NumElements();
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (values(i) == 0.0f) continue;
      const int64_t id = ids(i);
      if (id < 0 || id >= places.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("`ids` must be in [0, ", places.size(),
                         "). Received: ", id, " at position ", i));
      }
      if (places(id) >= dense) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`places` must be below the ", dense,
            " rows of `dense`. Received: ", places(id), " of feature ", id));
      }
      const int64_t begin = splits(id), end = splits(id + 1);
      if (begin < 0 || begin > end || end > entries) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`splits` must rise from 0 to the number of entries, ", entries,
            ". Received: ", begin, ", ", end, " of feature ", id));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroups(OpKernelContext* c) const {
    const auto groups = c->input(kGroups).flat<int32_t>();
    const int64_t num_groups = c->input(kBiases).NumElements() - num_labels_;
    // Below 0 is above all others; written so, it is done eight at a time.
    uint32_t greatest = 0;
    const int32_t* group = groups.data();
    for (int64_t i = 0; i < groups.size(); ++i) {
      greatest = std::max(greatest, static_cast<uint32_t>(group[i]));
    }
    if (groups.size() == 0 || greatest < num_groups) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("`groups` must be in [0, ", num_groups,
                     "). Received: ", static_cast<int32_t>(greatest)));
  }

  absl::Status Read(OpKernelContext* c, SparseModel* model) const {
    TF_RETURN_IF_ERROR(ReadScalar(c, "slope", &model->slope));
    TF_RETURN_IF_ERROR(ReadScalar(c, "intercept", &model->intercept));
    model->group_slope = group_slope_;
    model->activation = activation_;
    model->num_labels = num_labels_;
    model->num_groups = c->input(kBiases).NumElements() - num_labels_;
    model->places = c->input(kPlaces).flat<int32_t>().data();
    model->dense = c->input(kDense).flat<float>().data();
    model->splits = c->input(kSplits).flat<int64_t>().data();
    model->columns = c->input(kColumns).flat<int32_t>().data();
    model->entries = c->input(kEntries).flat<float>().data();
    model->biases = c->input(kBiases).flat<float>().data();
    model->groups =
        HasGroups(c) ? c->input(kGroups).flat<int32_t>().data() : nullptr;
    return absl::OkStatus();
  }

  static bool HasGroups(OpKernelContext* c) {
    return c->input(kGroups).NumElements() > 0;
  }

  int64_t num_labels_ = 0;
  float group_slope_ = 0;
  ScoreActivation activation_ = ScoreActivation::kNone;
};

TFXCLASS_CPU("SparseScores", SparseScoresOp);

}  // namespace
}  // namespace tfxclass
