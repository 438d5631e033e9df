// How groups of rows are refreshed and saved: the Indexers of cluster indexes
// and of principal groups, and their bytes.
#ifndef TFXCLASS_CORE_GROUP_INDEXERS_H_
#define TFXCLASS_CORE_GROUP_INDEXERS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/cluster_builder.h"
#include "core/cluster_index.h"
#include "core/principal_axes.h"
#include "core/refreshing.h"
#include "core/touched_rows.h"

namespace tfxclass {

struct GroupOptions {
  int64_t num_groups = 1;  // bits for principal groups
  bool normalize = false;  // rows as cosines see them
  bool rebuild = true;     // anew, not only the touched rows
  uint64_t seed = 0;
};

inline void WriteGroups(const RowGroups& groups, ByteWriter* out) {
  out->Put(groups.num_groups());
  out->PutAll(groups.group_of);
}

// False if the bytes are no groups.
inline bool ReadGroups(ByteReader* in, RowGroups* groups) {
  int64_t num_groups;
  if (!in->Get(&num_groups) || !in->GetAll(&groups->group_of) ||
      num_groups < 1 || num_groups > groups->count()) {
    return false;
  }
  for (const int32_t group : groups->group_of) {
    if (group < 0 || group >= num_groups) return false;
  }
  groups->Sort(num_groups, SerialFor);
  return true;
}

struct ClusterIndexer {
  using Index = ClusterIndex;
  using Options = GroupOptions;
  struct Marks {};  // Its queries need none.
  static constexpr char kName[] = "cluster index";
  static constexpr int64_t kMostGroups = INT32_MAX;

  struct Source {
    PaddedRows rows;   // all
    PaddedRows moved;  // the touched ones
    std::vector<int64_t> touched;
    std::shared_ptr<const Index> latest;  // null: build anew
    GroupOptions options;
  };

  static bool Take(const ClassRows& kernel, const Options& options,
                   const std::shared_ptr<const Index>& latest,
                   const TouchedRows& touched, const ParallelFor& parallel,
                   Source* source) {
    source->options = options;
    const bool has_latest = latest != nullptr &&
                            latest->groups.count() == kernel.count &&
                            latest->dim == kernel.dim;
    source->latest = has_latest && !options.rebuild ? latest : nullptr;
    if (source->latest == nullptr) {
      return CopyRows(kernel, nullptr, kernel.count, /*normalize=*/true,
                      parallel, &source->rows);
    }
    source->touched = touched.Ids(kernel.count);
    return CopyRows(kernel, source->touched.data(), source->touched.size(),
                    /*normalize=*/true, parallel, &source->moved);
  }

  static Index Build(Source* source, const ParallelFor& parallel) {
    if (source->latest == nullptr) {
      return ClusterBuilder(source->rows, source->options.num_groups,
                            source->options.seed, parallel)
          .Build();
    }
    const auto latest = std::move(source->latest);
    return MoveRows(*latest, source->touched.data(), source->moved, parallel);
  }

  static int64_t NumRows(const Index& index) { return index.groups.count(); }

  static std::string Write(const Index& index) {
    ByteWriter out;
    out.Put(index.dim);
    out.PutAll(index.centres.values);
    out.PutAll(index.reach);
    out.PutAll(index.near);
    WriteGroups(index.groups, &out);
    return out.Take();
  }

  static bool Read(const char* data, size_t size, Index* index) {
    ByteReader in(data, size);
    if (!in.Get(&index->dim) || index->dim < 1 || index->dim > INT32_MAX ||
        !in.GetAll(&index->centres.values) || !in.GetAll(&index->reach) ||
        !in.GetAll(&index->near) || !ReadGroups(&in, &index->groups)) {
      return false;
    }
    const int64_t count = index->groups.num_groups();
    index->centres.count = count;
    index->centres.padded = PaddedDim(index->dim);
    index->num_near = index->near.size() / count;
    const bool in_range = std::all_of(
        index->near.begin(), index->near.end(),
        [count](int32_t centre) { return centre >= 0 && centre < count; });
    return in.left() == 0 && in_range &&
           static_cast<int64_t>(index->reach.size()) == count &&
           static_cast<int64_t>(index->near.size()) ==
               index->num_near * count &&
           static_cast<int64_t>(index->centres.values.size()) ==
               index->centres.padded * count;
  }
};

struct PrincipalIndex {
  int64_t dim = 0;
  RowGroups groups;
};

struct PrincipalIndexer {
  using Index = PrincipalIndex;
  using Options = GroupOptions;
  struct Marks {};  // Its queries need none.
  static constexpr char kName[] = "PCA hash";
  static constexpr int64_t kMostGroups = 30;  // bits of a code

  struct Source {
    PaddedRows rows;
    GroupOptions options;
  };

  // The axes are new each time: what was touched does not matter.
  static bool Take(const ClassRows& kernel, const Options& options,
                   const std::shared_ptr<const Index>& /*latest*/,
                   const TouchedRows& /*touched*/, const ParallelFor& parallel,
                   Source* source) {
    source->options = options;
    return CopyRows(kernel, nullptr, kernel.count, options.normalize, parallel,
                    &source->rows);
  }

  static Index Build(Source* source, const ParallelFor& parallel) {
    const GroupOptions& options = source->options;
    return {source->rows.dim, PrincipalGroups(source->rows, options.num_groups,
                                              options.seed, parallel)};
  }

  static int64_t NumRows(const Index& index) { return index.groups.count(); }

  static std::string Write(const Index& index) {
    ByteWriter out;
    out.Put(index.dim);
    WriteGroups(index.groups, &out);
    return out.Take();
  }

  static bool Read(const char* data, size_t size, Index* index) {
    ByteReader in(data, size);
    return in.Get(&index->dim) && index->dim >= 1 &&
           ReadGroups(&in, &index->groups) && in.left() == 0;
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_GROUP_INDEXERS_H_
