// Where a device has the arrays of a hashing forest's trees.
#ifndef TFXCLASS_CORE_FLAT_FOREST_H_
#define TFXCLASS_CORE_FLAT_FOREST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/hashing_forest.h"
#include "core/rounded_rows.h"

namespace tfxclass {

// A device has the arrays of all trees one after the other: nodes [num_nodes],
// planes [num_planes(), padded] and ids [num_trees(), count]. Children and
// planes are numbered within their tree: those of tree t begin at first_node[t]
// and first_plane[t], its ids at t * count.
struct FlatForest {
  int64_t count = 0, dim = 0;
  int64_t padded = 0;        // of planes, a multiple of 16
  float levels = 0;          // RoundingLevels of what queries are rounded with
  float least_scale = 0;     // of all planes
  int64_t largest_leaf = 0;  // rows
  int64_t num_nodes = 0;
  std::vector<float> scales;                     // [num_planes]
  std::vector<int64_t> first_node, first_plane;  // [num_trees]

  int64_t num_trees() const { return first_node.size(); }
  int64_t num_planes() const { return scales.size(); }
};

// O(nodes).
inline FlatForest FlattenForest(const HashingForest& forest) {
  FlatForest flat;
  flat.count = forest.count;
  flat.dim = forest.dim;
  flat.padded = (forest.padded() + 15) / 16 * 16;
  flat.levels = RoundingLevels(forest.padded());
  for (const auto& shared : forest.trees) {
    const HashingTree& tree = *shared;
    flat.first_node.push_back(flat.num_nodes);
    flat.first_plane.push_back(flat.scales.size());
    flat.num_nodes += tree.nodes.size();
    for (const Rounding& rounding : tree.normals.rounding) {
      const bool is_first = flat.scales.empty();
      flat.least_scale = is_first ? rounding.scale
                                  : std::min(flat.least_scale, rounding.scale);
      flat.scales.push_back(rounding.scale);
    }
    for (const ForestNode& node : tree.nodes) {
      if (node.child >= 0) continue;
      flat.largest_leaf =
          std::max<int64_t>(flat.largest_leaf, node.end - node.begin);
    }
  }
  return flat;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FLAT_FOREST_H_
