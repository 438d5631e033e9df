#include "kernels/lsh_query.cu.h"

#include "core/lsh_bucket.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;

// Kernels have a thread for each element, unless they say otherwise.

// A bucket of a query in a table.
struct Bucket {
  const int32_t *begin, *end;
};

__device__ Bucket BucketOf(const GpuLshTables& tables,
                           const GpuLshQueries& queries, int64_t table,
                           int64_t query) {
  const int64_t num_queries = queries.samples * queries.per_sample;
  const uint32_t code =
      static_cast<uint32_t>(queries.codes[table * num_queries + query]);
  const int64_t bucket = LshBucket(code, tables.code_bits, tables.range_bits);
  const int32_t* offsets =
      tables.offsets + table * ((int64_t{1} << tables.range_bits) + 1) + bucket;
  const int32_t* ids = tables.ids + table * tables.most_ids;
  return {ids + offsets[0], ids + offsets[1]};
}

__device__ bool Contains(const Bucket& bucket, int32_t id) {
  const int32_t *begin = bucket.begin, *end = bucket.end;
  while (begin < end) {
    const int32_t* const middle = begin + (end - begin) / 2;
    if (*middle < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < bucket.end && *begin == id;
}

// Votes of tables[from, num) for a class; the tables are 0, 1, ... for null.
__device__ int64_t VotesOf(const GpuLshTables& tables,
                           const GpuLshQueries& queries, const int64_t* numbers,
                           int64_t from, int64_t num, int64_t query,
                           int32_t id) {
  int64_t votes = 0;
  for (int64_t t = from; t < num; ++t) {
    const int64_t table = numbers == nullptr ? t : numbers[t];
    if (table < 0 || table >= tables.num_tables) continue;
    votes += Contains(BucketOf(tables, queries, table, query), id);
  }
  return votes;
}

__global__ void ExcludeKernel(const int64_t* ids, int64_t num, int64_t count,
                              int32_t* most) {
  const int64_t i = ThreadNumber();
  if (i < num && ids[i] >= 0 && ids[i] < count) most[ids[i]] = 0;
}

// A warp for each table and query. A class is counted where its first table
// has it. The greatest wins: in whatever order.
__global__ void VoteKernel(GpuLshTables tables, GpuLshQueries queries,
                           int32_t* most) {
  const int64_t num_queries = queries.samples * queries.per_sample;
  const int64_t warp = WarpNumber();
  if (warp >= tables.num_tables * num_queries) return;
  const int64_t table = warp / num_queries, query = warp % num_queries;
  if (!queries.valid[query]) return;
  const Bucket bucket = BucketOf(tables, queries, table, query);
  for (const int32_t* id = bucket.begin + Lane(); id < bucket.end;
       id += kWarp) {
    if (VotesOf(tables, queries, nullptr, 0, table, query, *id) > 0) continue;
    const int64_t votes = 1 + VotesOf(tables, queries, nullptr, table + 1,
                                      tables.num_tables, query, *id);
    atomicMax(&most[*id], static_cast<int32_t>(votes));
  }
}

// with[votes]: classes with so many. A thread a class; a block counts in shared
// memory first.
__global__ void CountKernel(const int32_t* most, int64_t count,
                            int64_t num_tables, int32_t* with) {
  TFXCLASS_DYNAMIC_SHARED(int32_t, in_block);
  for (int64_t t = threadIdx.x; t <= num_tables; t += blockDim.x) {
    in_block[t] = 0;
  }
  __syncthreads();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t id = ThreadNumber(); id < count; id += step) {
    if (most[id] > 0) atomicAdd(&in_block[most[id]], 1);
  }
  __syncthreads();
  for (int64_t t = threadIdx.x; t <= num_tables; t += blockDim.x) {
    if (in_block[t] > 0) atomicAdd(&with[t], in_block[t]);
  }
}

// One thread.
__global__ void CutKernel(const int32_t* with, int64_t num_tables, int64_t room,
                          GpuLshFound* out) {
  GpuLshFound cut = {};
  cut.least_votes = num_tables;
  for (int64_t t = 1; t <= num_tables; ++t) cut.pool += with[t];
  while (cut.least_votes > 1 && cut.above + with[cut.least_votes] < room) {
    cut.above += with[cut.least_votes--];
  }
  cut.with_least = with[cut.least_votes];
  const int64_t left = max(room - cut.above, int64_t{0});
  cut.num_taken = cut.above + min(left, cut.with_least);
  *out = cut;
}

// A thread a class.
__global__ void FlagTakenKernel(const int32_t* most, int64_t count,
                                int64_t least_votes, int32_t* above,
                                int32_t* with_least) {
  const int64_t id = ThreadNumber();
  if (id >= count) return;
  above[id] = most[id] > least_votes;
  with_least[id] = most[id] == least_votes;
}

// A thread a class. keys: random, of those with the least votes.
__global__ void TakeKernel(const int32_t* above, const int64_t* above_places,
                           const int32_t* with_least,
                           const int64_t* least_places, int64_t count,
                           uint64_t seed, int64_t* candidates,
                           int64_t* least_ids, uint64_t* keys) {
  const int64_t id = ThreadNumber();
  if (id >= count) return;
  if (above[id]) candidates[above_places[id]] = id;
  if (with_least[id]) {
    least_ids[least_places[id]] = id;
    keys[least_places[id]] = BucketPriority(seed, 0, static_cast<int32_t>(id));
  }
}

__global__ void SampleKernel(const int64_t* least_ids, const int32_t* order,
                             int64_t count, int64_t* candidates) {
  const int64_t i = ThreadNumber();
  if (i < count) candidates[i] = least_ids[order[i]];
}

__global__ void ColumnsKernel(const int64_t* ids, int64_t num_ids,
                              int64_t count, int32_t* columns) {
  const int64_t i = ThreadNumber();
  if (i < num_ids && ids[i] >= 0 && ids[i] < count) {
    columns[ids[i]] = static_cast<int32_t>(i);
  }
}

// A warp for each probed table and query.
__global__ void MembersKernel(GpuLshTables tables, GpuLshQueries queries,
                              const int64_t* probed, int64_t num_probed,
                              int64_t least_votes, const int32_t* columns,
                              int64_t num_ids, bool* mask) {
  const int64_t num_queries = queries.samples * queries.per_sample;
  const int64_t warp = WarpNumber();
  if (warp >= num_probed * num_queries) return;
  const int64_t table = probed[warp / num_queries];
  const int64_t query = warp % num_queries;
  if (!queries.valid[query] || table < 0 || table >= tables.num_tables) return;
  bool* const of_sample = mask + query / queries.per_sample * num_ids;
  const Bucket bucket = BucketOf(tables, queries, table, query);
  for (const int32_t* id = bucket.begin + Lane(); id < bucket.end;
       id += kWarp) {
    if (columns[*id] < 0) continue;
    const int64_t later =
        VotesOf(tables, queries, probed, warp / num_queries + 1, num_probed,
                query, *id);
    if (1 + later >= least_votes) of_sample[columns[*id]] = true;
  }
}

}  // namespace

GpuStatus FindLshCandidates(const GpuLshTables& tables,
                            const GpuLshQueries& queries,
                            const int64_t* excluded, int64_t num_excluded,
                            int64_t room, int32_t* most, GpuLshFound* found,
                            Scratch* scratch, GpuStream stream) {
  const int64_t counts_bytes = (tables.num_tables + 1) * sizeof(int32_t);
  int32_t* const with = scratch->Get<int32_t>(tables.num_tables + 1);
  if (with == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(with, 0, counts_bytes, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(most, 0, tables.count * sizeof(int32_t), stream));
  const int64_t num_queries = queries.samples * queries.per_sample;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(VoteKernel, tables.num_tables * num_queries * kWarp, stream,
                 tables, queries, most));
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(ExcludeKernel, num_excluded, stream,
                                          excluded, num_excluded, tables.count,
                                          most));
  const int64_t blocks = CeilDiv(tables.count, kThreads * 8);
  TFXCLASS_RETURN_IF_GPU_ERROR(Launch(CountKernel, blocks, kThreads,
                                      counts_bytes, stream, most, tables.count,
                                      tables.num_tables, with));
  return Launch(CutKernel, 1, 1, 0, stream, with, tables.num_tables, room,
                found);
}

GpuStatus TakeLshCandidates(const int32_t* most, int64_t count,
                            const GpuLshFound& found, uint64_t seed,
                            int64_t* candidates, Scratch* scratch,
                            GpuStream stream) {
  if (found.num_taken == 0) return nullptr;
  int32_t* const above = scratch->Get<int32_t>(count);
  int32_t* const with_least = scratch->Get<int32_t>(count);
  int64_t* const above_places = scratch->Get<int64_t>(count + 1);
  int64_t* const least_places = scratch->Get<int64_t>(count + 1);
  int64_t* const least_ids = scratch->Get<int64_t>(found.with_least);
  uint64_t* const keys = scratch->Get<uint64_t>(found.with_least);
  uint64_t* const sorted = scratch->Get<uint64_t>(found.with_least);
  int32_t* const order = scratch->Get<int32_t>(found.with_least);
  if (above == nullptr || with_least == nullptr || above_places == nullptr ||
      least_places == nullptr || least_ids == nullptr || keys == nullptr ||
      sorted == nullptr || order == nullptr) {
    return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(FlagTakenKernel, count, stream, most,
                                          count, found.least_votes, above,
                                          with_least));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(above, count, above_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(with_least, count, least_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(TakeKernel, count, stream, above, above_places, with_least,
                 least_places, count, seed, candidates, least_ids, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      SortKeys(keys, found.with_least, 64, sorted, order, scratch, stream));
  const int64_t sampled = found.num_taken - found.above;
  return LaunchEach(SampleKernel, sampled, stream, least_ids, order, sampled,
                    candidates + found.above);
}

GpuStatus LshMembers(const GpuLshTables& tables, const GpuLshQueries& queries,
                     const int64_t* probed, int64_t num_probed,
                     int64_t least_votes, const int64_t* ids, int64_t num_ids,
                     bool* mask, Scratch* scratch, GpuStream stream) {
  int32_t* const columns = scratch->Get<int32_t>(tables.count);
  if (columns == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(mask, 0, queries.samples * num_ids, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(columns, 0xff, tables.count * sizeof(int32_t), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(ColumnsKernel, num_ids, stream, ids,
                                          num_ids, tables.count, columns));
  const int64_t num_queries = queries.samples * queries.per_sample;
  return LaunchEach(MembersKernel, num_probed * num_queries * kWarp, stream,
                    tables, queries, probed, num_probed, least_votes, columns,
                    num_ids, mask);
}

}  // namespace tfxclass
