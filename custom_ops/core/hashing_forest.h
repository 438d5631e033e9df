// A forest of random partitions of the class rows (Zhang et al., AAAI 2018).
//
// Each tree splits the rows recursively by the max-margin hyperplane of two of
// its rows drawn at random, until a cell has at most leaf_size rows. Rows are
// split by direction (normalised), whatever the similarity of the logits, which
// then ranks what a query finds: the side of a query does not depend on its
// norm, and the usual reduction of inner products to distances (one more
// coordinate, sqrt(max |w|^2 - |w|^2)) moves all rows apart for the sake of the
// longest: among 1M clustered rows it found 0.61 of the 100 greatest products,
// directions found 0.88, from fewer rows.
//
// Building a tree of n rows costs about n log2(n / leaf_size) dot products.
// Upper levels are chosen on a sample of the rows (two random rows of a sample
// of a cell are two random rows of the cell), so that each row is read twice a
// tree: once to walk all upper levels, once inside its cell, which then stays
// in the cache. Directions are rounded to 8 bits a number, normals to 16: a
// tree's cells are those of the rounded ones.
//
// With a `sketch`, directions are those of so many random projections of the
// rows and queries (Johnson and Lindenstrauss): the cosine of two is off by
// about (1 - cosine^2) / sqrt(sketch), which a tree's own chance outweighs.
//
// Memory, with w numbers a direction (sketch, or dim): 4 n bytes a tree and
// 2 w an inner node; while building, n w bytes and 4 n more a thread. A built
// forest is immutable: any number of threads may query it.
#ifndef TFXCLASS_CORE_HASHING_FOREST_H_
#define TFXCLASS_CORE_HASHING_FOREST_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/forest_rows.h"
#include "core/page_allocator.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/rounded_rows.h"

namespace tfxclass {

struct ForestNode {
  int32_t begin, end;  // its rows, in HashingTree::ids
  int32_t child;       // left child, the right one is next to it; -1: a leaf
  int32_t plane;       // of HashingTree::normals, left is the negative side;
                       // -1: halved without a plane
};

struct HashingTree {
  PagedVector<ForestNode> nodes;  // node 0 is the root
  RoundedRows normals;            // [planes]
  PagedVector<int32_t> ids;       // [count], a permutation
};

struct HashingForest {
  int64_t count = 0, dim = 0;
  SharedSketch sketch;
  // Shared with the forests before and after, of which most trees are these.
  std::vector<std::shared_ptr<const HashingTree>> trees;

  // What normals and queries are rounded as.
  int64_t padded() const { return PaddedDim(DirectionDim(sketch, dim)); }
};

struct ForestOptions {
  int64_t num_trees = 50, leaf_size = 100;
  uint64_t seed = 0;
  bool one_by_one = true;  // a refresh replaces a tree at a time
  int64_t sketch = 0;      // 0: none
};

class TreeBuilder {
 public:
  // Of `parallel` it uses no threads: it may be built by one of them.
  TreeBuilder(const ForestRows& rows, const ForestOptions& options,
              int64_t tree, const ParallelFor& parallel)
      : rows_(rows),
        options_(options),
        parallel_(parallel),
        direction_dim_(PaddedDim(DirectionDim(rows.sketch, rows.dim))),
        random_(options.seed, tree) {}

  HashingTree Build() {
    tree_.ids.resize(rows_.count);
    // Cells come out about half full. Growing would touch fresh pages, which
    // cost more than the products.
    const int64_t cells = 2 * rows_.count / options_.leaf_size + 16;
    tree_.nodes.reserve(2 * cells);
    tree_.normals.Reserve(cells, rows_.padded);
    std::iota(tree_.ids.begin(), tree_.ids.end(), 0);
    AddNode(0, rows_.count);
    if (rows_.count / 4 > CellSize()) {
      SplitAll(UpperLevels());
    } else {
      Split(0, tree_.ids.data(), options_.leaf_size);
    }
    return std::move(tree_);
  }

 private:
  // Rows that stay in a second-level cache.
  int64_t CellSize() const {
    const int64_t fit = (int64_t{1} << 18) / (rows_.padded * sizeof(int16_t));
    return std::max<int64_t>({fit, options_.leaf_size, 64});
  }

  int32_t AddNode(int32_t begin, int32_t end) {
    tree_.nodes.push_back({begin, end, -1, -1});
    return tree_.nodes.size() - 1;
  }

  // Whether the row goes right of planes[plane].
  bool IsRight(const RoundedRows& planes, int64_t plane, int32_t id) const {
    const int8_t* x = rows_.row(id);
    const int16_t* y = planes.values.data() + plane * planes.padded;
    int32_t sum = 0;
    const int64_t whole = rows_.padded / 16 * 16;  // for the compiler: no rest
    for (int64_t d = 0; d < whole; ++d) {
      // Through 16 bits: pairs of products in one instruction.
      sum += static_cast<int32_t>(static_cast<int16_t>(x[d])) * y[d];
    }
    return sum >= 0;
  }

  // The max-margin hyperplane between two of ids[0, count): normal w_i - w_j
  // (the paper's text; its Algorithm 1 prints the midpoint as the normal). As
  // rows are normalised, it goes through their midpoint and the origin. False
  // if the rows coincide.
  bool DrawPlane(const int32_t* ids, int64_t count) {
    const int64_t first = random_.Below(count);
    int64_t second = random_.Below(count - 1);
    if (second >= first) ++second;
    const int8_t* a = rows_.row(ids[first]);
    const int8_t* b = rows_.row(ids[second]);
    const float of_a = InverseLength(a), of_b = InverseLength(b);
    plane_.resize(rows_.padded);
    float length = 0;
    for (int64_t d = 0; d < rows_.padded; ++d) {
      plane_[d] = a[d] * of_a - b[d] * of_b;
      length += plane_[d] * plane_[d];
    }
    drawn_.Assign(plane_.data(), 1, direction_dim_);
    return length > 0;
  }

  // 0 of zeros.
  float InverseLength(const int8_t* row) const {
    int64_t squared = 0;
    for (int64_t d = 0; d < rows_.padded; ++d) squared += row[d] * row[d];
    return squared > 0 ? 1.0f / std::sqrt(static_cast<float>(squared)) : 0.0f;
  }

  // Stable, and without a branch on the side, which nobody can predict.
  int64_t Partition(int32_t* ids, int64_t count) {
    right_.resize(count);
    int64_t left = 0, right = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = ids[i];
      const bool goes_right = IsRight(drawn_, 0, id);
      ids[left] = right_[right] = id;
      left += !goes_right;
      right += goes_right;
    }
    std::copy_n(right_.begin(), right, ids + left);
    return left;
  }

  // Splits ids[0, count) in place; returns how many went left.
  int64_t Divide(int32_t* ids, int64_t count, ForestNode* node) {
    constexpr int kAttempts = 4;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!DrawPlane(ids, count)) continue;
      const int64_t left = Partition(ids, count);
      if (left == 0 || left == count) continue;
      node->plane = tree_.normals.count();
      tree_.normals.Append(drawn_);
      return left;
    }
    // Rows that coincide, or nearly: halves keep cells within leaf_size.
    node->plane = -1;
    return count / 2;
  }

  // Splits the node, whose rows are `ids`, down to cells of `limit` rows.
  void Split(int32_t root, int32_t* ids, int64_t limit) {
    std::vector<std::pair<int32_t, int32_t*>> open = {{root, ids}};
    while (!open.empty()) {
      parallel_.Check();
      const auto [index, rows] = open.back();
      open.pop_back();
      ForestNode node = tree_.nodes[index];
      const int64_t count = node.end - node.begin;
      if (count <= limit) continue;
      const int64_t left = Divide(rows, count, &node);
      node.child = AddNode(node.begin, node.begin + left);
      AddNode(node.begin + left, node.end);
      tree_.nodes[index] = node;
      open.emplace_back(node.child, rows);
      open.emplace_back(node.child + 1, rows + left);
    }
  }

  // Upper levels from a sample. Node ranges count sampled rows for now.
  int64_t UpperLevels() {
    constexpr int64_t kSampledPerCell = 32;
    const int64_t cells = rows_.count / CellSize() + 1;
    const int64_t size =
        std::min(rows_.count, std::max<int64_t>(cells * kSampledPerCell, 256));
    std::vector<int32_t> sample(size);
    for (int64_t i = 0; i < size; ++i) {  // one from each stretch of the rows
      const int64_t begin = rows_.count * i / size;
      const int64_t end = rows_.count * (i + 1) / size;
      sample[i] = begin + random_.Below(end - begin);
    }
    tree_.nodes[0].end = size;
    Split(0, sample.data(), kSampledPerCell);
    return tree_.nodes.size();
  }

  // Halves without a plane, in another way at each node.
  static bool Coin(int32_t id, int32_t node) {
    uint64_t x = static_cast<uint64_t>(id) << 32 | static_cast<uint32_t>(node);
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 32;
    return (x * 0xD6E8FEB86659FD93ull) >> 63;
  }

  int32_t Next(const ForestNode& node, int32_t id) const {
    if (node.plane < 0) return node.child + Coin(id, node.child);
    return node.child + IsRight(tree_.normals, node.plane, id);
  }

  // The upper-level cell of rows [first, first + count). Rows go down side by
  // side, one level a pass: a single walk would wait for each product in turn.
  void Walk(int64_t first, int64_t count, int32_t* cell) const {
    std::fill(cell, cell + count, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t i = 0; i < count; ++i) {
        const ForestNode& node = tree_.nodes[cell[i]];
        if (node.child < 0) continue;
        cell[i] = Next(node, first + i);
        moved = true;
      }
    }
  }

  // All rows walk the upper levels, then each cell is split where it lies.
  void SplitAll(int64_t num_upper) {
    std::vector<int32_t> cell(rows_.count);
    std::vector<int32_t> size(num_upper, 0);
    constexpr int64_t kTogether = 32;
    for (int64_t i = 0; i < rows_.count; i += kTogether) {
      parallel_.Check();
      const int64_t count = std::min(kTogether, rows_.count - i);
      Walk(i, count, &cell[i]);
      for (int64_t j = i; j < i + count; ++j) ++size[cell[j]];
    }
    // Children come after their parent, so sizes add up from the back.
    for (int64_t n = num_upper - 1; n >= 0; --n) {
      const int32_t child = tree_.nodes[n].child;
      if (child >= 0) size[n] = size[child] + size[child + 1];
    }
    tree_.nodes[0].begin = 0;
    for (int64_t n = 0; n < num_upper; ++n) {
      ForestNode& node = tree_.nodes[n];
      node.end = node.begin + size[n];
      if (node.child < 0) continue;
      tree_.nodes[node.child].begin = node.begin;
      tree_.nodes[node.child + 1].begin = node.begin + size[node.child];
    }
    std::vector<int32_t> next(num_upper);
    for (int64_t n = 0; n < num_upper; ++n) next[n] = tree_.nodes[n].begin;
    parallel_.InOrder(rows_.count, /*cost=*/5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) tree_.ids[next[cell[i]]++] = i;
    });
    for (int64_t n = 0; n < num_upper; ++n) {
      if (tree_.nodes[n].child >= 0) continue;
      int32_t* ids = tree_.ids.data() + tree_.nodes[n].begin;
      for (int64_t i = 0; i < size[n]; ++i) rows_.Prefetch(ids[i]);
      Split(n, ids, options_.leaf_size);
    }
  }

  const ForestRows& rows_;
  const ForestOptions& options_;
  const ParallelFor& parallel_;
  const int64_t direction_dim_;
  Philox random_;
  HashingTree tree_;
  std::vector<float> plane_;  // the plane being tried
  RoundedRows drawn_;         // it, rounded
  std::vector<int32_t> right_;
};

inline std::shared_ptr<const HashingTree> BuildTree(
    const ForestRows& rows, const ForestOptions& options, int64_t tree,
    const ParallelFor& parallel) {
  return std::make_shared<HashingTree>(
      TreeBuilder(rows, options, tree, parallel).Build());
}

// Trees are independent, each from its own random stream: the result does not
// depend on the threads.
inline HashingForest BuildForest(const ForestRows& rows,
                                 const ForestOptions& options,
                                 const ParallelFor& parallel) {
  HashingForest forest{rows.count, rows.dim, rows.sketch, {}};
  forest.trees.resize(options.num_trees);
  const int64_t cost = rows.count * 200 + 1000;
  parallel(options.num_trees, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      forest.trees[t] = BuildTree(rows, options, t, parallel);
    }
  });
  return forest;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_HASHING_FOREST_H_
