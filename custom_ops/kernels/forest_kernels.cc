// CPU kernels of the hashing forest.
#include "kernels/forest_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

class ForestQueryOp : public OpKernel {
 public:
  explicit ForestQueryOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<ForestIndexer>> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    const Tensor& queries = c->input(2);
    QueryOptions options;
    OP_REQUIRES_OK(c, ReadForestQuery(c, &options));
    OP_REQUIRES_OK(c, CheckFinite("queries", queries));
    options.normalize = normalize_;
    const int64_t neighbors = options.num_neighbors;
    const int64_t batch = queries.dim_size(0);
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, c->allocate_output(0, {batch, neighbors}, &ids));
    OP_REQUIRES_OK(c, c->allocate_output(1, {batch, neighbors}, &scores));
    const auto forest = resource->index.ready();
    if (forest == nullptr) {
      ids->flat<int64_t>().setConstant(-1);
      scores->flat<float>().setZero();
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckForest(*forest, rows, queries));
    const int64_t cost = forest->trees.size() * 2000 + neighbors * 100;
    PoolOf(c)(batch, cost, [&](int64_t begin, int64_t end) {
      ForestSearcher searcher(*forest, rows.flat<float>().data(), options);
      for (int64_t i = begin; i < end; ++i) {
        searcher.Search(queries.flat<float>().data() + i * forest->dim,
                        ids->flat<int64_t>().data() + i * neighbors,
                        scores->flat<float>().data() + i * neighbors);
      }
    });
  }

 private:
  bool normalize_;
};

TFXCLASS_INDEX_KERNELS("Tfxclass>Forest", ForestIndexer);
TFXCLASS_CPU("Tfxclass>ForestBuild", ForestBuildOp<RowsInPlace>);
TFXCLASS_CPU("Tfxclass>ForestAdvance", ForestAdvanceOp<RowsInPlace>);
TFXCLASS_CPU("Tfxclass>ForestQuery", ForestQueryOp);

}  // namespace
}  // namespace tfxclass
