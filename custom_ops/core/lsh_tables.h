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
#include <cmath>
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

  // Of the largest table: buckets that were cut have fewer than all classes.
  int64_t most_ids() const {
    size_t most = 0;
    for (const LshTable& table : tables) {
      most = std::max(most, table.ids.size());
    }
    return most;
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
      : result_(*result), parallel_(parallel) {
    result_.tables.resize(num_tables());
  }

  // From all rows, which are hashed for some tables at a time.
  void Build(const LaneBlocks& rows) {
    constexpr int64_t kMostCodes = int64_t{1} << 25;  // held at a time
    const int64_t stride = rows.blocks() * kBlockRows;
    const int64_t together =
        std::clamp<int64_t>(kMostCodes / stride, 1, num_tables());
    std::vector<uint32_t> codes(together * stride);
    for (int64_t first = 0; first < num_tables(); first += together) {
      const int64_t num = std::min(num_tables() - first, together);
      Hash(rows, first, num, codes.data());
      Sort(codes.data(), stride, first, num);
    }
  }

  // From the codes of all rows, [tables, rows].
  void Build(const std::vector<uint32_t>& codes) {
    Sort(codes.data(), result_.count, 0, num_tables());
  }

  // Codes of `rows` for all tables, each [blocks, 32].
  std::vector<uint32_t> CodesOf(const LaneBlocks& rows) const {
    std::vector<uint32_t> codes(num_tables() * rows.blocks() * kBlockRows);
    Hash(rows, 0, num_tables(), codes.data());
    return codes;
  }

  // From `old` and the rows `ids`, rising, of these codes.
  void Merge(const LshTables& old, const std::vector<int64_t>& ids,
             const std::vector<uint32_t>& codes) {
    TouchedRows touched;
    touched.Mark(ids.data(), ids.size());
    const int64_t stride = codes.size() / num_tables(), count = ids.size();
    ForTables(num_tables(), [&](int64_t t) {
      const LshTable added = SortIds(codes.data() + t * stride, count, &ids);
      result_.tables[t] = Cut(t, MergeTable(old.tables[t], touched, added));
    });
  }

 private:
  int64_t num_tables() const { return result_.functions->options().num_tables; }

  // Codes for tables [first, first + num), each [blocks, 32].
  void Hash(const LaneBlocks& rows, int64_t first, int64_t num,
            uint32_t* codes) const {
    const HashFunctions& functions = *result_.functions;
    const int64_t stride = rows.blocks() * kBlockRows;
    const int64_t cost = kBlockRows * (num * functions.Cost() + rows.dim());
    parallel_(rows.blocks(), cost, [&](int64_t begin, int64_t end) {
      std::vector<float> row(rows.rows.dim), block(rows.dim() * kBlockRows);
      for (int64_t b = begin; b < end; ++b) {
        rows.Read(b, row.data(), block.data());
        if (result_.inner_product) {
          EqualizeNorms(result_.greatest, rows.dim(), block.data());
        }
        functions.Codes(block.data(), first, num, codes + b * kBlockRows,
                        stride);
      }
    });
  }

  // Tables [first, first + num) of all rows, from their codes, `stride` apart.
  void Sort(const uint32_t* codes, int64_t stride, int64_t first, int64_t num) {
    ForTables(num, [&](int64_t t) {
      result_.tables[first + t] =
          Cut(first + t, SortIds(codes + t * stride, result_.count, nullptr));
    });
  }

  template <typename Body>
  void ForTables(int64_t num, const Body& body) const {
    parallel_(num, result_.count * 5, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) body(t);
    });
  }

  // A counting sort of `ids`, or 0, 1, ..., by the bucket of their code;
  // stable.
  LshTable SortIds(const uint32_t* codes, int64_t count,
                   const std::vector<int64_t>* ids) const {
    constexpr int64_t kCost = 5;
    const auto bucket = [code_bits = result_.functions->options().bits(),
                         range_bits = result_.range_bits()](uint32_t code) {
      return LshBucket(code, code_bits, range_bits);
    };
    LshTable table;
    table.offsets.assign((int64_t{1} << result_.range_bits()) + 2, 0);
    // One place further: after the second pass each is its bucket's begin.
    parallel_.InOrder(count, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ++table.offsets[bucket(codes[i]) + 2];
      }
    });
    for (size_t b = 2; b < table.offsets.size(); ++b) {
      table.offsets[b] += table.offsets[b - 1];
    }
    table.ids.resize(count);
    parallel_.InOrder(count, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        table.ids[table.offsets[bucket(codes[i]) + 1]++] = ids ? (*ids)[i] : i;
      }
    });
    table.offsets.pop_back();
    return table;
  }

  LshTable MergeTable(const LshTable& old, const TouchedRows& touched,
                      const LshTable& added) const {
    LshTable merged;
    merged.offsets.reserve(old.offsets.size());
    merged.ids.resize(old.ids.size() + added.ids.size());
    merged.offsets.push_back(0);
    int32_t* to = merged.ids.data();
    for (size_t b = 0; b + 1 < old.offsets.size(); ++b) {
      parallel_.Check();
      int64_t next = added.offsets[b];
      const int64_t end = added.offsets[b + 1];
      for (int64_t i = old.offsets[b]; i < old.offsets[b + 1]; ++i) {
        const int32_t id = old.ids[i];
        if (touched.Contains(id)) continue;
        while (next < end && added.ids[next] < id) *to++ = added.ids[next++];
        *to++ = id;
      }
      while (next < end) *to++ = added.ids[next++];
      merged.offsets.push_back(to - merged.ids.data());
    }
    merged.ids.resize(to - merged.ids.data());
    return merged;
  }

  // Leaves bucket_size ids in each bucket.
  LshTable Cut(int64_t number, LshTable table) const {
    const int64_t limit = result_.bucket_size;
    if (limit == 0) return table;
    const uint64_t seed = result_.functions->options().seed;
    std::vector<uint64_t> priorities, least;
    int32_t* to = table.ids.data();
    for (size_t b = 0; b + 1 < table.offsets.size(); ++b) {
      parallel_.Check();
      const int32_t* begin = table.ids.data() + table.offsets[b];
      const int64_t size = table.ids.data() + table.offsets[b + 1] - begin;
      table.offsets[b] = to - table.ids.data();
      priorities.resize(size > limit ? size : 0);
      for (size_t i = 0; i < priorities.size(); ++i) {
        priorities[i] = BucketPriority(seed, number, begin[i]);
      }
      // No two ids of a bucket have the same.
      const uint64_t most = MostOfLeast(priorities, limit, &least);
      for (int64_t i = 0; i < size; ++i) {
        *to = begin[i];
        to += priorities.empty() || priorities[i] <= most;
      }
    }
    table.offsets.back() = to - table.ids.data();
    table.ids.resize(table.offsets.back());
    table.ids.shrink_to_fit();
    return table;
  }

  // The greatest of the `count` least values; `some` is scratch memory.
  static uint64_t MostOfLeast(const std::vector<uint64_t>& values,
                              int64_t count, std::vector<uint64_t>* some) {
    const size_t size = values.size();
    if (size == 0) return 0;
    // Of uniform values, below this lie the least and few more.
    const double wanted = count + 4 * std::sqrt(count);
    const uint64_t bound = std::min(wanted / size, 0.99) * 0x1p64;
    some->resize(size);
    int64_t num = 0;
    for (const uint64_t value : values) {
      (*some)[num] = value;
      num += value < bound;
    }
    if (num < count) std::copy(values.begin(), values.end(), some->begin());
    const auto end = num < count ? some->end() : some->begin() + num;
    std::nth_element(some->begin(), some->begin() + (count - 1), end);
    return (*some)[count - 1];
  }

  LshTables& result_;
  const ParallelFor& parallel_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_TABLES_H_
