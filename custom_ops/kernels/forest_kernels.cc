// CPU kernels of the hashing forest.
#include "kernels/forest_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class CpuForestQueryOp : public ForestQueryOp {
 public:
  using ForestQueryOp::ForestQueryOp;

 private:
  bool is_on_host() const override { return true; }

  absl::Status FindNothing(OpKernelContext* c, const Found& found) override {
    TF_RETURN_IF_ERROR(CheckFinite("queries", c->input(2)));
    found.ids->flat<int64_t>().setConstant(-1);
    found.scores->flat<float>().setZero();
    return absl::OkStatus();
  }

  absl::Status Find(OpKernelContext* c, IndexResource<ForestIndexer>* resource,
                    const Forest& forest, const Tensor& rows,
                    const QueryOptions& options, const Found& found) override {
    const Tensor& queries = c->input(2);
    TF_RETURN_IF_ERROR(CheckFinite("queries", queries));
    const int64_t neighbors = options.num_neighbors;
    const int64_t cost = forest->trees.size() * 2000 + neighbors * 100;
    PoolOf(c)(queries.dim_size(0), cost, [&](int64_t begin, int64_t end) {
      ForestSearcher searcher(*forest, RowsOf(rows), options, &resource->marks);
      for (int64_t i = begin; i < end; ++i) {
        searcher.Search(queries.flat<float>().data() + i * forest->dim,
                        found.ids->flat<int64_t>().data() + i * neighbors,
                        found.scores->flat<float>().data() + i * neighbors);
      }
    });
    return absl::OkStatus();
  }
};

TFXCLASS_INDEX_KERNELS("Forest", ForestIndexer);
TFXCLASS_CPU("ForestBuild", ForestBuildOp<RowsInPlace>);
TFXCLASS_CPU("ForestAdvance", ForestAdvanceOp<RowsInPlace>);
TFXCLASS_CPU("ForestQuery", CpuForestQueryOp);

}  // namespace
}  // namespace tfxclass
