// Rows in groups: the group of each row, and the rows of each group.
//
// Flat: 8 bytes a row. Built by a counting sort, so the rows of a group rise.
// Immutable once built: any number of threads may read it.
#ifndef TFXCLASS_CORE_ROW_GROUPS_H_
#define TFXCLASS_CORE_ROW_GROUPS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/active_classes.h"
#include "core/id_set.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace tfxclass {

struct RowGroups {
  std::vector<int32_t> group_of;  // [count]
  std::vector<int32_t> offsets;   // [num_groups + 1]
  std::vector<int32_t> ids;       // [count]

  int64_t count() const { return group_of.size(); }
  int64_t num_groups() const {
    return static_cast<int64_t>(offsets.size()) - 1;
  }
  int32_t size(int64_t group) const {
    return offsets[group + 1] - offsets[group];
  }
  const int32_t* begin(int64_t group) const {
    return ids.data() + offsets[group];
  }

  // Sorts the rows by group_of, which is in [0, num_groups).
  void Sort(int64_t num_groups, const ParallelFor& parallel) {
    constexpr int64_t kCost = 5;
    offsets.assign(num_groups + 1, 0);
    parallel.InOrder(count(), kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++offsets[group_of[i] + 1];
    });
    for (int64_t g = 0; g < num_groups; ++g) offsets[g + 1] += offsets[g];
    std::vector<int32_t> next(offsets.begin(), offsets.end() - 1);
    ids.resize(count());
    parallel.InOrder(count(), kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ids[next[group_of[i]]++] = i;
    });
  }
};

// Rows of the groups that hold `rows` (negative ones are padding): all of
// them, or `limit` of them drawn uniformly without replacement. Time
// O(num_rows + limit), whatever the size of the groups.
inline std::vector<int64_t> MembersOfGroups(const RowGroups& groups,
                                            const int64_t* rows,
                                            int64_t num_rows, int64_t limit,
                                            Philox* random) {
  IdSet distinct(num_rows);
  for (int64_t i = 0; i < num_rows; ++i) {
    if (rows[i] >= 0) distinct.Insert(groups.group_of[rows[i]]);
  }
  std::vector<int64_t> ends;  // of each group, among all their rows
  int64_t total = 0;
  for (const int64_t group : distinct.ids()) {
    ends.push_back(total += groups.size(group));
  }
  IdSet places(std::min(limit, total));
  if (total > limit) {
    internal::FillUniform(total, limit, &places, random);
  } else {
    for (int64_t i = 0; i < total; ++i) places.Insert(i);
  }
  std::vector<int64_t> members;
  for (const int64_t place : places.ids()) {
    const int64_t g =
        std::upper_bound(ends.begin(), ends.end(), place) - ends.begin();
    const int64_t group = distinct.ids()[g];
    const int64_t first = ends[g] - groups.size(group);
    members.push_back(groups.begin(group)[place - first]);
  }
  return members;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_GROUPS_H_
