#include "kernels/lsh_query.cu.h"

#include "core/lsh_bucket.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kInNoTable = 0x7f7f7f7f;  // four bytes alike, to fill with

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
  const int32_t* ids = tables.ids + table * tables.count;
  return {ids + offsets[0], ids + offsets[1]};
}

__global__ void ExcludeKernel(const int64_t* ids, int64_t num, int64_t count,
                              int32_t* first) {
  const int64_t i = ThreadNumber();
  if (i < num && ids[i] >= 0 && ids[i] < count) first[ids[i]] = -1;
}

// A warp for each table and query. The least place wins: in whatever order.
__global__ void MarkKernel(GpuLshTables tables, GpuLshQueries queries,
                           const int64_t* order, int32_t* first) {
  const int64_t num_queries = queries.samples * queries.per_sample;
  const int64_t warp = WarpNumber();
  if (warp >= tables.num_tables * num_queries) return;
  const int64_t place = warp / num_queries, query = warp % num_queries;
  if (!queries.valid[query]) return;
  const Bucket bucket = BucketOf(tables, queries, order[place], query);
  for (const int32_t* id = bucket.begin + Lane(); id < bucket.end;
       id += kWarp) {
    if (first[*id] > place) {
      atomicMin(&first[*id], static_cast<int32_t>(place));
    }
  }
}

// found[place]: classes that table finds first. A thread a class; a block
// counts in shared memory first.
__global__ void CountKernel(const int32_t* first, int64_t count,
                            int64_t num_tables, int32_t* found) {
  TFXCLASS_DYNAMIC_SHARED(int32_t, in_block);
  for (int64_t t = threadIdx.x; t < num_tables; t += blockDim.x) {
    in_block[t] = 0;
  }
  __syncthreads();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t id = ThreadNumber(); id < count; id += step) {
    const int32_t place = first[id];
    if (place >= 0 && place < num_tables) atomicAdd(&in_block[place], 1);
  }
  __syncthreads();
  for (int64_t t = threadIdx.x; t < num_tables; t += blockDim.x) {
    if (in_block[t] > 0) atomicAdd(&found[t], in_block[t]);
  }
}

// One thread.
__global__ void CutKernel(const int32_t* found, int64_t num_tables,
                          int64_t room, GpuLshFound* out) {
  GpuLshFound sum = {};
  int64_t total = 0;
  for (int64_t t = 0; t < num_tables && total < room; ++t) {
    sum.before = total;
    sum.added = found[t];
    total += found[t];
    sum.num_probed = t + 1;
  }
  sum.num_taken = total < room ? total : max(room, int64_t{0});
  *out = sum;
}

// A thread a class: 1 those that tables before the last found, 2 the last's.
__global__ void FlagTakenKernel(const int32_t* first, int64_t count,
                                int64_t last, int32_t* before, int32_t* added) {
  const int64_t id = ThreadNumber();
  if (id >= count) return;
  before[id] = first[id] >= 0 && first[id] < last;
  added[id] = first[id] == last;
}

// A thread a class. keys: random, of those the last table added.
__global__ void TakeKernel(const int32_t* before, const int64_t* before_places,
                           const int32_t* added, const int64_t* added_places,
                           int64_t count, uint64_t seed, int64_t* candidates,
                           int64_t* added_ids, uint64_t* keys) {
  const int64_t id = ThreadNumber();
  if (id >= count) return;
  if (before[id]) candidates[before_places[id]] = id;
  if (added[id]) {
    added_ids[added_places[id]] = id;
    keys[added_places[id]] = BucketPriority(seed, 0, static_cast<int32_t>(id));
  }
}

__global__ void SampleKernel(const int64_t* added_ids, const int32_t* order,
                             int64_t count, int64_t* candidates) {
  const int64_t i = ThreadNumber();
  if (i < count) candidates[i] = added_ids[order[i]];
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
                              const int32_t* columns, int64_t num_ids,
                              bool* mask) {
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
    if (columns[*id] >= 0) of_sample[columns[*id]] = true;
  }
}

}  // namespace

GpuStatus FindLshCandidates(const GpuLshTables& tables,
                            const GpuLshQueries& queries, const int64_t* order,
                            const int64_t* excluded, int64_t num_excluded,
                            int64_t room, int32_t* first, GpuLshFound* found,
                            Scratch* scratch, GpuStream stream) {
  int32_t* const counts = scratch->Get<int32_t>(tables.num_tables);
  if (counts == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(counts, 0, tables.num_tables * sizeof(int32_t), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(
      first, kInNoTable & 0xff, tables.count * sizeof(int32_t), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(ExcludeKernel, num_excluded, stream,
                                          excluded, num_excluded, tables.count,
                                          first));
  const int64_t num_queries = queries.samples * queries.per_sample;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(MarkKernel, tables.num_tables * num_queries * kWarp, stream,
                 tables, queries, order, first));
  const int64_t blocks = CeilDiv(tables.count, kThreads * 8);
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(CountKernel, blocks, kThreads, tables.num_tables * sizeof(int32_t),
             stream, first, tables.count, tables.num_tables, counts));
  return Launch(CutKernel, 1, 1, 0, stream, counts, tables.num_tables, room,
                found);
}

GpuStatus TakeLshCandidates(const int32_t* first, int64_t count,
                            const GpuLshFound& found, uint64_t seed,
                            int64_t* candidates, Scratch* scratch,
                            GpuStream stream) {
  if (found.num_taken == 0) return nullptr;
  int32_t* const before = scratch->Get<int32_t>(count);
  int32_t* const added = scratch->Get<int32_t>(count);
  int64_t* const before_places = scratch->Get<int64_t>(count + 1);
  int64_t* const added_places = scratch->Get<int64_t>(count + 1);
  int64_t* const added_ids = scratch->Get<int64_t>(found.added);
  uint64_t* const keys = scratch->Get<uint64_t>(found.added);
  uint64_t* const sorted = scratch->Get<uint64_t>(found.added);
  int32_t* const order = scratch->Get<int32_t>(found.added);
  if (before == nullptr || added == nullptr || before_places == nullptr ||
      added_places == nullptr || added_ids == nullptr || keys == nullptr ||
      sorted == nullptr || order == nullptr) {
    return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(FlagTakenKernel, count, stream, first,
                                          count, found.num_probed - 1, before,
                                          added));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(before, count, before_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(added, count, added_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(TakeKernel, count, stream, before, before_places, added,
                 added_places, count, seed, candidates, added_ids, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      SortKeys(keys, found.added, 64, sorted, order, scratch, stream));
  const int64_t sampled = found.num_taken - found.before;
  return LaunchEach(SampleKernel, sampled, stream, added_ids, order, sampled,
                    candidates + found.before);
}

GpuStatus LshMembers(const GpuLshTables& tables, const GpuLshQueries& queries,
                     const int64_t* probed, int64_t num_probed,
                     const int64_t* ids, int64_t num_ids, bool* mask,
                     Scratch* scratch, GpuStream stream) {
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
                    tables, queries, probed, num_probed, columns, num_ids,
                    mask);
}

}  // namespace tfxclass
