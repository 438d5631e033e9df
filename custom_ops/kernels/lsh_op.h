// What the ops of LSH tables share, wherever the rows lie.
#ifndef TFXCLASS_KERNELS_LSH_OP_H_
#define TFXCLASS_KERNELS_LSH_OP_H_

#include <algorithm>
#include <cmath>

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

// Overloads that of index_op.h.
inline absl::Status CheckOptions(const LshOptions& options, int64_t dim) {
  return CheckDrawn(options.hash, dim + options.inner_product);
}

template <class RowReader>
class LshBuildOp : public tensorflow::OpKernel {
 public:
  explicit LshBuildOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetLshOptions(c, &options_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    LshOptions options = options_;
    int64_t seed;
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    options.hash.seed = seed;
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
    LshOptions options = options_;
    RefreshSteps steps;
    int64_t seed;
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    OP_REQUIRES_OK(c, ReadRefreshSteps(c, &steps));
    options.hash.seed = seed;
    OP_REQUIRES_OK(c, (AdvanceIndex<LshIndexer, RowReader>(c, steps, options)));
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

// How many candidates a query may give, and what draws them.
struct LshLimits {
  int64_t num_sampled, max_candidates, seed;

  absl::Status Read(tensorflow::OpKernelContext* c) {
    TF_RETURN_IF_ERROR(
        ReadInteger(c, "num_sampled", 0, INT64_MAX, &num_sampled));
    TF_RETURN_IF_ERROR(
        ReadInteger(c, "max_candidates", 0, INT64_MAX, &max_candidates));
    int64_t stream;
    TF_RETURN_IF_ERROR(ReadSeed(c, &seed, &stream));
    seed ^= stream;
    return absl::OkStatus();
  }

  // Candidates that fit beside the distinct targets.
  int64_t Room(const int64_t* targets, int64_t count) const {
    IdSet distinct(count);
    for (int64_t i = 0; i < count; ++i) {
      if (targets[i] >= 0) distinct.Insert(targets[i]);
    }
    const int64_t left = std::max<int64_t>(num_sampled - distinct.size(), 0);
    return std::min(left, max_candidates);
  }
};

// Outputs 1 to 5 of a query, scalars but for the tables, in host memory.
inline absl::Status ReturnLshFound(tensorflow::OpKernelContext* c,
                                   const LshCandidates& found, float norm) {
  tensorflow::Tensor *probed, *votes, *fraction, *pool, *of_rows;
  const int64_t num_probed = found.probed.size();
  TF_RETURN_IF_ERROR(AllocateOutput(c, 1, {num_probed}, &probed));
  TF_RETURN_IF_ERROR(AllocateOutput(c, 2, {}, &votes));
  TF_RETURN_IF_ERROR(AllocateOutput(c, 3, {}, &fraction));
  TF_RETURN_IF_ERROR(AllocateOutput(c, 4, {}, &pool));
  TF_RETURN_IF_ERROR(AllocateOutput(c, 5, {}, &of_rows));
  std::copy(found.probed.begin(), found.probed.end(),
            probed->flat<int64_t>().data());
  votes->scalar<int64_t>()() = found.least_votes;
  fraction->scalar<float>()() = found.last_fraction;
  pool->scalar<int64_t>()() = found.pool;
  of_rows->scalar<float>()() = norm;
  return absl::OkStatus();
}

// Norm of the rows with their extra coordinate, 0 where they have none.
inline float NormOf(const LshTables& tables) {
  return tables.inner_product ? std::sqrt(tables.greatest) : 0.0f;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_OP_H_
