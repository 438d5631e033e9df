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
// visit of each id in a bucket: ids are sorted by range first, and a thread
// counts a range for all queries, so no counts are shared, and all are in a
// cache. Memory: four bytes a class, of a pool that the queries of an index
// share, and as many for each of a million visits.
// Thread-safe; the result does not depend on the threads.
#ifndef TFXCLASS_CORE_LSH_QUERY_H_
#define TFXCLASS_CORE_LSH_QUERY_H_

#include <algorithm>
#include <cmath>
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

// Of a class: votes of the query that is read, and the most of those before.
struct LshMark {
  uint16_t votes, most;
};
using LshMarks = MarkPool<LshMark>;

class LshSearcher {
 public:
  LshSearcher(const LshTables& tables, const LshQueries& queries,
              const ParallelFor& parallel)
      : tables_(tables),
        queries_(queries),
        parallel_(parallel),
        shift_(std::max(CeilLog2(tables.count) - kRangeBits, 0)) {
    LaneRows rows;
    rows.Resize(queries.count(), tables.functions->dim());
    stride_ = rows.blocks() * kBlockRows;
    const int64_t num_tables = tables.tables.size(), dim = tables.dim;
    buckets_.resize(num_tables * stride_);
    parallel(rows.blocks(), kBlockRows * dim, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin * kBlockRows; q < end * kBlockRows; ++q) {
        // Places without a query have the last one: zeros take DWTA longest.
        const int64_t from = std::min(q, queries.count() - 1);
        rows.Set(q, queries.values + from * dim, dim);
      }
    });
    const int64_t cost = stride_ * tables.functions->Cost();
    parallel(num_tables, cost, [&](int64_t first, int64_t last) {
      for (int64_t b = 0; b < rows.blocks(); ++b) {
        HashBlock(rows.block(b), b, first, last);
      }
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
    Keep(Vote(excluded, num_excluded, loan.data()), room, seed, &found);
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
  static constexpr int kRangeBits = 6;
  static constexpr int64_t kRanges = int64_t{1} << kRangeBits;
  // Ids of some queries that are held at a time: 4 MiB.
  static constexpr int64_t kTogether = 1 << 20;

  // Of a query.
  struct Ids {
    const int32_t *first, *last;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
  };

  // Buckets of the queries of a block in the tables [first, last).
  void HashBlock(const float* block, int64_t number, int64_t first,
                 int64_t last) {
    std::vector<uint32_t> codes((last - first) * kBlockRows);
    tables_.functions->Codes(block, first, last - first, codes.data(),
                             kBlockRows);
    for (int64_t t = first; t < last; ++t) {
      tables_.BucketsOf(codes.data() + (t - first) * kBlockRows, kBlockRows,
                        buckets_.data() + t * stride_ + number * kBlockRows);
    }
  }

  // Classes that have votes, in no order: the most that a query gives.
  struct Voted {
    std::vector<int32_t> ids;
    std::vector<uint16_t> votes;
    std::vector<int64_t> with;  // [tables + 1], classes by their votes

    explicit Voted(int64_t num_tables) : with(num_tables + 1) {}

    void Add(int32_t id, uint16_t of_id) {
      ids.push_back(id);
      votes.push_back(of_id);
      ++with[of_id];
    }

    void Add(const Voted& other) {
      ids.insert(ids.end(), other.ids.begin(), other.ids.end());
      votes.insert(votes.end(), other.votes.begin(), other.votes.end());
      for (size_t i = 0; i < with.size(); ++i) with[i] += other.with[i];
    }
  };

  Voted Vote(const int64_t* excluded, int64_t num_excluded,
             LshMark* marks) const {
    std::vector<std::vector<int32_t>> ids(kRanges);  // that have votes
    Visits visits;
    for (int64_t q = 0; q < queries_.count(); q += visits.num_queries()) {
      Reserve(q, &visits);
      VoteOf(&visits, marks, &ids);
    }
    Voted all(tables_.tables.size());
    std::mutex mutex;
    // The first range has about as many as the others.
    parallel_(kRanges, ids[0].size() * 5, [&](int64_t first, int64_t last) {
      const int64_t begin = first << shift_, end = last << shift_;
      for (int64_t i = 0; i < num_excluded; ++i) {
        const int64_t id = excluded[i];
        if (begin <= id && id < end) marks[id].most = 0;
      }
      Voted own(tables_.tables.size());
      for (int64_t range = first; range < last; ++range) {
        for (const int32_t id : ids[range]) {
          const uint16_t most = std::exchange(marks[id].most, 0);
          if (most > 0) own.Add(id, most);
        }
      }
      std::lock_guard<std::mutex> lock(mutex);
      all.Add(own);
    });
    return all;
  }

  // The ids in the buckets of some queries in a row: of a query, those of each
  // range of classes together.
  struct Visits {
    int64_t first;                // query
    std::vector<int64_t> begins;  // [queries, ranges + 1], of `ids`
    std::vector<int32_t> ids;

    int64_t num_queries() const { return begins.size() / (kRanges + 1); }

    Ids Of(int64_t query, int64_t range) const {
      const int64_t* const begin = &begins[query * (kRanges + 1) + range];
      return {ids.data() + begin[0], ids.data() + begin[1]};
    }
  };

  // Room for the queries from `first` on whose visits are held at a time.
  void Reserve(int64_t first, Visits* visits) const {
    const int64_t num_tables = tables_.tables.size();
    visits->first = first;
    visits->begins.clear();
    int64_t size = 0;
    for (int64_t q = first; q < queries_.count() && size < kTogether; ++q) {
      if (q + 1 < queries_.count()) PrefetchOffsets(q + 1);
      visits->begins.insert(visits->begins.end(), kRanges + 1, size);
      for (int64_t t = 0; t < num_tables && queries_.valid[q]; ++t) {
        const Ids ids = Bucket(t, q);
        size += ids.last - ids.first;
      }
    }
    visits->ids.resize(size);
  }

  // The visits of a query, from the place of its first one.
  void ReadBuckets(int64_t query, int64_t* begins, int32_t* ids) const {
    constexpr int64_t kAhead = 4;  // tables
    const int64_t num_tables = tables_.tables.size();
    for (int64_t t = 0; t < num_tables + kAhead; ++t) {
      if (t < num_tables) PrefetchIds(t, query);
      if (t < kAhead) continue;
      for (const int32_t id : Bucket(t - kAhead, query)) {
        ++begins[(id >> shift_) + 1];
      }
    }
    const int64_t start = begins[0];
    for (int64_t range = 0; range < kRanges; ++range) {
      begins[range + 1] += begins[range] - start;
    }
    int64_t next[kRanges];
    std::copy_n(begins, kRanges, next);
    for (int64_t t = 0; t < num_tables; ++t) {
      for (const int32_t id : Bucket(t, query)) {
        ids[next[id >> shift_]++] = id;
      }
    }
  }

  // marks[id].most with these queries; `ids` gets those of each range that have
  // votes for the first time.
  void VoteOf(Visits* visits, LshMark* marks,
              std::vector<std::vector<int32_t>>* ids) const {
    const int64_t size = visits->ids.size(), count = visits->num_queries();
    parallel_(count, 3 * size / count, [&](int64_t first, int64_t last) {
      for (int64_t q = first; q < last; ++q) {
        if (!queries_.valid[visits->first + q]) continue;
        ReadBuckets(visits->first + q, &visits->begins[q * (kRanges + 1)],
                    visits->ids.data());
      }
    });
    parallel_(kRanges, 4 * size / kRanges, [&](int64_t first, int64_t last) {
      for (int64_t range = first; range < last; ++range) {
        for (int64_t q = 0; q < count; ++q) {
          Count(visits->Of(q, range), marks, &(*ids)[range]);
        }
      }
    });
  }

  // Counts a query's visits; `ids` gets those of which marks[id].most was 0.
  static void Count(Ids visits, LshMark* marks, std::vector<int32_t>* ids) {
    for (const int32_t id : visits) ++marks[id].votes;
    for (const int32_t id : visits) {
      LshMark& mark = marks[id];
      if (mark.most == 0) ids->push_back(id);
      mark.most = std::max(mark.most, mark.votes);
      mark.votes = 0;
    }
  }

  void PrefetchOffsets(int64_t query) const {
    const int64_t num_tables = tables_.tables.size();
    for (int64_t t = 0; t < num_tables; ++t) {
      const int32_t bucket = buckets_[t * stride_ + query];
      __builtin_prefetch(&tables_.tables[t].offsets[bucket]);
    }
  }

  // The bucket of a query.
  Ids Bucket(int64_t number, int64_t query) const {
    const LshTable& table = tables_.tables[number];
    const int32_t bucket = buckets_[number * stride_ + query];
    const int32_t* const ids = table.ids.data();
    return {ids + table.offsets[bucket], ids + table.offsets[bucket + 1]};
  }

  // The lines of a small bucket, and the first ones of a large one.
  void PrefetchIds(int64_t number, int64_t query) const {
    constexpr int64_t kIdsOfLine = 16, kLines = 8;
    const Ids ids = Bucket(number, query);
    const int32_t* const last =
        ids.first +
        std::min<int64_t>(ids.last - ids.first, kLines * kIdsOfLine);
    for (const int32_t* id = ids.first; id < last; id += kIdsOfLine) {
      __builtin_prefetch(id);
    }
  }

  // What the `kept` least of `count` priorities hardly ever pass.
  static uint64_t LikelyGreatest(int64_t kept, int64_t count) {
    const double wanted = kept + 6 * std::sqrt(kept) + 20;
    if (wanted >= count) return UINT64_MAX;
    return static_cast<uint64_t>(wanted / count * 0x1p64);
  }

  static void Keep(const Voted& all, int64_t room, uint64_t seed,
                   LshCandidates* found) {
    const std::vector<int64_t>& with = all.with;
    const VoteCut cut(with, room);
    const int64_t num_last = with[cut.least_votes];
    std::vector<std::pair<uint64_t, int32_t>> last;
    // Of many, those with a small priority are enough, but by a rare chance.
    for (uint64_t most : {LikelyGreatest(cut.kept, num_last), UINT64_MAX}) {
      last.clear();
      for (size_t i = 0; i < all.ids.size(); ++i) {
        if (all.votes[i] != cut.least_votes) continue;
        const uint64_t priority = BucketPriority(seed, 0, all.ids[i]);
        if (priority <= most) last.emplace_back(priority, all.ids[i]);
      }
      if (static_cast<int64_t>(last.size()) >= cut.kept) break;
    }
    for (size_t i = 0; i < all.ids.size(); ++i) {
      if (all.votes[i] > cut.least_votes) found->ids.push_back(all.ids[i]);
    }
    std::sort(found->ids.begin(), found->ids.end());
    std::nth_element(last.begin(), last.begin() + cut.kept, last.end());
    std::sort(last.begin(), last.begin() + cut.kept);
    for (int64_t i = 0; i < cut.kept; ++i) {
      found->ids.push_back(last[i].second);
    }
    found->pool = all.ids.size();
    found->least_votes = cut.least_votes;
    if (num_last > 0) {
      found->last_fraction = static_cast<float>(cut.kept) / num_last;
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

  const LshTables& tables_;
  const LshQueries queries_;
  const ParallelFor& parallel_;
  const int shift_;  // of an id, to its range
  int64_t stride_ = 0;
  std::vector<int32_t> buckets_;  // [tables, queries]
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_QUERY_H_
