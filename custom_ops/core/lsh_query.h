// The classes in the buckets of a batch: the candidates of LSH sampling.
//
// A sample has one or more queries (its features, or the rows of its labels);
// its own candidates are the union of its queries' buckets in the probed
// tables. All tables are probed where the batch's union has room; else tables
// are probed in a random order, one for all samples at a time, until the room
// is used up, and of what the last one adds a uniform sample is kept. So a
// class whose function collides with probability p is found for a query with
// probability 1 - (1 - p^K)^(t-1) (1 - f p^K), t tables probed, the last one
// counted as f; that is 1 - (1 - p^K)^L where all fits.
//
// Time: the codes, two cache misses a query and table (asked for ahead), one
// visit of each id in a probed bucket. Memory: a bit a class for each thread,
// kept between queries. Thread-safe.
#ifndef TFXCLASS_CORE_LSH_QUERY_H_
#define TFXCLASS_CORE_LSH_QUERY_H_

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/cleared_if_thrown.h"
#include "core/id_set.h"
#include "core/lane_rows.h"
#include "core/lsh_tables.h"
#include "core/parallel.h"
#include "core/philox.h"

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
  std::vector<int64_t> probed;  // tables, in order
  float last_fraction = 1;      // of what the last one added
};

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

  // Candidates of the batch, at most `room`, none of `excluded`.
  LshCandidates Find(const int64_t* excluded, int64_t num_excluded,
                     int64_t room, uint64_t seed, uint64_t stream) {
    LshCandidates found;
    Philox random(seed, stream);
    std::vector<int64_t> order(tables_.tables.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint64_t>* const marks = ThreadSeen();
    const ClearedIfThrown<std::vector<uint64_t>> guard(marks);
    uint64_t* const seen = marks->data();
    for (int64_t i = 0; i < num_excluded; ++i) {
      if (excluded[i] >= 0) Flag(seen, excluded[i]);
    }
    std::vector<int64_t> dropped;
    for (size_t i = 0; i < order.size() && Size(found) < room; ++i) {
      std::swap(order[i], order[i + random.Below(order.size() - i)]);
      const int64_t before = found.ids.size();
      ReadTable(order[i], seen, &found.ids);
      found.probed.push_back(order[i]);
      if (Size(found) > room) KeepSome(before, room, &random, &found, &dropped);
    }
    for (const int64_t id : found.ids) seen[id >> 6] = 0;
    for (const int64_t id : dropped) seen[id >> 6] = 0;
    for (int64_t i = 0; i < num_excluded; ++i) {
      if (excluded[i] >= 0) seen[excluded[i] >> 6] = 0;
    }
    return found;
  }

  // mask[sample, column]: whether ids[column] is in a bucket of the sample, in
  // the tables `probed`. The mask comes as all false.
  void Members(const std::vector<int64_t>& probed, const int64_t* ids,
               int64_t num_ids, bool* mask) const {
    IdSet columns(num_ids);
    for (int64_t i = 0; i < num_ids; ++i) columns.Insert(ids[i]);
    const int64_t cost = queries_.per_sample * probed.size() * 1000;
    parallel_(queries_.samples, cost, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        for (const int64_t table : probed) {
          MarkSample(table, s, columns, mask + s * num_ids);
        }
      }
    });
  }

 private:
  static int64_t Size(const LshCandidates& found) { return found.ids.size(); }

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

  // All zero between queries.
  std::vector<uint64_t>* ThreadSeen() const {
    static thread_local std::vector<uint64_t> seen;
    const size_t words = (tables_.count + 63) / 64;
    if (seen.size() < words) seen.resize(words, 0);
    return &seen;
  }

  // Whether it was new.
  static bool Flag(uint64_t* seen, int64_t id) {
    const uint64_t bit = uint64_t{1} << (id & 63);
    const bool is_new = !(seen[id >> 6] & bit);
    seen[id >> 6] |= bit;
    return is_new;
  }

  void ReadTable(int64_t number, uint64_t* seen, std::vector<int64_t>* ids) {
    const LshTable& table = tables_.tables[number];
    const int32_t* buckets = buckets_.data() + number * stride_;
    const int64_t count = queries_.count();
    for (int64_t q = 0; q < count; ++q) {
      __builtin_prefetch(&table.offsets[buckets[q]]);
    }
    constexpr int64_t kAhead = 16;
    for (int64_t q = 0; q < count + kAhead; ++q) {
      if (q < count) {
        __builtin_prefetch(table.ids.data() + table.offsets[buckets[q]]);
      }
      if (q < kAhead || !queries_.valid[q - kAhead]) continue;
      const int32_t bucket = buckets[q - kAhead];
      const int64_t end = table.offsets[bucket + 1];
      for (int64_t i = table.offsets[bucket]; i < end; ++i) {
        if (Flag(seen, table.ids[i])) ids->push_back(table.ids[i]);
      }
    }
  }

  // Leaves `room` ids, of those from `before` on a uniform sample.
  static void KeepSome(int64_t before, int64_t room, Philox* random,
                       LshCandidates* found, std::vector<int64_t>* dropped) {
    std::vector<int64_t>& ids = found->ids;
    const int64_t added = ids.size() - before;
    found->last_fraction = static_cast<float>(room - before) / added;
    for (int64_t i = before; i < room; ++i) {
      std::swap(ids[i], ids[i + random->Below(ids.size() - i)]);
    }
    dropped->assign(ids.begin() + room, ids.end());
    ids.resize(room);
  }

  void MarkSample(int64_t number, int64_t sample, const IdSet& columns,
                  bool* mask) const {
    const LshTable& table = tables_.tables[number];
    for (int64_t p = 0; p < queries_.per_sample; ++p) {
      const int64_t q = sample * queries_.per_sample + p;
      if (!queries_.valid[q]) continue;
      const int32_t bucket = buckets_[number * stride_ + q];
      const int64_t end = table.offsets[bucket + 1];
      for (int64_t i = table.offsets[bucket]; i < end; ++i) {
        const int64_t column = columns.Position(table.ids[i]);
        if (column >= 0) mask[column] = true;
      }
    }
  }

  const LshTables& tables_;
  const LshQueries queries_;
  const ParallelFor& parallel_;
  int64_t stride_ = 0;
  std::vector<int32_t> buckets_;  // [tables, queries]
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_QUERY_H_
