#include "kernels/lsh_tables.cu.h"

#include "core/lsh_bucket.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kInNoTable = 0x7f7f7f7f;  // four bytes alike, to fill with

// Kernels have a thread for each element, unless they say otherwise.

__global__ void BucketKeysKernel(const int32_t* codes, const int32_t* order,
                                 int64_t count, int code_bits, int range_bits,
                                 uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const int64_t id = order == nullptr ? i : order[i];
  keys[i] = LshBucket(static_cast<uint32_t>(codes[id]), code_bits, range_bits);
}

// offsets[b] = the first of `count` rising keys that is b or more; a thread a
// bucket, and one more.
__global__ void OffsetsKernel(const uint64_t* sorted, int64_t count,
                              int64_t num_buckets, int32_t* offsets) {
  const int64_t bucket = ThreadNumber();
  if (bucket > num_buckets) return;
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle] < static_cast<uint64_t>(bucket)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  offsets[bucket] = static_cast<int32_t>(begin);
}

__global__ void PriorityKernel(uint64_t seed, int64_t table, int64_t count,
                               uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i < count) {
    keys[i] = BucketPriority(seed, table, static_cast<int32_t>(i));
  }
}

// keep[id]: whether it is among the first `limit` of its bucket by priority.
// buckets and by_bucket: sorted by (bucket, priority), places in by_priority.
__global__ void KeepKernel(const uint64_t* buckets, const int32_t* by_bucket,
                           const int32_t* by_priority, const int32_t* offsets,
                           int64_t count, int64_t limit, int32_t* keep) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  keep[by_priority[by_bucket[i]]] = i - offsets[buckets[i]] < limit;
}

__global__ void KeptKernel(const int32_t* ids, const int32_t* keep,
                           int64_t count, int32_t* flags) {
  const int64_t i = ThreadNumber();
  if (i < count) flags[i] = keep[ids[i]];
}

__global__ void CompactKernel(const int32_t* ids, const int32_t* flags,
                              const int64_t* places, int64_t count,
                              int32_t* to) {
  const int64_t i = ThreadNumber();
  if (i < count && flags[i]) to[places[i]] = ids[i];
}

__global__ void MoveOffsetsKernel(const int64_t* places, int64_t num_buckets,
                                  int32_t* offsets) {
  const int64_t bucket = ThreadNumber();
  if (bucket <= num_buckets) {
    offsets[bucket] = static_cast<int32_t>(places[offsets[bucket]]);
  }
}

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

template <class... Params, class... Args>
GpuStatus Over(int64_t count, GpuStream stream, void (*kernel)(Params...),
               const Args&... args) {
  return Launch(kernel, CeilDiv(count, kThreads), kThreads, 0, stream, args...);
}

class TableBuilder {
 public:
  TableBuilder(const GpuLshTables& tables, int64_t bucket_size, uint64_t seed,
               Scratch* scratch, GpuStream stream)
      : tables_(tables),
        bucket_size_(bucket_size),
        seed_(seed),
        scratch_(scratch),
        stream_(stream) {}

  GpuStatus Build(const int32_t* codes, int64_t table) {
    scratch_.Reuse();
    const int64_t count = tables_.count;
    offsets_ = tables_.offsets + table * (tables_.num_buckets() + 1);
    ids_ = tables_.ids + table * count;
    uint64_t* const keys = scratch_.Get<uint64_t>(count);
    uint64_t* const sorted = scratch_.Get<uint64_t>(count);
    if (keys == nullptr || sorted == nullptr) return kNoScratch;
    TFXCLASS_RETURN_IF_GPU_ERROR(Keys(codes, nullptr, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(SortKeys(keys, count, tables_.range_bits,
                                          sorted, ids_, &scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(tables_.num_buckets() + 1, stream_,
                                      OffsetsKernel, sorted, count,
                                      tables_.num_buckets(), offsets_));
    return bucket_size_ > 0 ? Cut(codes, table, keys, sorted) : nullptr;
  }

 private:
  GpuStatus Keys(const int32_t* codes, const int32_t* order, uint64_t* keys) {
    return Over(tables_.count, stream_, BucketKeysKernel, codes, order,
                tables_.count, tables_.code_bits, tables_.range_bits, keys);
  }

  // Leaves bucket_size ids in each bucket: those of the least priorities.
  GpuStatus Cut(const int32_t* codes, int64_t table, uint64_t* keys,
                uint64_t* sorted) {
    const int64_t count = tables_.count;
    int32_t* const by_priority = scratch_.Get<int32_t>(count);
    int32_t* const by_bucket = scratch_.Get<int32_t>(count);
    int32_t* const keep = scratch_.Get<int32_t>(count);
    int32_t* const flags = scratch_.Get<int32_t>(count);
    int32_t* const all = scratch_.Get<int32_t>(count);
    int64_t* const places = scratch_.Get<int64_t>(count + 1);
    if (by_priority == nullptr || by_bucket == nullptr || keep == nullptr ||
        flags == nullptr || all == nullptr || places == nullptr) {
      return kNoScratch;
    }
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, stream_, PriorityKernel, seed_, table, count, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        SortKeys(keys, count, 64, sorted, by_priority, &scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(Keys(codes, by_priority, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(SortKeys(keys, count, tables_.range_bits,
                                          sorted, by_bucket, &scratch_,
                                          stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, stream_, KeepKernel, sorted,
                                      by_bucket, by_priority, offsets_, count,
                                      bucket_size_, keep));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, stream_, KeptKernel, ids_, keep, count, flags));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        RunningSums(flags, count, places, &scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        CopyOnDevice(all, ids_, count * sizeof(int32_t), stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, stream_, CompactKernel, all, flags, places, count, ids_));
    return Over(tables_.num_buckets() + 1, stream_, MoveOffsetsKernel, places,
                tables_.num_buckets(), offsets_);
  }

  const GpuLshTables& tables_;
  const int64_t bucket_size_;
  const uint64_t seed_;
  ReusedScratch scratch_;
  const GpuStream stream_;
  int32_t *offsets_ = nullptr, *ids_ = nullptr;  // of the table
};

}  // namespace

GpuStatus BuildLshTables(const int32_t* codes, int64_t bucket_size,
                         uint64_t seed, const GpuLshTables& tables,
                         Scratch* scratch, GpuStream stream) {
  TableBuilder builder(tables, bucket_size, seed, scratch, stream);
  for (int64_t t = 0; t < tables.num_tables; ++t) {
    TFXCLASS_RETURN_IF_GPU_ERROR(builder.Build(codes + t * tables.count, t));
  }
  return nullptr;
}

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
  TFXCLASS_RETURN_IF_GPU_ERROR(Over(num_excluded, stream, ExcludeKernel,
                                    excluded, num_excluded, tables.count,
                                    first));
  const int64_t num_queries = queries.samples * queries.per_sample;
  TFXCLASS_RETURN_IF_GPU_ERROR(Over(tables.num_tables * num_queries * kWarp,
                                    stream, MarkKernel, tables, queries, order,
                                    first));
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
  TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, stream, FlagTakenKernel, first,
                                    count, found.num_probed - 1, before,
                                    added));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(before, count, before_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      RunningSums(added, count, added_places, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, stream, TakeKernel, before,
                                    before_places, added, added_places, count,
                                    seed, candidates, added_ids, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      SortKeys(keys, found.added, 64, sorted, order, scratch, stream));
  const int64_t sampled = found.num_taken - found.before;
  return Over(sampled, stream, SampleKernel, added_ids, order, sampled,
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
  TFXCLASS_RETURN_IF_GPU_ERROR(Over(num_ids, stream, ColumnsKernel, ids,
                                    num_ids, tables.count, columns));
  const int64_t num_queries = queries.samples * queries.per_sample;
  return Over(num_probed * num_queries * kWarp, stream, MembersKernel, tables,
              queries, probed, num_probed, columns, num_ids, mask);
}

}  // namespace tfxclass
