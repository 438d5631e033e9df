#include "kernels/lsh_tables.cu.h"

#include "core/lsh_bucket.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"

namespace tfxclass {
namespace {

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
  offsets[bucket] = static_cast<int32_t>(
      LowerBound(sorted, count, static_cast<uint64_t>(bucket)));
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
    TFXCLASS_RETURN_IF_GPU_ERROR(
        LaunchEach(OffsetsKernel, tables_.num_buckets() + 1, stream_, sorted,
                   count, tables_.num_buckets(), offsets_));
    return bucket_size_ > 0 ? Cut(codes, table, keys, sorted) : nullptr;
  }

 private:
  GpuStatus Keys(const int32_t* codes, const int32_t* order, uint64_t* keys) {
    return LaunchEach(BucketKeysKernel, tables_.count, stream_, codes, order,
                      tables_.count, tables_.code_bits, tables_.range_bits,
                      keys);
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
        LaunchEach(PriorityKernel, count, stream_, seed_, table, count, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        SortKeys(keys, count, 64, sorted, by_priority, &scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(Keys(codes, by_priority, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(SortKeys(keys, count, tables_.range_bits,
                                          sorted, by_bucket, &scratch_,
                                          stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(KeepKernel, count, stream_, sorted,
                                            by_bucket, by_priority, offsets_,
                                            count, bucket_size_, keep));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        LaunchEach(KeptKernel, count, stream_, ids_, keep, count, flags));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        RunningSums(flags, count, places, &scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        CopyOnDevice(all, ids_, count * sizeof(int32_t), stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(CompactKernel, count, stream_, all,
                                            flags, places, count, ids_));
    return LaunchEach(MoveOffsetsKernel, tables_.num_buckets() + 1, stream_,
                      places, tables_.num_buckets(), offsets_);
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

}  // namespace tfxclass
