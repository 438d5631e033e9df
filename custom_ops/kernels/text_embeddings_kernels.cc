// CPU kernel of the training of text embeddings.
#include <cmath>
#include <utility>

#include "core/text_embeddings.h"
#include "kernels/kernel_utils.h"
#include "kernels/labeled_rows.h"
#include "kernels/row_variables.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr double kPi = 3.14159265358979323846;

// A pass over the texts of `order`, in batches. The rates fall to 0 in
// `num_steps` steps as half a wave of the cosine does.
class TrainTextEmbeddingsOp : public OpKernel {
 public:
  explicit TrainTextEmbeddingsOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("batch_size", &batch_size_));
    OP_REQUIRES_OK(c, c->GetAttr("num_sampled", &options_.num_sampled));
    OP_REQUIRES_OK(c, c->GetAttr("dropout", &options_.dropout));
    OP_REQUIRES(
        c, options_.dropout >= 0 && options_.dropout < 1,
        absl::InvalidArgumentError(absl::StrCat(
            "`dropout` must be in [0, 1). Received: ", options_.dropout)));
    for (const auto& [name, to] :
         {std::pair{"scale", &options_.scale},
          std::pair{"term_rate", &options_.term_rate},
          std::pair{"label_rate", &options_.label_rate},
          std::pair{"term_offset", &options_.term_offset},
          std::pair{"label_offset", &options_.label_offset}}) {
      OP_REQUIRES_OK(c, c->GetAttr(name, to));
      OP_REQUIRES(c, *to > 0 && std::isfinite(*to),
                  absl::InvalidArgumentError(absl::StrCat(
                      "`", name, "` must be positive. Received: ", *to)));
    }
  }

  void Compute(OpKernelContext* c) override {
    int64_t first, steps, seed;
    constexpr int64_t kMost = int64_t{1} << 53;
    OP_REQUIRES_OK(c, ReadInteger(c, "first_step", 0, kMost, &first));
    OP_REQUIRES_OK(c, ReadInteger(c, "num_steps", 1, kMost, &steps));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    RowVariables variables;
    OP_REQUIRES_OK(c, variables.Lock(c, 0, 5));
    OP_REQUIRES_OK(c, variables.CheckInitialized());
    EmbeddingOptions options = options_;
    options.seed = seed;
    OP_REQUIRES_OK(c, CheckVariables(variables, &options));
    OP_REQUIRES_OK(c, CheckTexts(c, options));
    OP_REQUIRES_OK(c, variables.MakeWritable(c, CopyBytes));
    double* const squares = variables.data<double>(4);
    EmbeddingTable terms = {variables.data<float>(0), variables.data<float>(1),
                            squares[0], squares[1]};
    EmbeddingTable labels = {variables.data<float>(2), variables.data<float>(3),
                             squares[2], squares[3]};
    const LabeledTexts texts = {
        c->input(5).flat<int64_t>().data(), c->input(6).flat<int32_t>().data(),
        c->input(7).flat<float>().data(), c->input(8).flat<int64_t>().data(),
        c->input(9).flat<int64_t>().data()};
    EmbeddingTrainer trainer(options, texts, &terms, &labels);
    const int64_t* const order = c->input(10).flat<int64_t>().data();
    const int64_t count = c->input(10).NumElements();
    const ParallelFor parallel = PoolOf(c);
    double loss = 0;
    for (int64_t begin = 0; begin < count; begin += batch_size_, ++first) {
      const double done = std::min(1.0, static_cast<double>(first) / steps);
      loss += trainer.Step(order + begin, std::min(batch_size_, count - begin),
                           (1 + std::cos(kPi * done)) / 2, first, parallel);
    }
    squares[0] = terms.squares, squares[1] = terms.steps;
    squares[2] = labels.squares, squares[3] = labels.steps;
    Tensor* mean;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {}, &mean));
    mean->scalar<float>()() = count == 0 ? 0 : loss / count;
  }

 private:
  static absl::Status CheckVariables(const RowVariables& variables,
                                     EmbeddingOptions* options) {
    const Tensor &terms = variables[0], &labels = variables[2];
    for (int i = 0; i < 5; ++i) {
      const auto wanted = i == 4 ? tensorflow::DT_DOUBLE : tensorflow::DT_FLOAT;
      if (variables[i].dtype() != wanted) {
        return absl::InvalidArgumentError(
            absl::StrCat("Variables must be float, and `squares` double. "
                         "Received: ",
                         tensorflow::DataTypeString(variables[i].dtype())));
      }
    }
    TF_RETURN_IF_ERROR(CheckRank("terms", terms, 2));
    TF_RETURN_IF_ERROR(CheckRank("labels", labels, 2));
    if (terms.dim_size(1) != labels.dim_size(1) || terms.dim_size(1) == 0 ||
        labels.dim_size(0) == 0 ||
        variables[1].NumElements() != terms.dim_size(0) ||
        variables[3].NumElements() != labels.dim_size(0) ||
        variables[4].NumElements() != 4) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`terms` and `labels` must have vectors of one size, a number of "
          "`term_sums` or `label_sums` for each, and `squares` 4 numbers. "
          "Received: shapes ",
          ShapeText(terms.shape()), ", ", ShapeText(variables[1].shape()), ", ",
          ShapeText(labels.shape()), ", ", ShapeText(variables[3].shape()),
          ", ", ShapeText(variables[4].shape())));
    }
    options->num_terms = terms.dim_size(0);
    options->num_labels = labels.dim_size(0);
    options->dim = terms.dim_size(1);
    return absl::OkStatus();
  }

  static absl::Status CheckTexts(OpKernelContext* c,
                                 const EmbeddingOptions& options) {
    static const char* const kNames[] = {"text_splits", "text_terms",
                                         "text_values", "text_label_splits",
                                         "text_labels"};
    TF_RETURN_IF_ERROR(
        CheckLabeledRows(c, 5, kNames, options.num_terms, options.num_labels));
    TF_RETURN_IF_ERROR(CheckRank("order", c->input(10), 1));
    const int64_t rows = c->input(5).NumElements() - 1;
    TF_RETURN_IF_ERROR(CheckIds("order", c->input(10), rows));
    const auto order = c->input(10).flat<int64_t>();
    const auto splits = c->input(8).flat<int64_t>();
    for (int64_t i = 0; i < order.size(); ++i) {
      if (splits(order(i)) < splits(order(i) + 1)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("Texts of `order` must have a label. Received: text ",
                       order(i), " without one"));
    }
    return absl::OkStatus();
  }

  int64_t batch_size_ = 1;
  EmbeddingOptions options_;
};

TFXCLASS_CPU("TrainTextEmbeddings", TrainTextEmbeddingsOp);

}  // namespace
}  // namespace tfxclass
