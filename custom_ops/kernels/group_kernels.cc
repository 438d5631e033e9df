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
    int64_t seed;
    OP_REQUIRES_OK(c, PositiveScalars(c, {"num_groups"}, &options.num_groups));
    OP_REQUIRES_OK(c, CheckNumGroups<Indexer>(options.num_groups));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    options.seed = seed;
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
    int64_t step, interval, seed;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    OP_REQUIRES_OK(c, PositiveScalars(c, {"interval"}, &interval));
    OP_REQUIRES_OK(c, PositiveScalars(c, {"num_groups"}, &options.num_groups));
    OP_REQUIRES_OK(c, CheckNumGroups<Indexer>(options.num_groups));
    OP_REQUIRES_OK(c, ReadScalar(c, "rebuild", &options.rebuild));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    options.seed = SeedOfStep(seed, step);
    OP_REQUIRES_OK(c, (AdvanceIndex<Indexer, RowsInPlace>(
                          c, {step, interval, interval}, options)));
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
    int64_t limit, seed, stream;
    OP_REQUIRES_OK(c, PositiveScalars(c, {"limit"}, &limit));
    OP_REQUIRES_OK(c, ReadSeed(c, &seed, &stream));
    std::vector<int64_t> members;
    const auto index = resource->index.ready();
    if (index != nullptr) {
      const RowGroups& groups = index->groups;
      OP_REQUIRES_OK(c, CheckIds("targets", targets, groups.count(), -1));
      Philox random(seed, stream);
      members = MembersOfGroups(groups, targets.flat<int64_t>().data(),
                                targets.NumElements(), limit, &random);
    }
    Tensor* ids;
    const int64_t count = members.size();
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {count}, &ids));
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
    OP_REQUIRES_OK(c,
                   PositiveScalars(c, {"num_neighbors", "num_probes"}, sizes));
    const int64_t batch = queries.dim_size(0);
    Tensor *ids, *scores;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch, sizes[0]}, &ids));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {batch, sizes[0]}, &scores));
    const auto index = resource->index.ready();
    if (index == nullptr) {
      ids->flat<int64_t>().setConstant(-1);
      scores->flat<float>().setZero();
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(
        c, CheckKernel(ClusterIndexer::kName, rows, /*may_be_half=*/true));
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
          ClusterSearcher searcher(index, RowsOf(rows), options);
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

TFXCLASS_INDEX_KERNELS("Cluster", ClusterIndexer);
TFXCLASS_CPU("ClusterBuild", GroupBuildOp<ClusterIndexer>);
TFXCLASS_CPU("ClusterAdvance", GroupAdvanceOp<ClusterIndexer>);
TFXCLASS_CPU("ClusterMembers", GroupMembersOp<ClusterIndexer>);
TFXCLASS_CPU("ClusterQuery", ClusterQueryOp);

TFXCLASS_INDEX_KERNELS("PcaHash", PrincipalIndexer);
TFXCLASS_CPU("PcaHashBuild", GroupBuildOp<PrincipalIndexer>);
TFXCLASS_CPU("PcaHashAdvance", GroupAdvanceOp<PrincipalIndexer>);
TFXCLASS_CPU("PcaHashMembers", GroupMembersOp<PrincipalIndexer>);

}  // namespace
}  // namespace tfxclass
