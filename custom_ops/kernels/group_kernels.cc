// CPU kernels of the groups of class rows: cluster index and PCA hash.
#include "core/cluster_query.h"
#include "core/group_indexers.h"
#include "kernels/index_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

absl::Status CheckScalar(const char* name, const Tensor& tensor) {
  if (tensor.NumElements() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be a scalar. Received: shape ",
                   ShapeText(tensor.shape())));
}

template <typename Indexer>
absl::Status CheckNumGroups(int64_t num_groups) {
  if (num_groups <= Indexer::kMostGroups) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`num_groups` of a ", Indexer::kName, " must be at most ",
                   Indexer::kMostGroups, ". Received: ", num_groups));
}

// Inputs: index, kernel, num_groups, seed.
template <typename Indexer>
class GroupBuildOp : public OpKernel {
 public:
  explicit GroupBuildOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &options_.normalize));
  }

  void Compute(OpKernelContext* c) override {
    GroupOptions options = options_;
    OP_REQUIRES_OK(c,
                   PositiveScalars(c, 2, {"num_groups"}, &options.num_groups));
    OP_REQUIRES_OK(c, CheckNumGroups<Indexer>(options.num_groups));
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(3)));
    options.seed = c->input(3).flat<int64_t>()(0);
    OP_REQUIRES_OK(c, (BuildIndex<Indexer, RowsInPlace>(c, options)));
  }

 private:
  GroupOptions options_;
};

// Inputs: index, kernel, step, interval, num_groups, rebuild, seed.
template <typename Indexer>
class GroupAdvanceOp : public OpKernel {
 public:
  explicit GroupAdvanceOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &options_.normalize));
  }

  void Compute(OpKernelContext* c) override {
    GroupOptions options = options_;
    int64_t sizes[2];
    OP_REQUIRES_OK(c, PositiveScalars(c, 3, {"interval", "num_groups"}, sizes));
    OP_REQUIRES_OK(c, CheckNumGroups<Indexer>(sizes[1]));
    OP_REQUIRES_OK(c, CheckScalar("step", c->input(2)));
    OP_REQUIRES_OK(c, CheckScalar("rebuild", c->input(5)));
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(6)));
    options.num_groups = sizes[1];
    options.rebuild = c->input(5).flat<bool>()(0);
    const int64_t step = c->input(2).flat<int64_t>()(0);
    // Other groups each time, the same for the same step.
    options.seed = c->input(6).flat<int64_t>()(0) ^ (step * 0x9E3779B97F4A7C15);
    OP_REQUIRES_OK(c, (AdvanceIndex<Indexer, RowsInPlace>(c, step, sizes[0],
                                                          sizes[0], options)));
  }

 private:
  GroupOptions options_;
};

// Inputs: index, targets, limit, seed. Output: ids.
template <typename Indexer>
class GroupMembersOp : public OpKernel {
 public:
  explicit GroupMembersOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<Indexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    const Tensor& targets = c->input(1);
    const Tensor& seed = c->input(3);
    int64_t limit;
    OP_REQUIRES_OK(c, PositiveScalars(c, 2, {"limit"}, &limit));
    OP_REQUIRES(
        c, seed.NumElements() == 2,
        absl::InvalidArgumentError(absl::StrCat(
            "`seed` must have 2 elements. Received: ", seed.NumElements())));
    std::vector<int64_t> members;
    const auto index = resource->index.ready();
    if (index != nullptr) {
      const RowGroups& groups = index->groups;
      OP_REQUIRES_OK(c, CheckIds("targets", targets, groups.count(), -1));
      Philox random(seed.flat<int64_t>()(0), seed.flat<int64_t>()(1));
      members = MembersOfGroups(groups, targets.flat<int64_t>().data(),
                                targets.NumElements(), limit, &random);
    }
    Tensor* ids;
    const int64_t count = members.size();
    OP_REQUIRES_OK(c, c->allocate_output(0, {count}, &ids));
    std::copy(members.begin(), members.end(), ids->flat<int64_t>().data());
  }
};

// Inputs: index, kernel, queries, num_neighbors, num_probes. Outputs: ids,
// scores.
class ClusterQueryOp : public OpKernel {
 public:
  explicit ClusterQueryOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<ClusterIndexer>> resource;
    RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    const Tensor& queries = c->input(2);
    OP_REQUIRES_OK(c, CheckRank("queries", queries, 2));
    OP_REQUIRES_OK(c, CheckFinite("queries", queries));
    int64_t sizes[2];
    OP_REQUIRES_OK(
        c, PositiveScalars(c, 3, {"num_neighbors", "num_probes"}, sizes));
    const int64_t batch = queries.dim_size(0);
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, c->allocate_output(0, {batch, sizes[0]}, &ids));
    OP_REQUIRES_OK(c, c->allocate_output(1, {batch, sizes[0]}, &scores));
    const auto index = resource->index.ready();
    if (index == nullptr) {
      ids->flat<int64_t>().setConstant(-1);
      scores->flat<float>().setZero();
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckKernel(ClusterIndexer::kName, rows));
    OP_REQUIRES(c,
                rows.dim_size(0) == index->groups.count() &&
                    rows.dim_size(1) == index->dim &&
                    queries.dim_size(1) == index->dim,
                absl::InvalidArgumentError(absl::StrCat(
                    "The cluster index is for a kernel of shape (",
                    index->groups.count(), ", ", index->dim,
                    "). Received: kernel of shape ", ShapeText(rows.shape()),
                    ", queries of shape ", ShapeText(queries.shape()))));
    const int64_t num_probes = std::min(sizes[1], index->centres.count);
    const ClusterQueryOptions options{sizes[0], num_probes, normalize_};
    Search(c, *index, rows, queries, options, ids, scores);
  }

 private:
  // Blocks of a fixed size: the same products on any threads.
  static void Search(OpKernelContext* c, const ClusterIndex& index,
                     const Tensor& rows, const Tensor& queries,
                     const ClusterQueryOptions& options, Tensor* ids,
                     Tensor* scores) {
    constexpr int64_t kBlock = ClusterSearcher::kBlock;
    const int64_t batch = queries.dim_size(0);
    const int64_t scored =
        options.num_probes * (index.groups.count() / index.centres.count + 1);
    const int64_t cost =
        ProductCost(kBlock * index.centres.count, index.centres.padded) +
        kBlock * scored * 100;
    PoolOf(c)(
        (batch + kBlock - 1) / kBlock, cost, [&](int64_t begin, int64_t end) {
          ClusterSearcher searcher(index, rows.flat<float>().data(), options);
          for (int64_t b = begin; b < end; ++b) {
            const int64_t first = b * kBlock;
            searcher.Search(
                queries.flat<float>().data() + first * index.dim,
                std::min(kBlock, batch - first),
                ids->flat<int64_t>().data() + first * options.num_neighbors,
                scores->flat<float>().data() + first * options.num_neighbors);
          }
        });
  }

  bool normalize_;
};

TFXCLASS_INDEX_KERNELS("Tfxclass>Cluster", ClusterIndexer);
TFXCLASS_CPU("Tfxclass>ClusterBuild", GroupBuildOp<ClusterIndexer>);
TFXCLASS_CPU("Tfxclass>ClusterAdvance", GroupAdvanceOp<ClusterIndexer>);
TFXCLASS_CPU("Tfxclass>ClusterMembers", GroupMembersOp<ClusterIndexer>);
TFXCLASS_CPU("Tfxclass>ClusterQuery", ClusterQueryOp);

TFXCLASS_INDEX_KERNELS("Tfxclass>PcaHash", PrincipalIndexer);
TFXCLASS_CPU("Tfxclass>PcaHashBuild", GroupBuildOp<PrincipalIndexer>);
TFXCLASS_CPU("Tfxclass>PcaHashAdvance", GroupAdvanceOp<PrincipalIndexer>);
TFXCLASS_CPU("Tfxclass>PcaHashMembers", GroupMembersOp<PrincipalIndexer>);

}  // namespace
}  // namespace tfxclass
