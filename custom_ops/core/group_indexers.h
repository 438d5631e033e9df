// How groups of rows are refreshed and saved: the Indexers of k-means clusters
// and of principal groups, and their bytes.
#ifndef TFXCLASS_CORE_GROUP_INDEXERS_H_
#define TFXCLASS_CORE_GROUP_INDEXERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/cluster_builder.h"
#include "core/principal_axes.h"
#include "core/refreshing.h"
#include "core/touched_rows.h"

namespace tfxclass {

struct GroupOptions {
  int64_t num_groups = 1;  // bits for principal groups
  bool normalize = false;  // rows as cosines see them
  uint64_t seed = 0;
};

struct GroupIndex {
  int64_t dim = 0;
  RowGroups groups;
};

// What both Indexers do alike. Groups are new each time: which rows were
// touched does not matter. The tag begins their bytes. Rows are normalized
// where directions alone count, and where the options say so.
template <int64_t kTag, bool kDirections>
struct GroupIndexer {
  using Index = GroupIndex;
  using Options = GroupOptions;
  struct Marks {};  // Its queries need none.

  struct Source {
    PaddedRows rows;
    GroupOptions options;
  };

  static bool Take(const ClassRows& kernel, const Options& options,
                   const std::shared_ptr<const Index>& /*latest*/,
                   const TouchedRows& /*touched*/, const ParallelFor& parallel,
                   Source* source) {
    source->options = options;
    return CopyRows(kernel, nullptr, kernel.count,
                    kDirections || options.normalize, parallel, &source->rows);
  }

  static int64_t NumRows(const Index& index) { return index.groups.count(); }

  static std::string Write(const Index& index) {
    ByteWriter out;
    out.Put(kTag);
    out.Put(index.dim);
    out.Put(index.groups.num_groups());
    out.PutAll(index.groups.group_of);
    return out.Take();
  }

  // False if the bytes are no groups.
  static bool Read(const char* data, size_t size, Index* index) {
    ByteReader in(data, size);
    RowGroups& groups = index->groups;
    int64_t tag, num_groups;
    if (!in.Get(&tag) || tag != kTag || !in.Get(&index->dim) ||
        index->dim < 1 || !in.Get(&num_groups) ||
        !in.GetAll(&groups.group_of) || in.left() != 0 || num_groups < 1 ||
        num_groups > groups.count()) {
      return false;
    }
    for (const int32_t group : groups.group_of) {
      if (group < 0 || group >= num_groups) return false;
    }
    groups.Sort(num_groups, SerialFor);
    return true;
  }
};

struct ClusterIndexer : GroupIndexer<1, /*kDirections=*/true> {
  static constexpr char kName[] = "cluster index";
  static constexpr int64_t kMostGroups = INT32_MAX;

  static Index Build(Source* source, const ParallelFor& parallel) {
    const GroupOptions& options = source->options;
    return {source->rows.dim, ClusterBuilder(source->rows, options.num_groups,
                                             options.seed, parallel)
                                  .Build()};
  }
};

struct PrincipalIndexer : GroupIndexer<2, /*kDirections=*/false> {
  static constexpr char kName[] = "PCA hash";
  static constexpr int64_t kMostGroups = 30;  // bits of a code

  static Index Build(Source* source, const ParallelFor& parallel) {
    const GroupOptions& options = source->options;
    return {source->rows.dim, PrincipalGroups(source->rows, options.num_groups,
                                              options.seed, parallel)};
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_GROUP_INDEXERS_H_
