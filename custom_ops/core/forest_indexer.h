// How a hashing forest is refreshed and saved: the Indexer of
// Refreshing<ForestIndexer>, and a forest's bytes.
#ifndef TFXCLASS_CORE_FOREST_INDEXER_H_
#define TFXCLASS_CORE_FOREST_INDEXER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/forest_query.h"
#include "core/hashing_forest.h"
#include "core/refreshing.h"
#include "core/touched_rows.h"

namespace tfxclass {

class ForestBytes {
 public:
  static std::string Write(const HashingForest& forest) {
    ByteWriter out;
    out.Put(forest.count);
    out.Put(forest.dim);
    // Forests without a sketch are written as they were before there was one.
    if (forest.sketch) out.Put(-forest.sketch->size());
    out.Put(static_cast<int64_t>(forest.trees.size()));
    for (const auto& tree : forest.trees) {
      out.PutAll(tree->nodes);
      out.PutAll(tree->ids);
      out.PutAll(tree->normals.values);
      out.PutAll(tree->normals.rounding);
    }
    return out.Take();
  }

  // False if the bytes are no forest.
  static bool Read(const char* data, size_t size, HashingForest* forest) {
    ByteReader in(data, size);
    int64_t num_trees, sketch = 0;
    if (!in.Get(&forest->count) || !in.Get(&forest->dim) ||
        !in.Get(&num_trees) || forest->count < 1 || forest->dim < 1 ||
        forest->dim > INT32_MAX) {
      return false;
    }
    if (num_trees < 0) {
      sketch = num_trees == INT64_MIN ? INT64_MAX : -num_trees;
      if (!in.Get(&num_trees)) return false;
    }
    if (!IsSketch(sketch, forest->dim) || num_trees < 0 ||
        num_trees > static_cast<int64_t>(size / kLeastTreeBytes)) {
      return false;
    }
    forest->sketch = MakeSketch(sketch, forest->dim);
    forest->trees.resize(num_trees);
    for (auto& shared : forest->trees) {
      HashingTree tree;
      tree.normals.padded = (forest->padded() + 15) / 16 * 16;
      if (!in.GetAll(&tree.nodes) || !in.GetAll(&tree.ids) ||
          !in.GetAll(&tree.normals.values) ||
          !in.GetAll(&tree.normals.rounding) || !IsSound(*forest, tree)) {
        return false;
      }
      shared = std::make_shared<HashingTree>(std::move(tree));
    }
    return in.left() == 0;
  }

 private:
  // Four lengths and a node.
  static constexpr size_t kLeastTreeBytes =
      4 * sizeof(int64_t) + sizeof(ForestNode);

  // No index may lead a query out of its arrays, no product past 32 bits.
  static bool IsSound(const HashingForest& forest, const HashingTree& tree) {
    const int32_t num_nodes = tree.nodes.size();
    const int64_t planes = tree.normals.count();
    if (static_cast<int64_t>(tree.ids.size()) != forest.count ||
        static_cast<int64_t>(tree.normals.values.size()) !=
            planes * tree.normals.padded ||
        num_nodes == 0) {
      return false;
    }
    for (int32_t n = 0; n < num_nodes; ++n) {
      const ForestNode& node = tree.nodes[n];
      if (node.begin < 0 || node.end < node.begin || node.end > forest.count ||
          node.plane >= planes ||
          (node.child >= 0 && (node.child <= n || node.child >= num_nodes - 1)))
        return false;
    }
    for (const int32_t id : tree.ids) {
      if (id < 0 || id >= forest.count) return false;
    }
    const int most = RoundingLevels(forest.padded());
    for (const int16_t value : tree.normals.values) {
      if (value > most || value < -most) return false;
    }
    return true;
  }
};

struct ForestIndexer : ForestBytes {
  using Index = HashingForest;
  using Options = ForestOptions;
  using Marks = ForestVotes;
  static constexpr char kName[] = "hashing forest";

  struct Source {
    ForestRows rows;
    ForestOptions options;
  };

  // Every tree is drawn anew: what was touched does not matter. Rows on a GPU
  // have a TakeDirections, too: kernels/forest_device_rows.h.
  template <class Rows>
  static bool Take(const Rows& kernel, const Options& options,
                   const std::shared_ptr<const Index>& /*latest*/,
                   const TouchedRows& /*touched*/, const ParallelFor& parallel,
                   Source* source) {
    source->options = options;
    const int64_t sketch =
        IsSketch(options.sketch, kernel.dim) ? options.sketch : 0;
    return TakeDirections(kernel, sketch, parallel, &source->rows);
  }

  static Index Build(Source* source, const ParallelFor& parallel) {
    return BuildForest(source->rows, source->options, parallel);
  }

  static int64_t NumRows(const Index& forest) { return forest.count; }

  static int64_t NumParts(const Index& forest) { return forest.trees.size(); }

  // As many trees as there will be, none of them built.
  static Index Begin(const Source& source) {
    Index forest{source.rows.count, source.rows.dim, source.rows.sketch, {}};
    forest.trees.resize(source.options.num_trees);
    return forest;
  }

  static void BuildPart(Source* source, int64_t part,
                        const ParallelFor& parallel, Index* forest) {
    forest->trees[part] =
        BuildTree(source->rows, source->options, part, parallel);
  }

  // Whether trees of one may stand in the other.
  static bool IsOfShape(const Index& a, const Index& b) {
    return a.count == b.count && a.dim == b.dim &&
           DirectionDim(a.sketch, a.dim) == DirectionDim(b.sketch, b.dim);
  }

  // `latest` with the first trees of `next` in place of its own.
  static Index Replace(const Index& latest, const Index& next,
                       int64_t num_parts) {
    Index forest = latest;
    if (static_cast<int64_t>(forest.trees.size()) < num_parts) {
      forest.trees.resize(num_parts);
    }
    std::copy_n(next.trees.begin(), num_parts, forest.trees.begin());
    return forest;
  }

  static bool InParts(const Source& source) {
    return source.options.one_by_one;
  }
};

using RefreshingForest = Refreshing<ForestIndexer>;

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FOREST_INDEXER_H_
