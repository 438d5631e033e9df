// CPU kernels of LSH tables.
#include "kernels/lsh_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

// Inputs 1 and 2 as queries of `tables`.
absl::Status GetQueries(OpKernelContext* c, LshQueries* queries) {
  const Tensor& values = c->input(1);
  const Tensor& valid = c->input(2);
  TF_RETURN_IF_ERROR(CheckLshQueries(c));
  TF_RETURN_IF_ERROR(CheckFinite("queries", values));
  *queries = {values.flat<float>().data(), valid.flat<bool>().data(),
              values.dim_size(0), values.dim_size(1)};
  return absl::OkStatus();
}

class LshQueryOp : public OpKernel {
 public:
  explicit LshQueryOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    LshQueries queries;
    OP_REQUIRES_OK(c, GetQueries(c, &queries));
    LshLimits limits;
    OP_REQUIRES_OK(c, limits.Read(c));
    LshCandidates found;
    float norm = 0;
    const auto tables = resource->index.ready();
    if (tables != nullptr) {
      OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
      const Tensor& targets = c->input(3);
      OP_REQUIRES_OK(c, CheckIds("targets", targets, tables->count, -1));
      norm = NormOf(*tables);
      const int64_t* t = targets.flat<int64_t>().data();
      const int64_t num_targets = targets.NumElements();
      const ParallelFor pool = PoolOf(c);
      found = LshSearcher(*tables, queries, pool)
                  .Find(t, num_targets, limits.Room(t, num_targets),
                        limits.seed, &resource->marks);
    }
    Tensor* candidates;
    const int64_t size = found.ids.size();
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {size}, &candidates));
    std::copy(found.ids.begin(), found.ids.end(),
              candidates->flat<int64_t>().data());
    OP_REQUIRES_OK(c, ReturnLshFound(c, found, norm));
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
    const Tensor& ids = c->input(5);
    int64_t least_votes;
    OP_REQUIRES_OK(c,
                   ReadInteger(c, "least_votes", 1, INT64_MAX, &least_votes));
    OP_REQUIRES_OK(c, CheckRank("ids", ids, 1));
    Tensor* mask;
    const int64_t num_ids = ids.NumElements();
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {queries.samples, num_ids}, &mask));
    mask->flat<bool>().setConstant(false);
    const auto tables = resource->index.ready();
    if (tables == nullptr) return;
    OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
    OP_REQUIRES_OK(c, CheckIds("ids", ids, tables->count));
    OP_REQUIRES_OK(c, CheckIds("probed", probed, tables->tables.size()));
    const auto numbers = probed.flat<int64_t>();
    const ParallelFor pool = PoolOf(c);
    LshSearcher(*tables, queries, pool)
        .Members({numbers.data(), numbers.data() + numbers.size()}, least_votes,
                 ids.flat<int64_t>().data(), num_ids,
                 mask->flat<bool>().data());
  }
};

TFXCLASS_INDEX_KERNELS("Lsh", LshIndexer);
TFXCLASS_CPU("LshBuild", LshBuildOp<RowsInPlace>);
TFXCLASS_CPU("LshAdvance", LshAdvanceOp<RowsInPlace>);
TFXCLASS_CPU("LshQuery", LshQueryOp);
TFXCLASS_CPU("LshMembers", LshMembersOp);

}  // namespace
}  // namespace tfxclass
