// LSH tables against core/lsh_tables.h and core/lsh_query.h.
#include "core/lsh_tables.h"

#include <algorithm>
#include <memory>
#include <set>

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
  Both(int64_t count, int64_t dim, int64_t num_hashes, int64_t bucket_size) {
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
    LaneRows lanes = Lanes(rows, dim);
    tfxclass::LshBuilder(&expected, SerialFor).Build(&lanes);

    tables.count = count;
    tables.num_tables = options.num_tables;
    tables.code_bits = options.bits();
    tables.range_bits = expected.range_bits();
    offsets = std::make_unique<Buffer<int32_t>>(tables.num_tables *
                                                (tables.num_buckets() + 1));
    ids = std::make_unique<Buffer<int32_t>>(tables.num_tables * count);
    tables.offsets = offsets->data();
    tables.ids = ids->data();
    Buffer<int32_t> codes(CodesOf(*expected.functions, rows, dim));
    TestScratch scratch;
    Done(tfxclass::BuildLshTables(codes.data(), bucket_size, options.seed,
                                  tables, &scratch, nullptr));
  }

  std::vector<float> rows;
  LshTables expected;
  GpuLshTables tables;
  std::unique_ptr<Buffer<int32_t>> offsets, ids;
};

void CheckTables(int64_t count, int64_t num_hashes, int64_t bucket_size) {
  const Both both(count, 7, num_hashes, bucket_size);
  const auto offsets = both.offsets->Read(), ids = both.ids->Read();
  const int64_t stride = both.tables.num_buckets() + 1;
  for (int64_t t = 0; t < both.tables.num_tables; ++t) {
    const auto& table = both.expected.tables[t];
    ExpectEqual({&offsets[t * stride], &offsets[t * stride] + stride},
                table.offsets, "offsets");
    const int32_t* first = ids.data() + t * count;
    ExpectEqual({first, first + table.ids.size()}, table.ids, "ids");
  }
}

GPU_TEST(LshTablesBuild) {
  CheckTables(300, 3, 0);
  CheckTables(300, 20, 0);  // codes longer than the range
  CheckTables(300, 2, 5);
  CheckTables(1, 4, 0);
  CheckTables(700, 1, 300);
}

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

// Ids in buckets of the queries in the tables order[0, num).
std::set<int64_t> InBuckets(const Both& both, const Queries& queries,
                            const std::vector<int64_t>& order, int64_t num,
                            const std::vector<int64_t>& excluded) {
  const auto codes = queries.codes->Read();
  std::set<int64_t> ids;
  const int64_t count = queries.flags.size();
  for (int64_t t = 0; t < num; ++t) {
    std::vector<int32_t> buckets(count);
    both.expected.BucketsOf(
        reinterpret_cast<const uint32_t*>(&codes[order[t] * count]), count,
        buckets.data());
    const auto& table = both.expected.tables[order[t]];
    for (int64_t q = 0; q < count; ++q) {
      if (!queries.flags[q]) continue;
      for (int32_t i = table.offsets[buckets[q]];
           i < table.offsets[buckets[q] + 1]; ++i) {
        ids.insert(table.ids[i]);
      }
    }
  }
  for (const int64_t id : excluded) ids.erase(id);
  return ids;
}

void CheckFind(const Both& both, const Queries& queries, int64_t room) {
  const std::vector<int64_t> order = {4, 1, 0, 5, 2, 3};
  const std::vector<int64_t> excluded = {3, -1, 10, 3};
  Buffer<int64_t> order_buffer(order), excluded_buffer(excluded);
  Buffer<int32_t> first(both.tables.count);
  Buffer<GpuLshFound> found_buffer(1);
  TestScratch scratch;
  Done(tfxclass::FindLshCandidates(both.tables, queries.on_device,
                                   order_buffer.data(), excluded_buffer.data(),
                                   excluded.size(), room, first.data(),
                                   found_buffer.data(), &scratch, nullptr));
  const GpuLshFound found = found_buffer.Read()[0];
  Buffer<int64_t> candidates(found.num_taken);
  Done(tfxclass::TakeLshCandidates(first.data(), both.tables.count, found, 9,
                                   candidates.data(), &scratch, nullptr));
  // As many tables as it takes, and not one more.
  int64_t probed = 0, before = 0, total = 0;
  while (probed < 6 && total < room) {
    before = total;
    total = InBuckets(both, queries, order, ++probed, excluded).size();
  }
  Expect(found.num_probed == probed, "tables probed");
  Expect(found.before == before && found.added == total - before, "counts");
  Expect(found.num_taken == std::min(total, room), "taken");
  const auto taken = candidates.Read();
  const std::set<int64_t> distinct(taken.begin(), taken.end());
  Expect(static_cast<int64_t>(distinct.size()) == found.num_taken, "distinct");
  const auto all = InBuckets(both, queries, order, probed, excluded);
  Expect(
      std::includes(all.begin(), all.end(), distinct.begin(), distinct.end()),
      "of the buckets");
  const auto sure = InBuckets(both, queries, order, probed - 1, excluded);
  Expect(
      std::includes(distinct.begin(), distinct.end(), sure.begin(), sure.end()),
      "all of the tables before the last");
}

GPU_TEST(LshTablesFind) {
  const Both both(300, 7, 3, 0);
  for (const int64_t samples : {1, 9}) {
    const Queries queries(both, samples, 2);
    for (const int64_t room : {0, 1, 40, 100, 1000}) {
      CheckFind(both, queries, room);
    }
  }
}

// Each of what the last table added is as likely.
GPU_TEST(LshTablesSample) {
  const int64_t count = 20, rounds = 500, kept = 5;
  std::vector<int32_t> in_last(count, 0x7f7f7f7f);
  for (int64_t i = 0; i < 12; ++i) in_last[i + 3] = 0;
  Buffer<int32_t> first(in_last);
  std::vector<int64_t> times(count, 0);
  for (int64_t r = 0; r < rounds; ++r) {
    Buffer<int64_t> candidates(kept);
    TestScratch scratch;
    Done(tfxclass::TakeLshCandidates(first.data(), count, {1, 0, 12, kept}, r,
                                     candidates.data(), &scratch, nullptr));
    for (const int64_t id : candidates.Read()) ++times[id];
  }
  for (int64_t id = 0; id < count; ++id) {
    const double expected = id >= 3 && id < 15 ? rounds * kept / 12.0 : 0;
    Expect(std::abs(times[id] - expected) < 55,
           "times of " + std::to_string(id));
  }
}

GPU_TEST(LshTablesMembers) {
  const Both both(300, 7, 3, 0);
  const Queries queries(both, 8, 2);
  std::vector<int64_t> ids = {299, 5, 0, 77, 120, 400, -1};
  for (int64_t i = 150; i < 200; ++i) ids.push_back(i);
  const std::vector<int64_t> probed = {5, 2, 0};
  Buffer<int64_t> id_buffer(ids), probed_buffer(probed);
  const int64_t num_ids = ids.size();
  Buffer<bool> mask(8 * num_ids);
  TestScratch scratch;
  Done(tfxclass::LshMembers(
      both.tables, queries.on_device, probed_buffer.data(), probed.size(),
      id_buffer.data(), num_ids, mask.data(), &scratch, nullptr));
  std::unique_ptr<bool[]> expected(new bool[8 * num_ids]());
  const std::unique_ptr<bool[]> valid(new bool[16]);
  std::copy(queries.flags.begin(), queries.flags.end(), valid.get());
  const tfxclass::LshQueries on_host = {queries.values.data(), valid.get(), 8,
                                        2};
  const tfxclass::ParallelFor serial = SerialFor;
  tfxclass::LshSearcher(both.expected, on_host, serial)
      .Members(probed, ids.data(), num_ids, expected.get());
  std::vector<char> found(8 * num_ids);
  CopyOut(found.data(), mask.data(), found.size());
  int64_t members = 0;
  for (int64_t i = 0; i < 8 * num_ids; ++i) {
    const int64_t id = ids[i % num_ids];
    const bool is_class = id >= 0 && id < 300;
    Expect((found[i] != 0) == (is_class && expected[i]), "mask");
    members += found[i] != 0;
  }
  Expect(members > 20, "some are members");
}

GPU_BENCHMARK(LshBenchmarks) {
  GpuLshTables tables;
  tables.count = 1000000;
  tables.num_tables = 50;
  tables.code_bits = 18;
  tables.range_bits = 18;
  Random random(1);
  const auto draws = random.Ids(tables.num_tables * tables.count, 1 << 18);
  Buffer<int32_t> codes(std::vector<int32_t>(draws.begin(), draws.end()));
  Buffer<int32_t> offsets(tables.num_tables * (tables.num_buckets() + 1));
  Buffer<int32_t> ids(tables.num_tables * tables.count);
  tables.offsets = offsets.data();
  tables.ids = ids.data();
  TestScratch scratch;
  Report("50 LSH tables of 1M classes, from codes", MedianMs([&] {
           scratch.Reuse();
           Done(tfxclass::BuildLshTables(codes.data(), 0, 1, tables, &scratch,
                                         nullptr));
         }),
         8.0 * tables.num_tables * tables.count, 0);
  const int64_t samples = 4096;
  const std::vector<char> ones(samples, 1);
  Buffer<bool> valid(samples);
  CopyIn(valid.data(), ones.data(), samples);
  std::vector<int64_t> all(tables.num_tables);
  for (int64_t t = 0; t < tables.num_tables; ++t) all[t] = t;
  Buffer<int64_t> order(all);
  Buffer<int32_t> first(tables.count);
  Buffer<GpuLshFound> found(1);
  const GpuLshQueries queries = {codes.data(), valid.data(), samples, 1};
  Report("candidates of 4,096 queries, 50 tables of 1M", MedianMs([&] {
           scratch.Reuse();
           Done(tfxclass::FindLshCandidates(
               tables, queries, order.data(), nullptr, 0, tables.count,
               first.data(), found.data(), &scratch, nullptr));
         }),
         // First places are written, marked in sectors of 32 bytes, and read.
         8.0 * tables.count + 50.0 * samples * (8 + 32 + 4 * 32), 0);
}

}  // namespace
}  // namespace gpu_tests
