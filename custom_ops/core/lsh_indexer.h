// How LSH tables are refreshed and saved: the Indexer of
// Refreshing<LshIndexer>.
//
// A refresh hashes the touched rows alone, unless the options or sizes
// changed, new hash functions are due, over an eighth of the rows were touched,
// or, for inner products, a row outgrew the greatest norm. New functions come
// every `redraw_interval` refreshes.
//
// Rows are hashed where they lie, while training waits: their codes are less
// than a copy of them. Of the touched rows the codes are kept, to be merged in
// the background. All rows of the host become tables at once; the codes of a
// device's rows are kept, and become tables in the background.
#ifndef TFXCLASS_CORE_LSH_INDEXER_H_
#define TFXCLASS_CORE_LSH_INDEXER_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/lsh_query.h"
#include "core/lsh_tables.h"
#include "core/refreshing.h"
#include "core/touched_rows.h"

namespace tfxclass {

struct LshOptions {
  HashOptions hash;
  bool inner_product = false;
  bool incremental = true;
  int64_t bucket_size = 0;      // 0: all are kept
  int64_t redraw_interval = 0;  // in refreshes; 0: never
};

// Flat bytes of LSH tables and back.
struct LshBytes {
  static std::string Write(const LshTables& tables) {
    ByteWriter out;
    out.Put(tables.count);
    out.Put(tables.dim);
    out.Put(tables.generation);
    out.Put(tables.bucket_size);
    out.Put(tables.greatest);
    out.Put(static_cast<int32_t>(tables.inner_product));
    tables.functions->Write(&out);
    for (const LshTable& table : tables.tables) {
      out.PutAll(table.offsets);
      out.PutAll(table.ids);
    }
    return out.Take();
  }

  // False if the bytes are no LSH tables.
  static bool Read(const char* data, size_t size, LshTables* tables) {
    ByteReader in(data, size);
    int32_t inner_product;
    auto functions = std::make_shared<HashFunctions>();
    if (!in.Get(&tables->count) || !in.Get(&tables->dim) ||
        !in.Get(&tables->generation) || !in.Get(&tables->bucket_size) ||
        !in.Get(&tables->greatest) || !in.Get(&inner_product) ||
        !functions->Read(&in) || tables->count < 1 ||
        tables->count > INT32_MAX || inner_product < 0 || inner_product > 1 ||
        tables->dim < 1 || tables->dim != functions->dim() - inner_product ||
        !(tables->greatest >= 0) || !std::isfinite(tables->greatest)) {
      return false;
    }
    tables->inner_product = inner_product;
    tables->functions = functions;
    const int64_t num_tables = functions->options().num_tables;
    for (int64_t t = 0; t < num_tables; ++t) {
      LshTable table;
      if (!in.GetAll(&table.offsets) || !in.GetAll(&table.ids) ||
          !IsSound(*tables, table)) {
        return false;
      }
      tables->tables.push_back(std::move(table));
    }
    return in.left() == 0;
  }

 private:
  static bool IsSound(const LshTables& tables, const LshTable& table) {
    const size_t buckets = size_t{1} << tables.range_bits();
    // More ids than classes would not fit where a GPU keeps them.
    if (static_cast<int64_t>(table.ids.size()) > tables.count ||
        table.offsets.size() != buckets + 1 || table.offsets[0] != 0 ||
        table.offsets[buckets] != static_cast<int64_t>(table.ids.size())) {
      return false;
    }
    const int64_t size = table.ids.size();
    for (size_t b = 0; b < buckets; ++b) {
      const int64_t begin = table.offsets[b], end = table.offsets[b + 1];
      if (begin > end || end > size) return false;
      // Rising: a class is in it once, and queries search it.
      for (int64_t i = begin; i < end; ++i) {
        const int64_t least = i == begin ? 0 : int64_t{table.ids[i - 1]} + 1;
        if (table.ids[i] < least || table.ids[i] >= tables.count) return false;
      }
    }
    return true;
  }
};

// What a refresh reads of class vectors on the host. Rows on a GPU have the
// same three functions, in kernels/lsh_device_rows.h.

// The greatest squared norm of the rows `ids`, or of all where it is null.
// False if a row is not finite.
inline bool GreatestNorm(const ClassRows& rows, const std::vector<int64_t>* ids,
                         const ParallelFor& parallel, float* greatest) {
  return GreatestNorm(LaneBlocks{rows, ids, 0}, parallel, greatest);
}

// Codes of the rows `ids` for each table of `next`, one table after the other.
inline bool HashTouched(const ClassRows& rows, const std::vector<int64_t>& ids,
                        const ParallelFor& parallel, LshTables* next,
                        std::vector<uint32_t>* codes) {
  *codes = LshBuilder(next, parallel)
               .CodesOf(LaneBlocks{rows, &ids, next->inner_product});
  return true;
}

// All rows: their tables, or their codes, [tables, rows].
inline bool HashAll(const ClassRows& rows, const ParallelFor& parallel,
                    LshTables* next, std::vector<uint32_t>* /*codes*/) {
  LshBuilder(next, parallel)
      .Build(LaneBlocks{rows, nullptr, next->inner_product});
  return true;
}

struct LshIndexer : LshBytes {
  using Index = LshTables;
  using Options = LshOptions;
  using Marks = LshMarks;
  static constexpr char kName[] = "set of LSH tables";

  struct Source {
    std::vector<int64_t> ids;             // touched, where `latest`
    std::vector<uint32_t> codes;          // theirs, or of all rows
    std::shared_ptr<const Index> latest;  // merged into; null: next is built
    LshTables next;                       // has tables, or gets them of codes
  };

  template <class Rows>
  static bool Take(const Rows& rows, const Options& options,
                   const std::shared_ptr<const Index>& latest,
                   const TouchedRows& touched, const ParallelFor& parallel,
                   Source* source) {
    const bool same_functions =
        Prepare(rows.count, rows.dim, options, latest.get(), parallel, source);
    LshTables& next = source->next;
    source->latest = nullptr;
    if (options.incremental && same_functions &&
        latest->bucket_size == options.bucket_size) {
      source->ids = touched.Ids(rows.count);
      const int64_t num_touched = source->ids.size();
      if (num_touched <= rows.count / 8) {
        if (!Measure(rows, &source->ids, parallel, &next)) return false;
        if (next.greatest <= latest->greatest) {
          next.greatest = latest->greatest;
          source->latest = latest;
          return HashTouched(rows, source->ids, parallel, &next,
                             &source->codes);
        }
      }
    }
    return Measure(rows, nullptr, parallel, &next) &&
           HashAll(rows, parallel, &next, &source->codes);
  }

  static Index Build(Source* source, const ParallelFor& parallel) {
    Index tables = std::move(source->next);
    if (source->latest) {
      LshBuilder(&tables, parallel)
          .Merge(*source->latest, source->ids, source->codes);
    } else if (tables.tables.empty()) {
      LshBuilder(&tables, parallel).Build(source->codes);
    }
    source->latest = nullptr;  // to be freed when no query uses it
    return tables;
  }

  static int64_t NumRows(const Index& tables) { return tables.count; }

 private:
  // The greatest norm, 0 where it is not used. False if rows are not finite.
  template <class Rows>
  static bool Measure(const Rows& rows, const std::vector<int64_t>* ids,
                      const ParallelFor& parallel, LshTables* next) {
    const bool finite = GreatestNorm(rows, ids, parallel, &next->greatest);
    if (!next->inner_product) next->greatest = 0;
    return finite;
  }

  // All of `next` but the greatest norm and the tables. Returns whether its
  // functions are those of `latest`.
  static bool Prepare(int64_t count, int64_t dim, const Options& options,
                      const Index* latest, const ParallelFor& parallel,
                      Source* source) {
    LshTables& next = source->next;
    next = LshTables();
    next.count = count;
    next.dim = dim;
    next.generation = latest ? latest->generation + 1 : 0;
    next.bucket_size = options.bucket_size;
    next.inner_product = options.inner_product;
    HashOptions hash = options.hash;
    if (options.redraw_interval > 0) {
      const uint64_t drawn = next.generation / options.redraw_interval;
      hash.seed += drawn * 0x9E3779B97F4A7C15ull;
    }
    if (latest && latest->count == count && latest->dim == dim &&
        latest->inner_product == options.inner_product &&
        latest->functions->options() == hash) {
      next.functions = latest->functions;
      return true;
    }
    next.functions = std::make_shared<HashFunctions>(
        hash, dim + options.inner_product, parallel);
    return false;
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_INDEXER_H_
