// The classes nearest to a query, through a hashing forest.
//
// A query walks every tree, side by side. The paper's rule: go down to the
// first node with fewer than num_neighbors rows and take its parent's rows;
// a leaf with num_neighbors rows or more is taken as it is. The pooled rows are
// ranked by their exact score. Beyond the paper: a walk may
// stop earlier, at `bucket` rows, and of the pooled rows only the
// num_candidates that most trees agree on are scored, since a score costs a
// cache miss of a whole row and a vote one byte.
//
// Time per query: trees x depth dot products of 16-bit rows, one vote for each
// pooled row, num_candidates dot products. Memory: one byte for each class and
// thread, of a pool that the searchers of an index share. A searcher belongs to
// one thread.
#ifndef TFXCLASS_CORE_FOREST_QUERY_H_
#define TFXCLASS_CORE_FOREST_QUERY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/hashing_forest.h"
#include "core/mark_pool.h"

namespace tfxclass {

struct QueryOptions {
  int64_t num_neighbors = 1;
  int64_t num_candidates = 0;  // 0: all pooled rows are scored
  bool normalize = false;      // scores are over the norm of the row
  int64_t bucket = 0;          // rows a walk pools at least; 0: num_neighbors
};

using ForestVotes = MarkPool<uint8_t>;

class ForestSearcher {
 public:
  // After an exception it is of no further use.
  ForestSearcher(const HashingForest& forest, const ClassRows& kernel,
                 const QueryOptions& options, ForestVotes* pool)
      : forest_(forest),
        kernel_(kernel),
        options_(options),
        loan_(pool, forest.count),
        votes_(loan_.data()),
        query_(PaddedDim(forest.dim), 0.0f),
        direction_(forest.padded(), 0.0f),
        row_(forest.dim) {}

  // Writes num_neighbors ids, best score first, padded with -1, and their
  // scores against the live rows.
  void Search(const float* query, int64_t* ids, float* scores) {
    std::copy_n(query, forest_.dim, query_.begin());
    Round();
    Pool();
    KeepMostVoted();
    Score();
    const int64_t found = Rank();
    for (int64_t i = 0; i < options_.num_neighbors; ++i) {
      ids[i] = i < found ? ranked_[i].second : -1;
      scores[i] = i < found ? ranked_[i].first : 0.0f;
    }
  }

  // Rows pooled for the last query, distinct.
  int64_t pooled() const { return num_pooled_; }

 private:
  void Round() {
    const float* direction = query_.data();
    if (forest_.sketch) {
      forest_.sketch->Project(direction, 1, direction_.data());
      direction = direction_.data();
    }
    rounded_.Assign(direction, 1, forest_.padded());
  }

  struct Walk {
    int32_t tree, node, parent;
  };

  int64_t Bucket() const {
    return options_.bucket ? options_.bucket : options_.num_neighbors;
  }

  bool IsRight(const HashingTree& tree, const ForestNode& node) const {
    float error;
    return node.plane < 0 ||
           RoundedDot(rounded_, 0, tree.normals, node.plane, &error) >= 0;
  }

  void PrefetchPlane(const Walk& walk) const {
    const HashingTree& tree = *forest_.trees[walk.tree];
    const ForestNode& node = tree.nodes[walk.node];
    if (node.child >= 0 && node.plane >= 0) tree.normals.Prefetch(node.plane);
  }

  // One level a pass, so that the trees' cache misses overlap.
  void Pool() {
    const int32_t num_trees = forest_.trees.size();
    const int64_t bucket = Bucket();
    num_pooled_ = 0;
    walks_.clear();
    for (int32_t t = 0; t < num_trees; ++t) walks_.push_back({t, 0, 0});
    for (bool moved = true; moved;) {
      moved = false;
      for (const Walk& walk : walks_) PrefetchPlane(walk);
      for (Walk& walk : walks_) {
        const HashingTree& tree = *forest_.trees[walk.tree];
        const ForestNode& node = tree.nodes[walk.node];
        if (node.child < 0 || node.end - node.begin < bucket) continue;
        walk.parent = walk.node;
        walk.node = node.child + IsRight(tree, node);
        __builtin_prefetch(&tree.nodes[walk.node]);
        moved = true;
      }
    }
    for (const Walk& walk : walks_) Vote(walk);
    touched_.resize(num_pooled_);
  }

  void Vote(const Walk& walk) {
    const HashingTree& tree = *forest_.trees[walk.tree];
    const ForestNode* node = &tree.nodes[walk.node];
    if (node->end - node->begin < Bucket()) node = &tree.nodes[walk.parent];
    const int32_t* ids = tree.ids.data() + node->begin;
    const int32_t count = node->end - node->begin;
    touched_.resize(num_pooled_ + count);
    int32_t* pooled = touched_.data();
    // Without a branch on the first vote, which nobody can predict.
    for (int32_t i = 0; i < count; ++i) {
      const int32_t id = ids[i];
      const uint8_t votes = votes_[id];
      pooled[num_pooled_] = id;
      num_pooled_ += votes == 0;
      votes_[id] = votes + (votes < 255);
    }
  }

  // Leaves in touched_ what is to be scored, and clears the votes.
  void KeepMostVoted() {
    const int64_t limit = options_.num_candidates;
    int64_t kept = touched_.size();
    if (limit > 0 && kept > limit) {
      int64_t with[256] = {0};
      for (const int32_t id : touched_) ++with[votes_[id]];
      int least = 255;
      int64_t above = 0;  // with more votes than `least`
      while (above + with[least] < limit) above += with[least--];
      int64_t ties = limit - above;
      kept = 0;
      for (const int32_t id : touched_) {
        const int votes = votes_[id];
        votes_[id] = 0;
        if (votes > least || (votes == least && ties-- > 0)) {
          touched_[kept++] = id;
        }
      }
      touched_.resize(kept);
    } else {
      for (const int32_t id : touched_) votes_[id] = 0;
    }
  }

  void Score() {
    constexpr int64_t kAhead = 8;
    const int64_t dim = forest_.dim, count = touched_.size();
    ranked_.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) kernel_.Prefetch(touched_[i + kAhead]);
      const float* row = kernel_.Row(touched_[i], row_.data());
      float score = Dot(query_.data(), row, dim);
      if (options_.normalize) {
        const float squared = Dot(row, row, dim);
        score = squared > 0 ? score / std::sqrt(squared) : 0.0f;
      }
      // Last: an order with NaN is none.
      if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
      ranked_[i] = {score, touched_[i]};
    }
  }

  int64_t Rank() {
    const int64_t found =
        std::min<int64_t>(ranked_.size(), options_.num_neighbors);
    const auto better = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    std::partial_sort(ranked_.begin(), ranked_.begin() + found, ranked_.end(),
                      better);
    return found;
  }

  const HashingForest& forest_;
  const ClassRows kernel_;
  const QueryOptions options_;
  ForestVotes::Loan loan_;
  uint8_t* const votes_;  // of loan_, all zero between queries
  std::vector<float> query_, direction_, row_;
  RoundedRows rounded_;
  std::vector<Walk> walks_;
  std::vector<int32_t> touched_;
  std::vector<std::pair<float, int32_t>> ranked_;
  int64_t num_pooled_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FOREST_QUERY_H_
