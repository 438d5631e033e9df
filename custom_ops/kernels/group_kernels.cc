// CPU kernels of the groups of class rows: k-means and PCA hash.
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

// Inputs: index, kernel, step, interval, num_groups, seed.
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

TFXCLASS_INDEX_KERNELS("Cluster", ClusterIndexer);
TFXCLASS_CPU("ClusterBuild", GroupBuildOp<ClusterIndexer>);
TFXCLASS_CPU("ClusterAdvance", GroupAdvanceOp<ClusterIndexer>);
TFXCLASS_CPU("ClusterMembers", GroupMembersOp<ClusterIndexer>);

TFXCLASS_INDEX_KERNELS("PcaHash", PrincipalIndexer);
TFXCLASS_CPU("PcaHashBuild", GroupBuildOp<PrincipalIndexer>);
TFXCLASS_CPU("PcaHashAdvance", GroupAdvanceOp<PrincipalIndexer>);
TFXCLASS_CPU("PcaHashMembers", GroupMembersOp<PrincipalIndexer>);

}  // namespace
}  // namespace tfxclass
