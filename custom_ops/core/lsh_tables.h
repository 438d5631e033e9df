// Hash tables of the class rows, flat: what LSH sampling looks negatives up in.
//
// A table is a counting sort of the class ids by their bucket: offsets
// [buckets + 1] and ids, rising within a bucket: 4 bytes a class and table, and
// 4 a bucket. A bucket is a code of K functions; where 2^bits is more than
// about 16 buckets a class (2^18 at most) the code is hashed into that many,
// which joins classes of different codes at random, fewer than one a bucket
// below 2^18 classes.
//
// With a bucket_size, a bucket keeps that many of its ids: those with the
// least random priorities, a function of (seed, table, id). It is the uniform
// sample that a reservoir keeps, without depending on the order.
//
// Rows that were touched are inserted again by one merge of each table: old
// ids less the touched ones, and those by their new codes. Nothing but the
// touched rows is hashed, and the result is that of a rebuild with the same
// functions, bit for bit, unless a bucket was cut: what it dropped comes back
// with the next rebuild. (A list of changes beside the tables would be read by
// every query; room left in the buckets would double them.) With `inner
// product` (below), a touched row longer than all of the rebuild's calls for a
// rebuild.
//
// Codes collide by angle. For inner products, class rows get one more
// coordinate, sqrt(max |w|^2 - |w|^2), which makes their norms equal, and
// queries a 0 (Neyshabur and Srebro, ICML 2015).
//
// Built tables are immutable: any number of threads may query them.
#ifndef TFXCLASS_CORE_LSH_TABLES_H_
#define TFXCLASS_CORE_LSH_TABLES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/hash_functions.h"
#include "core/lane_rows.h"
#include "core/lsh_bucket.h"
#include "core/parallel.h"
#include "core/touched_rows.h"

namespace tfxclass {

struct LshTable {
  std::vector<int32_t> offsets;  // [buckets + 1], of ids
  std::vector<int32_t> ids;
};

struct LshTables {
  int64_t count = 0, dim = 0;  // of the class rows
  int64_t generation = 0;      // refreshes before this one
  int64_t bucket_size = 0;     // 0: all are kept
  float greatest = 0;          // squared norm; 0 without inner products
  bool inner_product = false;
  std::shared_ptr<const HashFunctions> functions;
  std::vector<LshTable> tables;

  int range_bits() const {
    const int most = std::min(18, CeilLog2(count) + 4);
    return std::min(functions->options().bits(), most);
  }

  // Buckets of n codes.
  void BucketsOf(const uint32_t* codes, int64_t n, int32_t* buckets) const {
    const int code_bits = functions->options().bits(), range = range_bits();
    for (int64_t i = 0; i < n; ++i) {
      buckets[i] = LshBucket(codes[i], code_bits, range);
    }
  }
};

class LshBuilder {
 public:
  // `result` has all but its tables; its functions are drawn.
  LshBuilder(LshTables* result, const ParallelFor& parallel)
      : result_(*result), parallel_(parallel) {}

  // From all rows.
  void Build(LaneRows* rows) {
    ForGroups(rows, [&](int64_t table, const uint32_t* codes) {
      const std::vector<int32_t> bucket = BucketsOf(codes, rows->count);
      result_.tables[table] = Cut(table, Sort(bucket, nullptr));
    });
  }

  // From `old` and the rows `ids`, rising.
  void Merge(const LshTables& old, const std::vector<int64_t>& ids,
             LaneRows* rows) {
    TouchedRows touched;
    touched.Mark(ids.data(), ids.size());
    ForGroups(rows, [&](int64_t table, const uint32_t* codes) {
      const LshTable added = Sort(BucketsOf(codes, rows->count), &ids);
      result_.tables[table] =
          Cut(table, MergeTable(old.tables[table], touched, added));
    });
  }

 private:
  // Hashes rows for some tables at a time and calls body(table, codes).
  template <typename Body>
  void ForGroups(LaneRows* rows, const Body& body) {
    const HashFunctions& functions = *result_.functions;
    const int64_t num_tables = functions.options().num_tables;
    const int64_t stride = rows->blocks() * kBlockRows;
    constexpr int64_t kTogether = 16;
    std::vector<uint32_t> codes(std::min(num_tables, kTogether) * stride);
    result_.tables.resize(num_tables);
    if (result_.inner_product) {
      for (int64_t b = 0; b < rows->blocks(); ++b) {
        EqualizeNorms(result_.greatest, rows->dim, rows->block(b));
      }
    }
    for (int64_t first = 0; first < num_tables; first += kTogether) {
      const int64_t num = std::min(num_tables - first, kTogether);
      parallel_(rows->blocks(), kBlockRows * num * functions.Cost(),
                [&](int64_t begin, int64_t end) {
                  for (int64_t b = begin; b < end; ++b) {
                    functions.Codes(rows->block(b), first, num,
                                    codes.data() + b * kBlockRows, stride);
                  }
                });
      parallel_(num, result_.count * 5, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          body(first + t, codes.data() + t * stride);
        }
      });
    }
  }

  std::vector<int32_t> BucketsOf(const uint32_t* codes, int64_t count) const {
    std::vector<int32_t> buckets(count);
    result_.BucketsOf(codes, count, buckets.data());
    return buckets;
  }

  // A counting sort of `ids`, or 0, 1, ..., by bucket; stable.
  LshTable Sort(const std::vector<int32_t>& buckets,
                const std::vector<int64_t>* ids) const {
    LshTable table;
    table.offsets.assign((int64_t{1} << result_.range_bits()) + 2, 0);
    // One place further: after the second pass each is its bucket's begin.
    for (const int32_t bucket : buckets) ++table.offsets[bucket + 2];
    for (size_t b = 2; b < table.offsets.size(); ++b) {
      table.offsets[b] += table.offsets[b - 1];
    }
    table.ids.resize(buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      table.ids[table.offsets[buckets[i] + 1]++] = ids ? (*ids)[i] : i;
    }
    table.offsets.pop_back();
    return table;
  }

  static LshTable MergeTable(const LshTable& old, const TouchedRows& touched,
                             const LshTable& added) {
    LshTable merged;
    merged.offsets.reserve(old.offsets.size());
    merged.ids.reserve(old.ids.size() + added.ids.size());
    merged.offsets.push_back(0);
    for (size_t b = 0; b + 1 < old.offsets.size(); ++b) {
      int64_t next = added.offsets[b];
      const int64_t end = added.offsets[b + 1];
      for (int64_t i = old.offsets[b]; i < old.offsets[b + 1]; ++i) {
        const int32_t id = old.ids[i];
        if (touched.Contains(id)) continue;
        while (next < end && added.ids[next] < id) {
          merged.ids.push_back(added.ids[next++]);
        }
        merged.ids.push_back(id);
      }
      while (next < end) merged.ids.push_back(added.ids[next++]);
      merged.offsets.push_back(merged.ids.size());
    }
    return merged;
  }

  // Leaves bucket_size ids in each bucket.
  LshTable Cut(int64_t number, LshTable table) const {
    const int64_t limit = result_.bucket_size;
    if (limit == 0) return table;
    const uint64_t seed = result_.functions->options().seed;
    std::vector<std::pair<uint64_t, int32_t>> keyed;
    int32_t* to = table.ids.data();
    for (size_t b = 0; b + 1 < table.offsets.size(); ++b) {
      const int32_t* begin = table.ids.data() + table.offsets[b];
      const int32_t* end = table.ids.data() + table.offsets[b + 1];
      table.offsets[b] = to - table.ids.data();
      if (end - begin <= limit) {
        to = std::copy(begin, end, to);
        continue;
      }
      keyed.clear();
      for (const int32_t* id = begin; id < end; ++id) {
        keyed.emplace_back(BucketPriority(seed, number, *id), *id);
      }
      std::nth_element(keyed.begin(), keyed.begin() + limit, keyed.end());
      int32_t* const first = to;
      for (int64_t i = 0; i < limit; ++i) *to++ = keyed[i].second;
      std::sort(first, to);
    }
    table.offsets.back() = to - table.ids.data();
    table.ids.resize(table.offsets.back());
    table.ids.shrink_to_fit();
    return table;
  }

  LshTables& result_;
  const ParallelFor& parallel_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_TABLES_H_
