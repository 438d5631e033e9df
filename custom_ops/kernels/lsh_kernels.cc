// CPU kernels of LSH tables.
#include "core/lsh_indexer.h"
#include "core/lsh_query.h"
#include "kernels/index_op.h"
#include "kernels/lsh_options.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

absl::Status GetLshOptions(OpKernelConstruction* c, LshOptions* options) {
  TF_RETURN_IF_ERROR(c->GetAttr("inner_product", &options->inner_product));
  TF_RETURN_IF_ERROR(c->GetAttr("incremental", &options->incremental));
  TF_RETURN_IF_ERROR(c->GetAttr("bucket_size", &options->bucket_size));
  TF_RETURN_IF_ERROR(c->GetAttr("redraw_interval", &options->redraw_interval));
  return GetHashFamily(c, &options->hash);
}

class LshBuildOp : public OpKernel {
 public:
  explicit LshBuildOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetLshOptions(c, &options_));
  }

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(2)));
    LshOptions options = options_;
    options.hash.seed = c->input(2).flat<int64_t>()(0);
    OP_REQUIRES_OK(c, BuildIndex<LshIndexer>(c, options));
  }

 private:
  LshOptions options_;
};

class LshAdvanceOp : public OpKernel {
 public:
  explicit LshAdvanceOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetLshOptions(c, &options_));
  }

  void Compute(OpKernelContext* c) override {
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
    OP_REQUIRES_OK(
        c, AdvanceIndex<LshIndexer>(c, step, sizes[0], sizes[1], options));
  }

 private:
  LshOptions options_;
};

// Inputs 1 and 2 as queries of `tables`.
absl::Status GetQueries(OpKernelContext* c, LshQueries* queries) {
  const Tensor& values = c->input(1);
  const Tensor& valid = c->input(2);
  TF_RETURN_IF_ERROR(CheckRank("queries", values, 3));
  TF_RETURN_IF_ERROR(CheckFinite("queries", values));
  if (valid.dims() != 2 || valid.dim_size(0) != values.dim_size(0) ||
      valid.dim_size(1) != values.dim_size(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`valid` must have the first two dimensions of `queries`, ",
        ShapeText(values.shape()), ". Received: shape ",
        ShapeText(valid.shape())));
  }
  *queries = {values.flat<float>().data(), valid.flat<bool>().data(),
              values.dim_size(0), values.dim_size(1)};
  return absl::OkStatus();
}

absl::Status CheckFits(const LshTables& tables, const Tensor& queries) {
  if (queries.dim_size(2) == tables.dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "The tables are for a kernel of shape (", tables.count, ", ", tables.dim,
      "). Received: queries of shape ", ShapeText(queries.shape())));
}

class LshQueryOp : public OpKernel {
 public:
  explicit LshQueryOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    LshQueries queries;
    OP_REQUIRES_OK(c, GetQueries(c, &queries));
    const Tensor& seed = c->input(6);
    OP_REQUIRES_OK(c, CheckScalar("num_sampled", c->input(4)));
    OP_REQUIRES_OK(c, CheckScalar("max_candidates", c->input(5)));
    OP_REQUIRES(
        c, seed.NumElements() == 2,
        absl::InvalidArgumentError(absl::StrCat(
            "`seed` must have 2 elements. Received: ", seed.NumElements())));
    LshCandidates found;
    float norm = 0;
    const auto tables = resource->index.ready();
    if (tables != nullptr) {
      OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
      const Tensor& targets = c->input(3);
      OP_REQUIRES_OK(c, CheckIds("targets", targets, tables->count, -1));
      if (tables->inner_product) norm = std::sqrt(tables->greatest);
      const ParallelFor pool = PoolOf(c);
      found =
          LshSearcher(*tables, queries, pool)
              .Find(targets.flat<int64_t>().data(), targets.NumElements(),
                    Room(c), seed.flat<int64_t>()(0), seed.flat<int64_t>()(1));
    }
    Return(c, 0, found.ids);
    Return(c, 1, found.probed);
    Tensor *last_fraction, *of_rows;
    OP_REQUIRES_OK(c, c->allocate_output(2, {}, &last_fraction));
    OP_REQUIRES_OK(c, c->allocate_output(3, {}, &of_rows));
    last_fraction->scalar<float>()() = found.last_fraction;
    of_rows->scalar<float>()() = norm;
  }

 private:
  // Candidates that fit beside the distinct targets.
  static int64_t Room(OpKernelContext* c) {
    const auto targets = c->input(3).flat<int64_t>();
    IdSet distinct(targets.size());
    for (int64_t i = 0; i < targets.size(); ++i) {
      if (targets(i) >= 0) distinct.Insert(targets(i));
    }
    return std::min(c->input(4).flat<int64_t>()(0) - distinct.size(),
                    c->input(5).flat<int64_t>()(0));
  }

  static void Return(OpKernelContext* c, int output,
                     const std::vector<int64_t>& values) {
    Tensor* tensor;
    const int64_t size = values.size();
    OP_REQUIRES_OK(c, c->allocate_output(output, {size}, &tensor));
    std::copy(values.begin(), values.end(), tensor->flat<int64_t>().data());
  }
};

class LshMembersOp : public OpKernel {
 public:
  explicit LshMembersOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    LshQueries queries;
    OP_REQUIRES_OK(c, GetQueries(c, &queries));
    const Tensor& probed = c->input(3);
    const Tensor& ids = c->input(4);
    OP_REQUIRES_OK(c, CheckRank("ids", ids, 1));
    Tensor* mask;
    const int64_t num_ids = ids.NumElements();
    OP_REQUIRES_OK(c, c->allocate_output(0, {queries.samples, num_ids}, &mask));
    mask->flat<bool>().setConstant(false);
    const auto tables = resource->index.ready();
    if (tables == nullptr) return;
    OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
    OP_REQUIRES_OK(c, CheckIds("ids", ids, tables->count));
    OP_REQUIRES_OK(c, CheckIds("probed", probed, tables->tables.size()));
    const auto numbers = probed.flat<int64_t>();
    const ParallelFor pool = PoolOf(c);
    LshSearcher(*tables, queries, pool)
        .Members({numbers.data(), numbers.data() + numbers.size()},
                 ids.flat<int64_t>().data(), num_ids,
                 mask->flat<bool>().data());
  }
};

TFXCLASS_INDEX_KERNELS("Tfxclass>Lsh", LshIndexer);
TFXCLASS_CPU("Tfxclass>LshBuild", LshBuildOp);
TFXCLASS_CPU("Tfxclass>LshAdvance", LshAdvanceOp);
TFXCLASS_CPU("Tfxclass>LshQuery", LshQueryOp);
TFXCLASS_CPU("Tfxclass>LshMembers", LshMembersOp);

}  // namespace
}  // namespace tfxclass
