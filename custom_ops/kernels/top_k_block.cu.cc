// TopKBlock of kernels/softmax_block.cu.h.
//
// A logit and its column are one key, so that all keys differ and whatever
// order they are gathered in, the k greatest are the same.
#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"
#include "kernels/softmax_block.cu.h"
#include "kernels/softmax_stats.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 4;
constexpr int kTile = kThreads * kValues;
constexpr int64_t kGreatestK = 4096;  // of a pass: 128 KiB of shared memory

// Rises with the score and falls with the column; of NaN it is 0.
__device__ __forceinline__ uint64_t KeyOf(float score, int64_t column) {
  const uint32_t high = OrderedBits(score);
  if (high == 0) return 0;
  return uint64_t{high} << 32 | static_cast<uint32_t>(~column);
}

__device__ __forceinline__ float ScoreOf(uint64_t key) {
  return FromOrderedBits(static_cast<uint32_t>(key >> 32));
}

__device__ __forceinline__ int64_t ColumnOf(uint64_t key) {
  return static_cast<uint32_t>(~static_cast<uint32_t>(key));
}

// What a key must exceed to be better than the last of the k so far.
__device__ __forceinline__ uint64_t BarOf(float score, int64_t id,
                                          int64_t offset) {
  if (id < 0) return 0;
  const uint64_t high = uint64_t{OrderedBits(score)} << 32;
  const int64_t column = id - offset;  // an equal score enters left of it
  if (column < 0) return high | 0xffffffffu;
  if (column > INT32_MAX) return high;
  return high | static_cast<uint32_t>(~column);
}

// The k so far of a row, and its new ones.
struct Lists {
  const float* scores;
  const int64_t* ids;
  int64_t k;
  float* new_scores;
  int64_t* new_ids;

  __device__ void Move(int64_t row) {
    scores += row * k, ids += row * k;
    new_scores += row * k, new_ids += row * k;
  }
  __device__ bool IsBetter(int64_t i, float score, int64_t id) const {
    return ids[i] >= 0 &&
           (scores[i] > score || (scores[i] == score && ids[i] <= id));
  }
  __device__ void Write(int64_t place, float score, int64_t id) const {
    if (place >= k) return;
    new_scores[place] = score;
    new_ids[place] = id;
  }
};

// How many of `count` things come first that `is_better` holds for.
template <class IsBetter>
__device__ __forceinline__ int64_t CountBetter(int64_t count,
                                               const IsBetter& is_better) {
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (is_better(middle)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Merges `count` falling keys and the k so far: each finds its own place. A
// block's threads share the work.
__device__ __forceinline__ void MergeLists(const Lists& lists, int64_t offset,
                                           const uint64_t* keys,
                                           int64_t count) {
  const int64_t filled =
      CountBetter(lists.k, [&](int64_t i) { return lists.ids[i] >= 0; });
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const float score = ScoreOf(keys[i]);
    const int64_t id = offset + ColumnOf(keys[i]);
    const int64_t before = CountBetter(
        filled, [&](int64_t j) { return lists.IsBetter(j, score, id); });
    lists.Write(i + before, score, id);
  }
  for (int64_t i = threadIdx.x; i < lists.k; i += blockDim.x) {
    if (i >= filled) {
      lists.Write(i + count, kLowest, -1);
      continue;
    }
    const float score = lists.scores[i];
    const int64_t id = lists.ids[i];
    const int64_t before = CountBetter(count, [&](int64_t j) {
      return !(score > ScoreOf(keys[j]) ||
               (score == ScoreOf(keys[j]) && id <= offset + ColumnOf(keys[j])));
    });
    lists.Write(i + before, score, id);
  }
}

// Sorts `count` (a power of 2) keys in shared memory, falling (bitonic). Pairs
// no more than 32 apart are of one warp's 64 keys: the block need not wait.
__device__ __forceinline__ void SortFalling(uint64_t* keys, int count) {
  bool is_far = true;
  for (int size = 2; size <= count; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      if (is_far || stride > kWarp) {
        __syncthreads();
      } else {
        __syncwarp();
      }
      is_far = stride > kWarp;
      for (int p = threadIdx.x; p < count / 2; p += kThreads) {
        const int i = 2 * p - p % stride, j = i + stride;
        const uint64_t a = keys[i], b = keys[j];
        if ((a < b) != ((i & size) == 0)) continue;
        keys[i] = b;
        keys[j] = a;
      }
    }
  }
  __syncthreads();
}

// The greatest `filled` keys, falling, then those gathered since. Shared.
struct Gathered {
  uint64_t* keys;
  int* count;  // with the filled ones
  int k;
  int filled;
  uint64_t bar, under;  // what enters is between

  // All threads of a warp must call. Whether the key of any entered.
  __device__ __forceinline__ bool Add(uint64_t key) {
    const bool enters = key > bar && key < under;
    const unsigned mask = __ballot_sync(kAllLanes, enters);
    if (mask == 0) return false;
    int place = 0;
    if (Lane() == 0) place = atomicAdd(count, __popc(mask));
    place = __shfl_sync(kAllLanes, place, 0);
    if (enters) keys[place + __popc(mask & ((1u << Lane()) - 1))] = key;
    return true;
  }

  // Leaves the `filled` best. A barrier must lie before it, one is behind.
  __device__ void Keep() {
    const int found = *count;
    int size = 2;
    while (size < found) size *= 2;
    for (int i = found + threadIdx.x; i < size; i += kThreads) keys[i] = 0;
    SortFalling(keys, size);
    filled = min(found, k);
    if (filled == k && keys[k - 1] > bar) bar = keys[k - 1];
    if (threadIdx.x == 0) *count = filled;
    __syncthreads();
  }
};

// Places [begin, begin + k) of each row's best keys, if a pass finds but these.
struct Pass {
  uint64_t* kept;  // [batch, lists.k]; null: the only pass, which merges
  int64_t begin;
  int k;
};

// A block a row. `capacity` keys of shared memory, of which what is more than
// `limit` is sorted away.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    TopKKernel(const float* logits, int64_t block, int64_t offset, Lists lists,
               Pass pass, int capacity, int limit) {
  TFXCLASS_DYNAMIC_SHARED(uint64_t, keys);
  const int64_t row = blockIdx.x;
  const float* of_row = logits + row * block;
  lists.Move(row);
  uint64_t* kept = pass.kept + row * lists.k + pass.begin;
  const int64_t last = lists.k - 1;
  Gathered best = {keys,
                   reinterpret_cast<int*>(keys + capacity),
                   pass.k,
                   0,
                   BarOf(lists.scores[last], lists.ids[last], offset),
                   pass.begin > 0 ? kept[-1] : ~uint64_t{0}};
  if (threadIdx.x == 0) *best.count = 0;
  __syncthreads();
  for (int64_t start = 0; start < block; start += kTile) {
    float x[kValues];
#pragma unroll
    for (int j = 0; j < kValues; j += kWidth) {
      const int64_t c = start + j * kThreads + threadIdx.x * kWidth;
      if (kWidth == 4) {
        float4 four = make_float4(NAN, NAN, NAN, NAN);
        if (c < block) four = *reinterpret_cast<const float4*>(of_row + c);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
      } else {
        x[j] = c < block ? of_row[c] : NAN;
      }
    }
    bool any = false;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      const int64_t c = start + j / kWidth * kWidth * kThreads +
                        threadIdx.x * kWidth + j % kWidth;
      any |= best.Add(KeyOf(x[j], c));
    }
    // One barrier where nothing enters, as in most tiles of most rows.
    if (!__syncthreads_or(any)) continue;
    const bool is_full = *best.count > limit;
    __syncthreads();
    if (is_full) best.Keep();
  }
  best.Keep();
  if (pass.kept == nullptr) {
    MergeLists(lists, offset, keys, best.filled);
    return;
  }
  for (int i = threadIdx.x; i < pass.k; i += kThreads) {
    kept[i] = i < best.filled ? keys[i] : 0;
  }
}

// A block a row.
__global__ void __launch_bounds__(kThreads)
    MergeKeptKernel(const uint64_t* kept, int64_t offset, Lists lists) {
  lists.Move(blockIdx.x);
  const uint64_t* keys = kept + blockIdx.x * lists.k;
  const int64_t count =
      CountBetter(lists.k, [&](int64_t i) { return keys[i] != 0; });
  MergeLists(lists, offset, keys, count);
}

// How a pass for `k` places uses its shared memory.
struct PassMemory {
  int limit = 0, capacity = 0;  // of TopKKernel

  explicit PassMemory(int64_t k) {
    int power = 128;
    while (power < k) power *= 2;
    // Sorts of 4 * power keys, unless many logits of one tile enter.
    limit = 3 * power;
    capacity = 4 * power;
    while (capacity < limit + kTile) capacity *= 2;
  }
  int64_t bytes() const { return capacity * sizeof(uint64_t) + sizeof(int); }
};

// Sets *places to those of a pass: fewer where a block has less memory.
GpuStatus FitPass(int64_t k, int64_t* places) {
  int64_t most;
  TFXCLASS_RETURN_IF_GPU_ERROR(MostSharedBytes(TopKKernel<1>, &most));
  *places = k < kGreatestK ? k : kGreatestK;
  while (*places > 1 && PassMemory(*places).bytes() > most) *places /= 2;
  return nullptr;
}

GpuStatus RunPass(const float* logits, int64_t batch, int64_t block,
                  int64_t offset, const Lists& lists, const Pass& pass,
                  GpuStream stream) {
  const PassMemory memory(pass.k);
  const bool is_wide =
      block % 4 == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  return Launch(is_wide ? TopKKernel<4> : TopKKernel<1>, batch, kThreads,
                memory.bytes(), stream, logits, block, offset, lists, pass,
                memory.capacity, memory.limit);
}

}  // namespace

GpuStatus TopKBlock(const float* logits, int64_t batch, int64_t block,
                    int64_t offset, int64_t k, const float* scores,
                    const int64_t* ids, float* new_scores, int64_t* new_ids,
                    Scratch* scratch, GpuStream stream) {
  if (k == 0) return nullptr;
  if (block > INT32_MAX) return "more columns of logits than 2^31 - 1";
  const Lists lists = {scores, ids, k, new_scores, new_ids};
  int64_t places;
  TFXCLASS_RETURN_IF_GPU_ERROR(FitPass(k, &places));
  if (k <= places) {
    const Pass pass = {nullptr, 0, static_cast<int>(k)};
    return RunPass(logits, batch, block, offset, lists, pass, stream);
  }
  uint64_t* kept = scratch->Get<uint64_t>(batch * k);
  if (kept == nullptr) return kNoScratch;
  for (int64_t begin = 0; begin < k; begin += places) {
    const int64_t count = k - begin < places ? k - begin : places;
    const Pass pass = {kept, begin, static_cast<int>(count)};
    TFXCLASS_RETURN_IF_GPU_ERROR(
        RunPass(logits, batch, block, offset, lists, pass, stream));
  }
  return Launch(MergeKeptKernel, batch, kThreads, 0, stream, kept, offset,
                lists);
}

}  // namespace tfxclass
