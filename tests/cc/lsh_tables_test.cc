// LSH tables: build, merge, refresh, queries and bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "core/lsh_indexer.h"
#include "core/lsh_query.h"

namespace tfxclass {
namespace {

struct Case {
  HashFamily family;
  bool inner_product;
  int64_t bucket_size;
};
constexpr Case kCases[] = {
    {HashFamily::kSimHash, false, 0},       {HashFamily::kSimHash, true, 0},
    {HashFamily::kSparseSimHash, false, 0}, {HashFamily::kDwta, false, 0},
    {HashFamily::kDwta, true, 0},           {HashFamily::kSimHash, false, 3},
};
constexpr int64_t kDim = 9;

LshOptions OptionsOf(const Case& c) {
  LshOptions options;
  options.hash.family = c.family;
  options.hash.num_hashes = 4;
  options.hash.num_tables = 19;  // more than are hashed together
  options.hash.seed = 77;
  options.inner_product = c.inner_product;
  options.bucket_size = c.bucket_size;
  return options;
}

std::vector<float> RandomRows(int64_t count, uint64_t seed) {
  Philox random(seed);
  std::vector<float> rows(count * kDim);
  for (float& x : rows) x = random.Uniform() * 2 - 1;
  return rows;
}

ClassRows Rows(const std::vector<float>& rows) {
  return {rows.data(), static_cast<int64_t>(rows.size()) / kDim, kDim};
}

void TwoThreads(int64_t total, int64_t, const RangeBody& body) {
  std::thread other([&] { body(0, total / 3); });
  body(total / 3, total);
  other.join();
}

LshTables BuildTables(const std::vector<float>& rows, const LshOptions& options,
                      const ParallelFor& parallel = SerialFor) {
  Refreshing<LshIndexer> index;
  CHECK(index.Build(Rows(rows), options, parallel));
  return *index.ready();
}

// Buckets [tables, count] of the rows, or of queries.
std::vector<int32_t> Buckets(const LshTables& tables,
                             const std::vector<float>& rows, bool as_classes) {
  LaneRows lanes;
  const int64_t count = rows.size() / kDim;
  lanes.Resize(count, tables.functions->dim());
  for (int64_t i = 0; i < count; ++i) lanes.Set(i, &rows[i * kDim], kDim);
  std::vector<int32_t> buckets(tables.tables.size() * count);
  for (int64_t b = 0; b < lanes.blocks(); ++b) {
    if (as_classes && tables.inner_product) {
      EqualizeNorms(tables.greatest, lanes.dim, lanes.block(b));
    }
    for (size_t t = 0; t < tables.tables.size(); ++t) {
      uint32_t codes[kBlockRows];
      tables.functions->Codes(lanes.block(b), t, 1, codes, 0);
      const int64_t first = b * kBlockRows;
      tables.BucketsOf(codes, std::min(kBlockRows, count - first),
                       &buckets[t * count + first]);
    }
  }
  return buckets;
}

void EachClassIsInItsBucketsOnce() {
  for (const Case& c : kCases) {
    const auto rows = RandomRows(150, 1);
    const LshTables tables = BuildTables(rows, OptionsOf(c));
    const auto buckets = Buckets(tables, rows, true);
    for (size_t t = 0; t < tables.tables.size(); ++t) {
      const LshTable& table = tables.tables[t];
      std::vector<int64_t> sizes(table.offsets.size() - 1, 0);
      for (int64_t i = 0; i < 150; ++i) ++sizes[buckets[t * 150 + i]];
      for (size_t b = 0; b < sizes.size(); ++b) {
        const int64_t kept = table.offsets[b + 1] - table.offsets[b];
        CHECK(kept ==
              (c.bucket_size ? std::min(sizes[b], c.bucket_size) : sizes[b]));
        for (int64_t i = table.offsets[b]; i < table.offsets[b + 1]; ++i) {
          CHECK(buckets[t * 150 + table.ids[i]] == static_cast<int64_t>(b));
          if (i > table.offsets[b]) CHECK(table.ids[i] > table.ids[i - 1]);
        }
      }
    }
  }
}

// The extra coordinate of inner products makes all norms the greatest one.
void NormsAreEqualized() {
  const auto rows = RandomRows(40, 2);
  const ClassRows all = Rows(rows);
  const LaneBlocks blocks = {all, nullptr, 1};
  float greatest, row[kDim], block[(kDim + 1) * kBlockRows];
  CHECK(GreatestNorm(blocks, SerialFor, &greatest));
  CHECK(blocks.blocks() == 2);
  for (int64_t b = 0; b < blocks.blocks(); ++b) {
    blocks.Read(b, row, block);
    EqualizeNorms(greatest, kDim + 1, block);
    float squared[kBlockRows];
    SquaredNorms(block, kDim + 1, squared);
    for (const float s : squared) CHECK(std::abs(s - greatest) < 1e-5f);
  }
}

// From all rows, from touched ones, and those that are not finite.
void HalfRowsAreReadAsTheFloatsThatTheyAre() {
  for (const Case& c : kCases) {
    std::vector<float> rows = RandomRows(150, 1);
    std::vector<Bf16> half;
    for (float& x : rows) {
      half.push_back(ToBf16(x));
      x = ToFloat(half.back());
    }
    const ClassRows narrow = {nullptr, 150, kDim, half.data()};
    const std::vector<int64_t> touched = {3, 9};
    std::string bytes[2];
    for (const bool is_half : {false, true}) {
      Refreshing<LshIndexer> index;
      const ClassRows read = is_half ? narrow : Rows(rows);
      CHECK(index.Build(read, OptionsOf(c), SerialFor));
      index.Mark(touched.data(), 2);
      CHECK(index.Advance({0, 1, 1}, read, OptionsOf(c), SerialFor));
      bytes[is_half] = index.Save().pending;
    }
    CHECK(bytes[0] == bytes[1] && !bytes[0].empty());
    half[5].bits = 0x7fc0;
    CHECK(!Refreshing<LshIndexer>().Build(narrow, OptionsOf(c), SerialFor));
  }
}

void ThreadsDoNotMatter() {
  for (const Case& c : kCases) {
    const auto rows = RandomRows(200, 3);
    CHECK(LshIndexer::Write(BuildTables(rows, OptionsOf(c))) ==
          LshIndexer::Write(BuildTables(rows, OptionsOf(c), TwoThreads)));
  }
}

// What `index` becomes when the rows of `touched` are marked and refreshed.
LshTables Refreshed(const std::vector<float>& before,
                    const std::vector<float>& after,
                    const std::vector<int64_t>& touched,
                    const LshOptions& options) {
  Refreshing<LshIndexer> index;
  CHECK(index.Build(Rows(before), options, SerialFor));
  index.Mark(touched.data(), touched.size());
  CHECK(index.Advance({0, 1, 1}, Rows(after), options, SerialFor));
  CHECK(index.Advance({1, 9, 1}, Rows(after), options, SerialFor));
  LshTables tables = *index.ready();
  CHECK(tables.generation == 1);
  tables.generation = 0;
  return tables;
}

std::vector<float> Changed(std::vector<float> rows,
                           const std::vector<int64_t>& ids, float factor) {
  Philox random(9);
  for (const int64_t id : ids) {
    for (int64_t d = 0; d < kDim; ++d) {
      rows[id * kDim + d] = factor * (random.Uniform() * 2 - 1);
    }
  }
  return rows;
}

void AMergeEqualsARebuild() {
  const std::vector<int64_t> some = {0, 3, 4, 63, 64, 65, 149};
  for (const Case& c : kCases) {
    if (c.bucket_size) continue;
    auto before = RandomRows(150, 4);
    before[7 * kDim] = 5;  // the longest, which stays
    for (const auto& touched : {some, std::vector<int64_t>()}) {
      const auto after = Changed(before, touched, 0.5f);
      CHECK(
          LshIndexer::Write(Refreshed(before, after, touched, OptionsOf(c))) ==
          LshIndexer::Write(BuildTables(after, OptionsOf(c))));
    }
    // A touched row that is longer than all calls for a rebuild.
    const auto longer = Changed(before, some, 20.0f);
    CHECK(LshIndexer::Write(Refreshed(before, longer, some, OptionsOf(c))) ==
          LshIndexer::Write(BuildTables(longer, OptionsOf(c))));
  }
}

// Marks may be of rows that the kernel does not have.
void RowsThatAreNotThereAreLeftOut() {
  const std::vector<int64_t> some = {3, 149, 191, 1000, 100000000};
  const auto before = RandomRows(150, 4);
  const auto after = Changed(before, {3, 149}, 1);
  const LshOptions options = OptionsOf(kCases[0]);
  CHECK(LshIndexer::Write(Refreshed(before, after, some, options)) ==
        LshIndexer::Write(BuildTables(after, options)));
}

// Rows that are not marked keep their old buckets, unless all are hashed.
void OnlyTouchedRowsMove() {
  const LshOptions options = OptionsOf(kCases[0]);
  const auto before = RandomRows(150, 5);
  const std::vector<int64_t> moved = {1, 2, 3, 4, 5}, marked = {1, 2};
  const auto after = Changed(before, moved, 1);
  const auto half = Changed(before, marked, 1);
  CHECK(LshIndexer::Write(Refreshed(before, after, marked, options)) ==
        LshIndexer::Write(BuildTables(half, options)));
  LshOptions all = options;
  all.incremental = false;
  CHECK(LshIndexer::Write(Refreshed(before, after, marked, all)) ==
        LshIndexer::Write(BuildTables(after, options)));
  std::vector<int64_t> most(100);
  for (int64_t i = 0; i < 100; ++i) most[i] = i + 50;
  CHECK(LshIndexer::Write(Refreshed(before, after, most, options)) ==
        LshIndexer::Write(BuildTables(after, options)));
}

void ACutBucketStaysCutInAMerge() {
  const LshOptions options = OptionsOf({HashFamily::kSimHash, false, 3});
  const auto before = RandomRows(150, 6);
  const std::vector<int64_t> touched = {10, 20, 30};
  const auto after = Changed(before, touched, 1);
  const LshTables merged = Refreshed(before, after, touched, options);
  const auto buckets = Buckets(merged, after, true);
  for (size_t t = 0; t < merged.tables.size(); ++t) {
    const LshTable& table = merged.tables[t];
    for (size_t b = 0; b + 1 < table.offsets.size(); ++b) {
      CHECK(table.offsets[b + 1] - table.offsets[b] <= 3);
      for (int64_t i = table.offsets[b]; i < table.offsets[b + 1]; ++i) {
        CHECK(buckets[t * 150 + table.ids[i]] == static_cast<int64_t>(b));
      }
    }
  }
}

void FunctionsAreDrawnAnewWhenDue() {
  LshOptions options = OptionsOf(kCases[0]);
  options.redraw_interval = 3;
  const auto rows = RandomRows(100, 7);
  Refreshing<LshIndexer> index;
  std::vector<const HashFunctions*> seen;
  std::vector<std::shared_ptr<const LshTables>> kept;
  for (int64_t step = 0; step < 8; ++step) {
    CHECK(index.Advance({step, 1, 1}, Rows(rows), options, SerialFor));
    if (step == 0) continue;
    kept.push_back(index.ready());
    seen.push_back(kept.back()->functions.get());
    CHECK(kept.back()->generation == step - 1);
  }
  CHECK(seen[0] == seen[1] && seen[1] == seen[2]);
  CHECK(seen[3] == seen[4] && seen[4] == seen[5] && seen[5] != seen[6]);
  CHECK(seen[2]->planes() != seen[3]->planes());
}

// Queries [samples, 2]; the second of every third sample does not count.
struct Batch {
  std::vector<float> values = RandomRows(24, 8);
  bool valid[24];
  LshQueries queries;

  Batch() : queries{values.data(), valid, 12, 2} {
    for (int64_t q = 0; q < 24; ++q) valid[q] = q % 6 != 1;
  }
};

// Votes of each class, [classes], the most that a query of the sample gives.
std::vector<int64_t> PlainVotes(const LshTables& tables, const Batch& batch,
                                const std::vector<float>& rows,
                                int64_t sample) {
  const auto of_rows = Buckets(tables, rows, true);
  const auto of_queries = Buckets(tables, batch.values, false);
  std::vector<int64_t> most(tables.count, 0);
  const int64_t num_tables = tables.tables.size();
  for (int64_t q = 2 * sample; q < 2 * sample + 2; ++q) {
    for (int64_t i = 0; batch.valid[q] && i < tables.count; ++i) {
      int64_t votes = 0;
      for (int64_t t = 0; t < num_tables; ++t) {
        votes += of_rows[t * tables.count + i] == of_queries[t * 24 + q];
      }
      most[i] = std::max(most[i], votes);
    }
  }
  return most;
}

void CheckMembers(const std::vector<std::vector<int64_t>>& votes,
                  const LshCandidates& found, const LshSearcher& searcher) {
  const std::vector<int64_t> ids = {5, 0, 299, 7, 100, 101};
  bool mask[12 * 6] = {};
  searcher.Members(found.probed, found.least_votes, ids.data(), 6, mask);
  for (int64_t s = 0; s < 12; ++s) {
    for (int64_t j = 0; j < 6; ++j) {
      CHECK(mask[s * 6 + j] == (votes[s][ids[j]] >= found.least_votes));
    }
  }
}

// All with more than the least votes, as many of these as fit, none with fewer.
void CheckKept(const std::vector<int64_t>& most, int64_t room,
               const LshCandidates& found) {
  const std::set<int64_t> ids(found.ids.begin(), found.ids.end());
  CHECK(ids.size() == found.ids.size());
  int64_t pool = 0, with_least = 0, kept_least = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(most.size()); ++i) {
    pool += most[i] > 0;
    if (most[i] == found.least_votes) {
      ++with_least;
      kept_least += ids.count(i);
    } else {
      CHECK(ids.count(i) == (most[i] > found.least_votes));
    }
  }
  const int64_t size = ids.size();
  CHECK(found.pool == pool);
  CHECK(size == std::max<int64_t>(std::min(room, pool), 0));
  // Of those with the least votes, the least priorities, in their order.
  std::vector<std::pair<uint64_t, int64_t>> last;
  for (int64_t i = 0; i < static_cast<int64_t>(most.size()); ++i) {
    if (most[i] != found.least_votes) continue;
    last.emplace_back(BucketPriority(1, 0, i), i);
  }
  std::sort(last.begin(), last.end());
  for (int64_t i = 0; i < kept_least; ++i) {
    CHECK(found.ids[size - kept_least + i] == last[i].second);
  }
  const double fraction = with_least ? 1.0 * kept_least / with_least : 1;
  CHECK(std::abs(found.last_fraction - fraction) < 1e-6);
}

void QueriesKeepTheMostVoted() {
  for (const Case& c : kCases) {
    if (c.bucket_size) continue;
    const auto rows = RandomRows(300, 9);
    const LshTables tables = BuildTables(rows, OptionsOf(c));
    const Batch batch;
    std::vector<std::vector<int64_t>> votes;
    std::vector<int64_t> most(300, 0);
    for (int64_t s = 0; s < 12; ++s) {
      votes.push_back(PlainVotes(tables, batch, rows, s));
      for (int64_t i = 0; i < 300; ++i)
        most[i] = std::max(most[i], votes[s][i]);
    }
    most[5] = most[200] = 0;
    const std::vector<int64_t> targets = {5, -1, 200};
    const ParallelFor parallel = TwoThreads;
    LshMarks marks;
    LshSearcher searcher(tables, batch.queries, parallel);
    for (const int64_t room : {1000, 60, 1, 0, -3}) {
      const LshCandidates found =
          searcher.Find(targets.data(), 3, room, 1, &marks);
      CHECK(found.probed.size() == 19);
      CheckKept(most, room, found);
      CheckMembers(votes, found, searcher);
    }
    CHECK(marks.num_idle() == 1);
  }
}

bool ReadsAndQueries(const std::string& bytes) {
  // A copy of just that size: reading past the end is seen.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  LshTables tables;
  if (!LshIndexer::Read(copy.data(), copy.size(), &tables)) return false;
  if (tables.dim != kDim) return true;
  const Batch batch;
  const ParallelFor parallel = SerialFor;
  LshMarks marks;
  LshSearcher searcher(tables, batch.queries, parallel);
  for (const int64_t id : searcher.Find(nullptr, 0, 50, 1, &marks).ids) {
    CHECK(id >= 0 && id < tables.count);
  }
  return true;
}

void GarbageIsRefusedOrHarmless() {
  constexpr int kMasks[] = {1, 0x80, 0xff};
  size_t number = 0;
  for (const Case& c : kCases) {
    LshOptions options = OptionsOf(c);
    options.hash.num_tables = 2;
    options.hash.num_hashes = 2;
    const std::string bytes =
        LshIndexer::Write(BuildTables(RandomRows(20, 3), options));
    CHECK(ReadsAndQueries(bytes));
    for (size_t size = 0; size < bytes.size(); size += 3) {
      CHECK(!ReadsAndQueries(bytes.substr(0, size)));
    }
    CHECK(!ReadsAndQueries(bytes + "x"));
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (size_t way = 0; way < 3; ++way) {
        // The sanitizer sees each byte changed in each way in two of the cases.
        if (kIsSanitized && way != (i + number) % 3) continue;
        std::string flipped = bytes;
        flipped[i] ^= kMasks[way];
        ReadsAndQueries(flipped);
      }
    }
    ++number;
  }
}

// What is kept on a GPU has room for each class once.
void MoreIdsThanClassesAreRefused() {
  LshTables tables = BuildTables(RandomRows(20, 3), OptionsOf(kCases[0]));
  CHECK(ReadsAndQueries(LshIndexer::Write(tables)));
  LshTable& last = tables.tables.back();
  last.ids.push_back(last.ids.back());
  ++last.offsets.back();
  CHECK(!ReadsAndQueries(LshIndexer::Write(tables)));
}

void OddSizes() {
  for (const Case& c : kCases) {
    for (const int64_t count : {1, 2, 33}) {
      for (const float value : {0.0f, 1.0f}) {  // zero rows, rows that coincide
        const std::vector<float> rows(count * kDim, value);
        const LshTables tables = BuildTables(rows, OptionsOf(c));
        for (const LshTable& table : tables.tables) {
          const int64_t kept =
              c.bucket_size ? std::min(count, c.bucket_size) : count;
          CHECK(static_cast<int64_t>(table.ids.size()) == kept);
        }
      }
    }
  }
  std::vector<float> rows = RandomRows(40, 1);
  rows[17] = NAN;
  Refreshing<LshIndexer> index;
  CHECK(!index.Build(Rows(rows), OptionsOf(kCases[0]), SerialFor));
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::EachClassIsInItsBucketsOnce();
  tfxclass::NormsAreEqualized();
  tfxclass::HalfRowsAreReadAsTheFloatsThatTheyAre();
  tfxclass::ThreadsDoNotMatter();
  tfxclass::AMergeEqualsARebuild();
  tfxclass::RowsThatAreNotThereAreLeftOut();
  tfxclass::OnlyTouchedRowsMove();
  tfxclass::ACutBucketStaysCutInAMerge();
  tfxclass::FunctionsAreDrawnAnewWhenDue();
  tfxclass::QueriesKeepTheMostVoted();
  tfxclass::GarbageIsRefusedOrHarmless();
  tfxclass::MoreIdsThanClassesAreRefused();
  tfxclass::OddSizes();
}
