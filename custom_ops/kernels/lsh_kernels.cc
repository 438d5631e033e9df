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
    const Tensor& seed = c->input(6);
    OP_REQUIRES_OK(c, CheckNumbers(c));
    LshCandidates found;
    float norm = 0;
    const auto tables = resource->index.ready();
    if (tables != nullptr) {
      OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
      const Tensor& targets = c->input(3);
      OP_REQUIRES_OK(c, CheckIds("targets", targets, tables->count, -1));
      if (tables->inner_product) norm = std::sqrt(tables->greatest);
      const ParallelFor pool = PoolOf(c);
      found = LshSearcher(*tables, queries, pool)
                  .Find(targets.flat<int64_t>().data(), targets.NumElements(),
                        LshRoom(c, targets.flat<int64_t>().data()),
                        seed.flat<int64_t>()(0), seed.flat<int64_t>()(1));
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
TFXCLASS_CPU("Tfxclass>LshBuild", LshBuildOp<RowsInPlace>);
TFXCLASS_CPU("Tfxclass>LshAdvance", LshAdvanceOp<RowsInPlace>);
TFXCLASS_CPU("Tfxclass>LshQuery", LshQueryOp);
TFXCLASS_CPU("Tfxclass>LshMembers", LshMembersOp);

}  // namespace
}  // namespace tfxclass
