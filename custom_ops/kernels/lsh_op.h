// What the ops of LSH tables share, wherever the rows lie.
#ifndef TFXCLASS_KERNELS_LSH_OP_H_
#define TFXCLASS_KERNELS_LSH_OP_H_

#include <algorithm>

#include "core/id_set.h"
#include "core/lsh_indexer.h"
#include "core/lsh_query.h"
#include "kernels/index_op.h"
#include "kernels/lsh_options.h"

namespace tfxclass {

inline absl::Status GetLshOptions(tensorflow::OpKernelConstruction* c,
                                  LshOptions* options) {
  TF_RETURN_IF_ERROR(c->GetAttr("inner_product", &options->inner_product));
  TF_RETURN_IF_ERROR(c->GetAttr("incremental", &options->incremental));
  TF_RETURN_IF_ERROR(c->GetAttr("bucket_size", &options->bucket_size));
  TF_RETURN_IF_ERROR(c->GetAttr("redraw_interval", &options->redraw_interval));
  return GetHashFamily(c, &options->hash);
}

template <class RowReader>
class LshBuildOp : public tensorflow::OpKernel {
 public:
  explicit LshBuildOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetLshOptions(c, &options_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(2)));
    LshOptions options = options_;
    options.hash.seed = c->input(2).flat<int64_t>()(0);
    OP_REQUIRES_OK(c, (BuildIndex<LshIndexer, RowReader>(c, options)));
  }

 private:
  LshOptions options_;
};

template <class RowReader>
class LshAdvanceOp : public tensorflow::OpKernel {
 public:
  explicit LshAdvanceOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetLshOptions(c, &options_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(2)));
    LshOptions options = options_;
    options.hash.seed = c->input(2).flat<int64_t>()(0);
    OP_REQUIRES_OK(c, CheckScalar("step", c->input(3)));
    const int64_t step = c->input(3).flat<int64_t>()(0);
    int64_t sizes[2];
    OP_REQUIRES_OK(c, PositiveScalars(c, 4, {"interval", "lag"}, sizes));
    OP_REQUIRES(c, sizes[1] <= sizes[0],
                absl::InvalidArgumentError(absl::StrCat(
                    "`lag` must be at most `interval`. Received: ", sizes[1],
                    " and ", sizes[0])));
    OP_REQUIRES_OK(c, (AdvanceIndex<LshIndexer, RowReader>(c, step, sizes[0],
                                                           sizes[1], options)));
  }

 private:
  LshOptions options_;
};

// Inputs 1 and 2 of a query: queries [samples, per_sample, dim], valid.
inline absl::Status CheckLshQueries(tensorflow::OpKernelContext* c) {
  const tensorflow::Tensor &values = c->input(1), &valid = c->input(2);
  TF_RETURN_IF_ERROR(CheckRank("queries", values, 3));
  if (valid.dims() != 2 || valid.dim_size(0) != values.dim_size(0) ||
      valid.dim_size(1) != values.dim_size(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`valid` must have the first two dimensions of `queries`, ",
        ShapeText(values.shape()), ". Received: shape ",
        ShapeText(valid.shape())));
  }
  return absl::OkStatus();
}

inline absl::Status CheckFits(const LshTables& tables,
                              const tensorflow::Tensor& queries) {
  if (queries.dim_size(2) == tables.dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "The tables are for a kernel of shape (", tables.count, ", ", tables.dim,
      "). Received: queries of shape ", ShapeText(queries.shape())));
}

// Inputs 4 to 6: num_sampled, max_candidates, seed.
inline absl::Status CheckNumbers(tensorflow::OpKernelContext* c) {
  TF_RETURN_IF_ERROR(CheckScalar("num_sampled", c->input(4)));
  TF_RETURN_IF_ERROR(CheckScalar("max_candidates", c->input(5)));
  if (c->input(6).NumElements() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "`seed` must have 2 elements. Received: ", c->input(6).NumElements()));
}

// Candidates that fit beside the distinct targets, input 3, whose data on the
// host is given.
inline int64_t LshRoom(tensorflow::OpKernelContext* c, const int64_t* targets) {
  const int64_t count = c->input(3).NumElements();
  IdSet distinct(count);
  for (int64_t i = 0; i < count; ++i) {
    if (targets[i] >= 0) distinct.Insert(targets[i]);
  }
  return std::min(c->input(4).flat<int64_t>()(0) - distinct.size(),
                  c->input(5).flat<int64_t>()(0));
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_OP_H_
