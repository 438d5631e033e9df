// The classes in the buckets of a batch: the candidates of LSH sampling.
//
// A sample has one or more queries (its features, or the rows of its labels).
// Every query reads its bucket in every table; a table that gives a class is a
// vote for it. Of all that is found those with the most votes are kept (of one
// query: the most that any gives), as many as there is room for, and of those
// with the least votes T that are in a uniform sample, a fraction f. A class
// whose function collides with probability p has votes ~ Binomial(L, p^K), so a
// query finds it with probability P(votes > T) + f P(votes = T). Where all
// fits, T = f = 1, that is 1 - (1 - p^K)^L.
//
// Why votes: a batch finds some ten times what it has room for, and a uniform
// cut of that, or of the tables, is a uniform sample of nearly all classes.
//
// Time: the codes, two cache misses a query and table (asked for ahead), one
// visit of each id in a bucket. Memory: two bytes for each class and thread,
// and as many once more, of a pool that the queries of an index share.
// Thread-safe; the result does not depend on the threads.
#ifndef TFXCLASS_CORE_LSH_QUERY_H_
#define TFXCLASS_CORE_LSH_QUERY_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "core/id_set.h"
#include "core/lane_rows.h"
#include "core/lsh_tables.h"
#include "core/mark_pool.h"
#include "core/parallel.h"

namespace tfxclass {

// Queries [samples, per_sample, dim], those with valid = false left out.
struct LshQueries {
  const float* values;
  const bool* valid;
  int64_t samples, per_sample;

  int64_t count() const { return samples * per_sample; }
};

struct LshCandidates {
  std::vector<int64_t> ids;     // distinct
  std::vector<int64_t> probed;  // tables that were read
  int64_t least_votes = 1;      // T
  float last_fraction = 1;      // f, kept of those with T votes
  int64_t pool = 0;             // classes found, those not kept included
};

// How many of `with` [votes + 1], classes by their votes, are kept of those
// with the least votes that are: all with more are.
struct VoteCut {
  int64_t least_votes, above, kept;

  VoteCut(const std::vector<int64_t>& with, int64_t room)
      : least_votes(with.size() - 1), above(0) {
    while (least_votes > 1 && above + with[least_votes] < room) {
      above += with[least_votes--];
    }
    kept = std::max<int64_t>(std::min(room - above, with[least_votes]), 0);
  }
};

using LshMarks = MarkPool<uint16_t>;

class LshSearcher {
 public:
  LshSearcher(const LshTables& tables, const LshQueries& queries,
              const ParallelFor& parallel)
      : tables_(tables), queries_(queries), parallel_(parallel) {
    LaneRows rows;
    rows.Resize(queries.count(), tables.functions->dim());
    stride_ = rows.blocks() * kBlockRows;
    const int64_t num_tables = tables.tables.size();
    buckets_.resize(num_tables * stride_);
    const int64_t cost = num_tables * tables.functions->Cost() + tables.dim;
    parallel(rows.blocks(), kBlockRows * cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) HashBlock(b, &rows);
    });
  }

  // Candidates of the batch, at most `room`, none of `excluded`: first those
  // above the least votes, rising, then the sample of the others.
  LshCandidates Find(const int64_t* excluded, int64_t num_excluded,
                     int64_t room, uint64_t seed, LshMarks* pool) {
    LshCandidates found;
    found.probed.resize(tables_.tables.size());
    std::iota(found.probed.begin(), found.probed.end(), 0);
    LshMarks::Loan loan(pool, tables_.count);
    uint16_t* const most = loan.data();
    const std::vector<int32_t> ids = Vote(most, pool);
    for (int64_t i = 0; i < num_excluded; ++i) {
      if (excluded[i] >= 0) most[excluded[i]] = 0;
    }
    Keep(ids, TakeVotes(ids, most), room, seed, &found);
    return found;
  }

  // mask[sample, column]: whether a query of the sample has `least_votes` for
  // ids[column], of the tables `probed`. The mask comes as all false.
  void Members(const std::vector<int64_t>& probed, int64_t least_votes,
               const int64_t* ids, int64_t num_ids, bool* mask) const {
    IdSet columns(num_ids);
    for (int64_t i = 0; i < num_ids; ++i) columns.Insert(ids[i]);
    const int64_t cost = queries_.per_sample * probed.size() * 1000;
    parallel_(queries_.samples, cost, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> votes(num_ids);
      for (int64_t q = begin * queries_.per_sample;
           q < end * queries_.per_sample; ++q) {
        if (!queries_.valid[q]) continue;
        CountColumns(probed, q, columns, &votes);
        bool* const of_sample = mask + q / queries_.per_sample * num_ids;
        for (int64_t i = 0; i < num_ids; ++i) {
          if (votes[i] >= least_votes) of_sample[i] = true;
        }
      }
    });
  }

 private:
  void HashBlock(int64_t b, LaneRows* rows) {
    const int64_t first = b * kBlockRows;
    const int64_t last = std::min(first + kBlockRows, queries_.count());
    for (int64_t q = first; q < last; ++q) {
      rows->Set(q, queries_.values + q * tables_.dim, tables_.dim);
    }
    const int64_t num_tables = tables_.tables.size();
    std::vector<uint32_t> codes(num_tables * kBlockRows);
    tables_.functions->Codes(rows->block(b), 0, num_tables, codes.data(),
                             kBlockRows);
    for (int64_t t = 0; t < num_tables; ++t) {
      tables_.BucketsOf(codes.data() + t * kBlockRows, kBlockRows,
                        buckets_.data() + t * stride_ + first);
    }
  }

  // most[id]: the most votes that a query gives. Returns the classes that have
  // any, in no order.
  std::vector<int32_t> Vote(uint16_t* most, LshMarks* pool) const {
    std::vector<int32_t> ids;
    std::mutex mutex;
    const int64_t cost = tables_.tables.size() * 100;
    parallel_(queries_.count(), cost, [&](int64_t begin, int64_t end) {
      LshMarks::Loan loan(pool, tables_.count);
      uint16_t* const votes = loan.data();
      std::vector<int32_t> own, first;
      for (int64_t q = begin; q < end; ++q) {
        if (q + 1 < end) PrefetchOffsets(q + 1);
        if (!queries_.valid[q]) continue;
        ReadBuckets(q, votes, &own);
        const int64_t num_own = own.size();
        for (int64_t i = 0; i < num_own; ++i) {
          __builtin_prefetch(&most[own[std::min(i + kIdsAhead, num_own - 1)]]);
          const int32_t id = own[i];
          if (RaiseTo(votes[id], &most[id])) first.push_back(id);
          votes[id] = 0;
        }
      }
      std::lock_guard<std::mutex> lock(mutex);
      ids.insert(ids.end(), first.begin(), first.end());
    });
    return ids;
  }

  // The votes of `ids`, which become 0 in `most`.
  std::vector<uint16_t> TakeVotes(const std::vector<int32_t>& ids,
                                  uint16_t* most) const {
    const int64_t size = ids.size();
    std::vector<uint16_t> votes(size);
    parallel_(size, /*cost=*/20, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        __builtin_prefetch(&most[ids[std::min(i + kIdsAhead, end - 1)]]);
        votes[i] = std::exchange(most[ids[i]], 0);
      }
    });
    return votes;
  }

  // A restored table may have a class twice: never past this.
  static int64_t MostVotes(int64_t num_tables) {
    return std::min<int64_t>(std::max<int64_t>(num_tables, 1), UINT16_MAX);
  }

  void PrefetchOffsets(int64_t query) const {
    const int64_t num_tables = tables_.tables.size();
    for (int64_t t = 0; t < num_tables; ++t) {
      const int32_t bucket = buckets_[t * stride_ + query];
      __builtin_prefetch(&tables_.tables[t].offsets[bucket]);
    }
  }

  // Counts the votes of a query; `own` gets the classes that have any.
  void ReadBuckets(int64_t query, uint16_t* votes,
                   std::vector<int32_t>* own) const {
    constexpr int64_t kVotesAhead = 2, kAhead = 8;  // tables
    const int64_t num_tables = tables_.tables.size();
    const int64_t most_votes = MostVotes(num_tables);
    own->clear();
    for (int64_t t = 0; t < num_tables + kAhead; ++t) {
      if (t < num_tables) PrefetchIds(t, query);
      const int64_t soon = t - kAhead + kVotesAhead;
      if (soon >= 0 && soon < num_tables) {
        for (const int32_t id : Bucket(soon, query)) {
          __builtin_prefetch(&votes[id]);
        }
      }
      if (t < kAhead) continue;
      for (const int32_t id : Bucket(t - kAhead, query)) {
        uint16_t& of_id = votes[id];
        if (of_id == 0) own->push_back(id);
        of_id += of_id < most_votes;
      }
    }
  }

  struct Ids {
    const int32_t *first, *last;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
  };

  // The bucket of a query.
  Ids Bucket(int64_t number, int64_t query) const {
    const LshTable& table = tables_.tables[number];
    const int32_t bucket = buckets_[number * stride_ + query];
    const int32_t* const ids = table.ids.data();
    return {ids + table.offsets[bucket], ids + table.offsets[bucket + 1]};
  }

  // The first lines of a bucket; the processor asks for those that follow.
  void PrefetchIds(int64_t number, int64_t query) const {
    const int32_t* const first = Bucket(number, query).first;
    __builtin_prefetch(first);
    __builtin_prefetch(first + kIdsOfLine);
  }

  // Whether it was 0. The greatest wins, in whatever order.
  static bool RaiseTo(uint16_t votes, uint16_t* most) {
    uint16_t before = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (before < votes) {
      if (__atomic_compare_exchange_n(most, &before, votes, /*weak=*/true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        return before == 0;
      }
    }
    return false;
  }

  static void Keep(const std::vector<int32_t>& pool,
                   const std::vector<uint16_t>& votes, int64_t room,
                   uint64_t seed, LshCandidates* found) {
    const int64_t most_votes = MostVotes(found->probed.size());
    std::vector<int64_t> with(most_votes + 1, 0);
    for (const uint16_t of_id : votes) ++with[of_id];
    const VoteCut cut(with, room);
    std::vector<std::pair<uint64_t, int32_t>> last;
    last.reserve(with[cut.least_votes]);
    for (size_t i = 0; i < pool.size(); ++i) {
      if (votes[i] > cut.least_votes) found->ids.push_back(pool[i]);
      if (votes[i] == cut.least_votes) {
        last.emplace_back(BucketPriority(seed, 0, pool[i]), pool[i]);
      }
    }
    std::sort(found->ids.begin(), found->ids.end());
    std::nth_element(last.begin(), last.begin() + cut.kept, last.end());
    std::sort(last.begin(), last.begin() + cut.kept);
    for (int64_t i = 0; i < cut.kept; ++i) {
      found->ids.push_back(last[i].second);
    }
    found->pool = pool.size() - with[0];
    found->least_votes = cut.least_votes;
    if (!last.empty()) {
      found->last_fraction = static_cast<float>(cut.kept) / last.size();
    }
  }

  void CountColumns(const std::vector<int64_t>& probed, int64_t query,
                    const IdSet& columns, std::vector<int64_t>* votes) const {
    std::fill(votes->begin(), votes->end(), 0);
    for (const int64_t number : probed) {
      for (const int32_t id : Bucket(number, query)) {
        const int64_t column = columns.Position(id);
        if (column >= 0) ++(*votes)[column];
      }
    }
  }

  static constexpr int64_t kIdsAhead = 16, kIdsOfLine = 16;

  const LshTables& tables_;
  const LshQueries queries_;
  const ParallelFor& parallel_;
  int64_t stride_ = 0;
  std::vector<int32_t> buckets_;  // [tables, queries]
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_QUERY_H_
