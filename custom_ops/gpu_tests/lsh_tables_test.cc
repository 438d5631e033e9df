// LSH tables against core/lsh_tables.h and core/lsh_query.h.
#include "core/lsh_tables.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/lsh_query.h"
#include "gpu_tests/harness.h"
#include "kernels/lsh_query.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::GpuLshFound;
using tfxclass::GpuLshQueries;
using tfxclass::GpuLshTables;
using tfxclass::HashFunctions;
using tfxclass::LaneRows;
using tfxclass::LshTables;
using tfxclass::SerialFor;

LaneRows Lanes(const std::vector<float>& rows, int64_t dim) {
  LaneRows lanes;
  const int64_t count = rows.size() / dim;
  lanes.Resize(count, dim);
  for (int64_t i = 0; i < count; ++i) lanes.Set(i, &rows[i * dim], dim);
  return lanes;
}

// codes [tables, count].
std::vector<int32_t> CodesOf(const HashFunctions& functions,
                             const std::vector<float>& rows, int64_t dim) {
  const LaneRows lanes = Lanes(rows, dim);
  const int64_t num_tables = functions.options().num_tables;
  std::vector<int32_t> codes(num_tables * lanes.count);
  for (int64_t i = 0; i < lanes.count; ++i) {
    for (int64_t t = 0; t < num_tables; ++t) {
      uint32_t block[tfxclass::kBlockRows];
      functions.Codes(lanes.block(i / tfxclass::kBlockRows), t, 1, block, 0);
      codes[t * lanes.count + i] = block[i % tfxclass::kBlockRows];
    }
  }
  return codes;
}

// The same tables on both.
struct Both {
  Both(int64_t count, int64_t dim, int64_t num_hashes,
       int64_t bucket_size = 0) {
    Random random(count);
    rows = random.Normal(count * dim);
    tfxclass::HashOptions options;
    options.num_hashes = num_hashes;
    options.num_tables = 6;
    options.seed = 3;
    expected.count = count;
    expected.dim = dim;
    expected.bucket_size = bucket_size;
    expected.functions = std::make_shared<HashFunctions>(options, dim);
    const tfxclass::ClassRows class_rows = {rows.data(), count, dim};
    tfxclass::LshBuilder(&expected, SerialFor).Build({class_rows, nullptr, 0});

    tables.count = count;
    tables.num_tables = options.num_tables;
    tables.code_bits = options.bits();
    tables.range_bits = expected.range_bits();
    tables.most_ids = expected.most_ids();
    std::vector<int32_t> all_offsets, all_ids;
    for (const auto& table : expected.tables) {
      all_offsets.insert(all_offsets.end(), table.offsets.begin(),
                         table.offsets.end());
      all_ids.insert(all_ids.end(), table.ids.begin(), table.ids.end());
      all_ids.resize(all_offsets.size() / table.offsets.size() *
                     tables.most_ids);
    }
    offsets = std::make_unique<Buffer<int32_t>>(all_offsets);
    ids = std::make_unique<Buffer<int32_t>>(all_ids);
    tables.offsets = offsets->data();
    tables.ids = ids->data();
  }

  std::vector<float> rows;
  LshTables expected;
  GpuLshTables tables;
  std::unique_ptr<Buffer<int32_t>> offsets, ids;
};

struct Queries {
  Queries(const Both& both, int64_t samples, int64_t per_sample) {
    Random random(samples);
    values = random.Normal(samples * per_sample * 7);
    for (int64_t i = 0; i < samples * per_sample; ++i) {
      flags.push_back(i % 5 != 3);
    }
    codes = std::make_unique<Buffer<int32_t>>(
        CodesOf(*both.expected.functions, values, 7));
    valid = std::make_unique<Buffer<bool>>(flags.size());
    std::vector<char> bytes(flags.begin(), flags.end());
    CopyIn(valid->data(), bytes.data(), bytes.size());
    on_device = {codes->data(), valid->data(), samples, per_sample};
  }

  std::vector<float> values;
  std::vector<bool> flags;
  std::unique_ptr<Buffer<int32_t>> codes;
  std::unique_ptr<Buffer<bool>> valid;
  GpuLshQueries on_device;
};

// The host's searcher of the same queries.
struct OnHost {
  OnHost(const Both& both, const Queries& queries)
      : valid(new bool[queries.flags.size()]),
        searcher(both.expected, Read(queries), serial) {}

  tfxclass::LshQueries Read(const Queries& queries) const {
    std::copy(queries.flags.begin(), queries.flags.end(), valid.get());
    return {queries.values.data(), valid.get(), queries.on_device.samples,
            queries.on_device.per_sample};
  }

  const tfxclass::ParallelFor serial = SerialFor;
  const std::unique_ptr<bool[]> valid;
  tfxclass::LshSearcher searcher;
};

void CheckFind(const Both& both, const Queries& queries, int64_t room) {
  const std::vector<int64_t> excluded = {3, -1, 10, 3};
  Buffer<int64_t> excluded_buffer(excluded);
  Buffer<int32_t> most(both.tables.count);
  Buffer<GpuLshFound> found_buffer(1);
  tfxclass::LshMarks marks;
  TestScratch scratch;
  Done(tfxclass::FindLshCandidates(
      both.tables, queries.on_device, excluded_buffer.data(), excluded.size(),
      room, most.data(), found_buffer.data(), &scratch, nullptr));
  const GpuLshFound found = found_buffer.Read()[0];
  Buffer<int64_t> candidates(found.num_taken);
  Done(tfxclass::TakeLshCandidates(most.data(), both.tables.count, found, 9,
                                   candidates.data(), &scratch, nullptr));
  OnHost host(both, queries);
  const auto expected =
      host.searcher.Find(excluded.data(), excluded.size(), room, 9, &marks);
  ExpectEqual(candidates.Read(), expected.ids, "candidates");
  Expect(found.least_votes == expected.least_votes, "least votes");
  Expect(found.pool == expected.pool, "pool");
  const double kept = found.num_taken - found.above;
  const double fraction = found.with_least > 0 ? kept / found.with_least : 1;
  Expect(std::abs(fraction - expected.last_fraction) < 1e-6, "last fraction");
}

GPU_TEST(LshTablesFind) {
  const Both both(300, 7, 3);
  for (const int64_t samples : {1, 9}) {
    const Queries queries(both, samples, 2);
    for (const int64_t room : {0, 1, 40, 100, 1000}) {
      CheckFind(both, queries, room);
    }
  }
}

// Tables of buckets that were cut are smaller, each by another number of ids.
GPU_TEST(LshTablesFindInCutBuckets) {
  const Both both(300, 7, 3, 30);
  Expect(both.tables.most_ids < 250, "buckets are cut");
  const Queries queries(both, 9, 2);
  for (const int64_t room : {40, 1000}) CheckFind(both, queries, room);
}

// Each of those with the least votes is as likely.
GPU_TEST(LshTablesSample) {
  const int64_t count = 20, rounds = 500, kept = 5;
  std::vector<int32_t> votes(count, 0);
  for (int64_t i = 0; i < 12; ++i) votes[i + 3] = 2;
  Buffer<int32_t> most(votes);
  std::vector<int64_t> times(count, 0);
  for (int64_t r = 0; r < rounds; ++r) {
    Buffer<int64_t> candidates(kept);
    TestScratch scratch;
    Done(tfxclass::TakeLshCandidates(most.data(), count, {2, 0, 12, kept, 12},
                                     r, candidates.data(), &scratch, nullptr));
    for (const int64_t id : candidates.Read()) ++times[id];
  }
  for (int64_t id = 0; id < count; ++id) {
    const double expected = id >= 3 && id < 15 ? rounds * kept / 12.0 : 0;
    Expect(std::abs(times[id] - expected) < 55,
           "times of " + std::to_string(id));
  }
}

void CheckMembers(const Both& both, const Queries& queries,
                  int64_t least_votes) {
  std::vector<int64_t> ids = {299, 5, 0, 77, 120, 400, -1};
  for (int64_t i = 150; i < 200; ++i) ids.push_back(i);
  const std::vector<int64_t> probed = {5, 2, 0};
  Buffer<int64_t> id_buffer(ids), probed_buffer(probed);
  const int64_t num_ids = ids.size();
  Buffer<bool> mask(8 * num_ids);
  TestScratch scratch;
  Done(tfxclass::LshMembers(
      both.tables, queries.on_device, probed_buffer.data(), probed.size(),
      least_votes, id_buffer.data(), num_ids, mask.data(), &scratch, nullptr));
  std::unique_ptr<bool[]> expected(new bool[8 * num_ids]());
  OnHost host(both, queries);
  host.searcher.Members(probed, least_votes, ids.data(), num_ids,
                        expected.get());
  std::vector<char> found(8 * num_ids);
  CopyOut(found.data(), mask.data(), found.size());
  int64_t members = 0;
  for (int64_t i = 0; i < 8 * num_ids; ++i) {
    const int64_t id = ids[i % num_ids];
    const bool is_class = id >= 0 && id < 300;
    Expect((found[i] != 0) == (is_class && expected[i]), "mask");
    members += found[i] != 0;
  }
  Expect(members > 5, "some are members");
}

GPU_TEST(LshTablesMembers) {
  const Both both(300, 7, 3);
  const Queries queries(both, 8, 2);
  for (const int64_t least_votes : {1, 2}) {
    CheckMembers(both, queries, least_votes);
  }
}

GPU_BENCHMARK(LshBenchmarks) {
  GpuLshTables tables;
  tables.count = 1000000;
  tables.num_tables = 50;
  tables.most_ids = tables.count;
  tables.code_bits = 18;
  tables.range_bits = 18;
  Random random(1);
  const auto draws = random.Ids(tables.num_tables * tables.count, 1 << 18);
  Buffer<int32_t> codes(std::vector<int32_t>(draws.begin(), draws.end()));
  // Buckets of nearly the same size, their ids one after the other.
  std::vector<int32_t> begins, members;
  for (int64_t t = 0; t < tables.num_tables; ++t) {
    for (int64_t b = 0; b <= tables.num_buckets(); ++b) {
      begins.push_back(b * tables.count / tables.num_buckets());
    }
    for (int64_t i = 0; i < tables.count; ++i) members.push_back(i);
  }
  Buffer<int32_t> offsets(begins), ids(members);
  tables.offsets = offsets.data();
  tables.ids = ids.data();
  TestScratch scratch;
  const int64_t samples = 4096;
  const std::vector<char> ones(samples, 1);
  Buffer<bool> valid(samples);
  CopyIn(valid.data(), ones.data(), samples);
  Buffer<int32_t> most(tables.count);
  Buffer<GpuLshFound> found(1);
  const GpuLshQueries queries = {codes.data(), valid.data(), samples, 1};
  Report("candidates of 4,096 queries, 50 tables of 1M", MedianMs([&] {
           scratch.Reuse();
           Done(tfxclass::FindLshCandidates(tables, queries, nullptr, 0,
                                            tables.count, most.data(),
                                            found.data(), &scratch, nullptr));
         }),
         // Votes are written, marked in sectors of 32 bytes, and read; a search
         // in each other table reads its offsets and two sectors.
         8.0 * tables.count + 50.0 * samples * (8 + 4 * 50 * 3 * 32.0), 0);
}

}  // namespace
}  // namespace gpu_tests
