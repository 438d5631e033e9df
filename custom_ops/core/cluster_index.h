// Rows by their nearest k-means centre, by direction.
//
// A row is assigned by a walk: while one of the centres near its own is nearer,
// it moves there. core/cluster_builder.h makes the centres.
#ifndef TFXCLASS_CORE_CLUSTER_INDEX_H_
#define TFXCLASS_CORE_CLUSTER_INDEX_H_

#include <cstdint>
#include <vector>

#include "core/kmeans.h"
#include "core/padded_rows.h"
#include "core/parallel.h"
#include "core/row_groups.h"

namespace tfxclass {

struct ClusterIndex {
  RowGroups groups;
  Centres centres;
  int64_t num_near = 0;
  std::vector<int32_t> near;  // [centres, num_near], nearest first

  float Nearness(const float* row, int32_t centre) const {
    return DotPadded(row, centres.row(centre), centres.padded);
  }

  // The centre that a walk from `centre` ends at.
  int32_t Walk(const float* row, int32_t centre) const {
    constexpr int kMostMoves = 16;
    float nearness = Nearness(row, centre);
    for (int move = 0; move < kMostMoves; ++move) {
      const int32_t start = centre;
      for (int64_t i = 0; i < num_near; ++i) {
        const int32_t other = near[start * num_near + i];
        const float of_other = Nearness(row, other);
        if (of_other > nearness) {
          nearness = of_other;
          centre = other;
        }
      }
      if (centre == start) break;
    }
    return centre;
  }

  // Walks each row from its centre.
  void WalkRows(const PaddedRows& rows, const ParallelFor& parallel) {
    parallel(rows.count, ProductCost(2 * num_near + 1, rows.padded),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 int32_t& group = groups.group_of[i];
                 group = Walk(rows.row(i), group);
               }
             });
    groups.Sort(centres.count, parallel);
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLUSTER_INDEX_H_
