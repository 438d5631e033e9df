// CPU kernels of the hashing forest.
#include "core/forest_indexer.h"
#include "core/forest_query.h"
#include "kernels/index_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

class ForestBuildOp : public OpKernel {
 public:
  explicit ForestBuildOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    int64_t sizes[2];
    OP_REQUIRES_OK(c, PositiveScalars(c, 2, {"num_trees", "leaf_size"}, sizes));
    ForestOptions options;
    options.num_trees = sizes[0];
    options.leaf_size = sizes[1];
    options.seed = c->input(4).flat<int64_t>()(0);
    OP_REQUIRES_OK(c, BuildIndex<ForestIndexer>(c, options));
  }
};

class ForestAdvanceOp : public OpKernel {
 public:
  explicit ForestAdvanceOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    int64_t sizes[3];
    OP_REQUIRES_OK(c, PositiveScalars(
                          c, 3, {"interval", "num_trees", "leaf_size"}, sizes));
    ForestOptions options;
    options.num_trees = sizes[1];
    options.leaf_size = sizes[2];
    const int64_t step = c->input(2).flat<int64_t>()(0);
    // Another forest each time, the same for the same step.
    options.seed = c->input(6).flat<int64_t>()(0) ^ (step * 0x9E3779B97F4A7C15);
    OP_REQUIRES_OK(
        c, AdvanceIndex<ForestIndexer>(c, step, sizes[0], sizes[0], options));
  }
};

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
    OP_REQUIRES_OK(c, CheckRank("queries", queries, 2));
    OP_REQUIRES_OK(c, CheckFinite("queries", queries));
    int64_t neighbors;
    OP_REQUIRES_OK(c, PositiveScalars(c, 3, {"num_neighbors"}, &neighbors));
    QueryOptions options;
    options.num_neighbors = neighbors;
    options.bucket = c->input(4).flat<int64_t>()(0);
    options.num_candidates = c->input(5).flat<int64_t>()(0);
    options.normalize = normalize_;
    OP_REQUIRES(c, options.bucket >= 0 && options.num_candidates >= 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "`bucket` and `num_candidates` must be >= 0. Received: ",
                    options.bucket, " and ", options.num_candidates)));
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
    OP_REQUIRES_OK(c, CheckKernel(ForestIndexer::kName, rows));
    OP_REQUIRES(c,
                rows.dim_size(0) == forest->count &&
                    rows.dim_size(1) == forest->dim &&
                    queries.dim_size(1) == forest->dim,
                absl::InvalidArgumentError(absl::StrCat(
                    "The forest is for a kernel of shape (", forest->count,
                    ", ", forest->dim, "). Received: kernel of shape ",
                    ShapeText(rows.shape()), ", queries of shape ",
                    ShapeText(queries.shape()))));
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
TFXCLASS_CPU("Tfxclass>ForestBuild", ForestBuildOp);
TFXCLASS_CPU("Tfxclass>ForestAdvance", ForestAdvanceOp);
TFXCLASS_CPU("Tfxclass>ForestQuery", ForestQueryOp);

}  // namespace
}  // namespace tfxclass
