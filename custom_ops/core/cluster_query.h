// The classes with the greatest scores, through a cluster index.
//
// A query reads the num_probes lists whose centres, as long as their longest
// row (1 for cosines), have the greatest product with it, scores their rows as
// they are now, and keeps the best. With all lists it is exact. Time per query:
// a product a centre and one a row of the lists, whose cache misses dominate;
// rows are fetched ahead. A searcher belongs to one thread.
#ifndef TFXCLASS_CORE_CLUSTER_QUERY_H_
#define TFXCLASS_CORE_CLUSTER_QUERY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/class_rows.h"
#include "core/cluster_index.h"

namespace tfxclass {

struct ClusterQueryOptions {
  int64_t num_neighbors = 1;
  int64_t num_probes = 1;
  bool normalize = false;  // scores are over the norm of the row
};

class ClusterSearcher {
 public:
  // Queries that are multiplied with the centres together.
  static constexpr int64_t kBlock = 16;

  ClusterSearcher(const ClusterIndex& index, const ClassRows& kernel,
                  const ClusterQueryOptions& options)
      : index_(index),
        kernel_(kernel),
        options_(options),
        row_(index.dim),
        queries_(kBlock * index.centres.padded, 0.0f),
        products_(kBlock * index.centres.count) {}

  // For queries [count, dim], count <= kBlock: num_neighbors ids each, best
  // score first, padded with -1, and the scores.
  void Search(const float* queries, int64_t count, int64_t* ids,
              float* scores) {
    const int64_t dim = index_.dim, padded = index_.centres.padded;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(queries + i * dim, dim, &queries_[i * padded]);
    }
    RowProducts(queries_.data(), count, index_.centres.values.data(),
                index_.centres.count, padded, products_.data());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * options_.num_neighbors;
      Probe(&products_[i * index_.centres.count]);
      Score(queries + i * dim);
      Rank(ids + at, scores + at);
    }
  }

  // Rows scored since the searcher was made.
  int64_t scored() const { return scored_; }

 private:
  using Scored = std::pair<float, int32_t>;

  static bool IsBetter(const Scored& a, const Scored& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  }

  // Leaves the best lists in probes_: a heap whose front is the worst of them.
  void Probe(const float* products) {
    probes_.clear();
    const int64_t wanted = options_.num_probes;
    for (int32_t c = 0; c < index_.centres.count; ++c) {
      const float reach = options_.normalize ? 1.0f : index_.reach[c];
      const Scored entry{products[c] * reach, c};
      if (static_cast<int64_t>(probes_.size()) == wanted) {
        if (!IsBetter(entry, probes_.front())) continue;
        std::pop_heap(probes_.begin(), probes_.end(), IsBetter);
        probes_.back() = entry;
      } else {
        probes_.push_back(entry);
      }
      std::push_heap(probes_.begin(), probes_.end(), IsBetter);
    }
  }

  void Score(const float* query) {
    constexpr int64_t kAhead = 12;
    const int64_t dim = index_.dim;
    members_.clear();
    for (const Scored& probe : probes_) {
      const int32_t* begin = index_.groups.begin(probe.second);
      members_.insert(members_.end(), begin,
                      begin + index_.groups.size(probe.second));
    }
    const int64_t count = members_.size();
    scored_ += count;
    ranked_.resize(count);
    for (int64_t i = 0; i < std::min(kAhead, count); ++i) {
      kernel_.Prefetch(members_[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) kernel_.Prefetch(members_[i + kAhead]);
      const float* row = kernel_.Row(members_[i], row_.data());
      float score = Dot(query, row, dim);
      if (options_.normalize) {
        const float squared = Dot(row, row, dim);
        score = squared > 0 ? score / std::sqrt(squared) : 0.0f;
      }
      // Last: an order with NaN is none.
      if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
      ranked_[i] = {score, members_[i]};
    }
  }

  void Rank(int64_t* ids, float* scores) {
    const int64_t found =
        std::min<int64_t>(ranked_.size(), options_.num_neighbors);
    if (found < static_cast<int64_t>(ranked_.size())) {
      std::nth_element(ranked_.begin(), ranked_.begin() + found, ranked_.end(),
                       IsBetter);
    }
    std::sort(ranked_.begin(), ranked_.begin() + found, IsBetter);
    for (int64_t i = 0; i < options_.num_neighbors; ++i) {
      ids[i] = i < found ? ranked_[i].second : -1;
      scores[i] = i < found ? ranked_[i].first : 0.0f;
    }
  }

  const ClusterIndex& index_;
  const ClassRows kernel_;
  const ClusterQueryOptions options_;
  std::vector<float> row_;  // one that was widened
  std::vector<float> queries_, products_;
  std::vector<Scored> probes_, ranked_;
  std::vector<int32_t> members_;
  int64_t scored_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLUSTER_QUERY_H_
