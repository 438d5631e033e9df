// Rows that a query found, with votes or scores, and the best of them; by the
// threads of a block, deterministic whatever the order of their atomics.
#ifndef TFXCLASS_KERNELS_ROW_POOL_CU_H_
#define TFXCLASS_KERNELS_ROW_POOL_CU_H_

#include "kernels/block_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"

namespace tfxclass {

// In shared or any other memory. A row's rank is its key: value, then lower id.
struct RowPool {
  uint32_t* tags;    // id + 1; 0: nothing
  uint32_t* values;  // votes, or a score's OrderedBits; 0: nothing
  int size;

  __device__ int64_t Id(int place) const {
    return static_cast<int64_t>(tags[place]) - 1;
  }
  __device__ uint64_t Key(int place) const {
    return static_cast<uint64_t>(values[place]) << 32 | (0u - tags[place]);
  }
};

__device__ __forceinline__ int64_t IdOfKey(uint64_t key) {
  return static_cast<int64_t>(0u - static_cast<uint32_t>(key)) - 1;
}

enum class TableVote { kNew, kOld, kNoRoom };

// A thread adds a vote for `id`; the pool is a hash table, open addressing.
__device__ __forceinline__ TableVote VoteInTable(const RowPool& table,
                                                 int32_t id) {
  const uint32_t tag = static_cast<uint32_t>(id) + 1;
  const uint32_t hash = tag * 2654435769u;
  int slot = static_cast<int>(static_cast<uint64_t>(hash) * table.size >> 32);
  for (int probe = 0; probe < table.size; ++probe) {
    const uint32_t old = atomicCAS(&table.tags[slot], 0u, tag);
    if (old == 0 || old == tag) {
      atomicAdd(&table.values[slot], 1u);
      return old == 0 ? TableVote::kNew : TableVote::kOld;
    }
    if (++slot == table.size) slot = 0;
  }
  return TableVote::kNoRoom;
}

// What is kept of a pool: keys that are at least `least` in the bits of `mask`.
struct PoolCut {
  uint64_t mask, least;

  __device__ bool Keeps(const RowPool& pool, int place) const {
    return pool.values[place] != 0 && (pool.Key(place) & mask) >= least;
  }
};

namespace internal {

constexpr int kDigits = 256;

struct Digit {
  int digit;
  int wanted;   // of those with this digit
  bool is_all;  // all of those with this digit, or if digit < 0, of the count
};

// A warp: the digit of the wanted-th greatest.
__device__ __forceinline__ Digit FindDigit(const int* counts, int wanted) {
  constexpr int kOfLane = kDigits / kWarp;
  const int top = kDigits - 1 - Lane() * kOfLane;
  int size = 0;
  for (int j = 0; j < kOfLane; ++j) size += counts[top - j];
  int sum = size;  // of digits >= those of this lane
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, offset);
    if (Lane() >= offset) sum += before;
  }
  const int total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  if (total <= wanted) return {-1, wanted, true};
  Digit found = {0, 0, false};
  const bool is_mine = sum >= wanted && sum - size < wanted;
  if (is_mine) {
    found.digit = top;
    found.wanted = wanted - (sum - size);
    while (counts[found.digit] < found.wanted) {
      found.wanted -= counts[found.digit--];
    }
    found.is_all = counts[found.digit] == found.wanted;
  }
  const int lane = __ffs(__ballot_sync(kAllLanes, is_mine)) - 1;
  found.digit = __shfl_sync(kAllLanes, found.digit, lane);
  found.wanted = __shfl_sync(kAllLanes, found.wanted, lane);
  found.is_all = __shfl_sync(kAllLanes, static_cast<int>(found.is_all), lane);
  return found;
}

// Counts the digits at `shift` of the keys that are as `cut` so far. Most votes
// are equal, so lanes with the same digit add once.
__device__ __forceinline__ void CountDigits(const RowPool& pool,
                                            const PoolCut& cut, int shift,
                                            int* counts) {
  for (int d = threadIdx.x; d < kDigits; d += blockDim.x) counts[d] = 0;
  __syncthreads();
  for (int first = 0; first < pool.size; first += blockDim.x) {
    const int i = first + threadIdx.x;
    int digit = -1;
    if (i < pool.size && pool.values[i] != 0) {
      const uint64_t key = pool.Key(i);
      if ((key & cut.mask) == cut.least) {
        digit = static_cast<int>(key >> shift & (kDigits - 1));
      }
    }
    const unsigned same = __match_any_sync(kAllLanes, digit);
    if (digit >= 0 && Lane() == __ffs(same) - 1) {
      atomicAdd(&counts[digit], __popc(same));
    }
  }
  __syncthreads();
}

}  // namespace internal

// The cut that keeps the `limit` best, all if there are fewer. Values below
// 2^value_bits, tags below 2^tag_bits. All threads of the block.
__device__ __forceinline__ PoolCut FindCut(const RowPool& pool, int64_t limit,
                                           int value_bits, int tag_bits) {
  __shared__ int counts[internal::kDigits];
  __shared__ internal::Digit shared_digit;
  const int value_digits = (value_bits + 7) / 8,
            tag_digits = (tag_bits + 7) / 8;
  PoolCut cut = {0, 0};
  int wanted = static_cast<int>(limit < pool.size ? limit : pool.size);
  for (int digit = value_digits + tag_digits - 1; digit >= 0; --digit) {
    const int shift =
        digit >= tag_digits ? 32 + 8 * (digit - tag_digits) : 8 * digit;
    internal::CountDigits(pool, cut, shift, counts);
    if (threadIdx.x < kWarp) {
      const internal::Digit found = internal::FindDigit(counts, wanted);
      if (threadIdx.x == 0) shared_digit = found;
    }
    __syncthreads();
    const internal::Digit found = shared_digit;
    __syncthreads();
    if (found.digit >= 0) {
      cut.mask |= uint64_t{internal::kDigits - 1} << shift;
      cut.least |= static_cast<uint64_t>(found.digit) << shift;
      wanted = found.wanted;
    }
    if (found.is_all) break;
  }
  return cut;
}

// Moves what the cut keeps to the front, in any order. All threads.
__device__ __forceinline__ void Compact(const PoolCut& cut, RowPool* pool) {
  __shared__ int kept;
  if (threadIdx.x == 0) kept = 0;
  for (int first = 0; first < pool->size; first += blockDim.x) {
    const int i = first + threadIdx.x;
    const bool is_kept = i < pool->size && cut.Keeps(*pool, i);
    uint32_t tag = 0, value = 0;
    if (is_kept) tag = pool->tags[i], value = pool->values[i];
    __syncthreads();  // places up to first + blockDim.x have been read
    if (!is_kept) continue;
    const int place = atomicAdd(&kept, 1);
    pool->tags[place] = tag;
    pool->values[place] = value;
  }
  __syncthreads();
  pool->size = kept;
  __syncthreads();
}

// The keys of what the cut keeps, inverted so that the best come first, in
// keys [size], a power of two that is large enough. Returns how many.
__device__ __forceinline__ int SortKept(const PoolCut& cut, const RowPool& pool,
                                        uint64_t* keys, int size) {
  __shared__ int kept;
  if (threadIdx.x == 0) kept = 0;
  for (int r = threadIdx.x; r < size; r += blockDim.x) keys[r] = ~uint64_t{0};
  __syncthreads();
  for (int i = threadIdx.x; i < pool.size; i += blockDim.x) {
    if (cut.Keeps(pool, i)) keys[atomicAdd(&kept, 1)] = ~pool.Key(i);
  }
  BlockSort(keys, size);
  return kept;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_POOL_CU_H_
