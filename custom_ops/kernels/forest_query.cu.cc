#include "kernels/forest_query.cu.h"

#include "kernels/block_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/row_pool.cu.h"
#include "kernels/warp_dots.cu.h"

namespace tfxclass {
namespace {

constexpr int kWalkThreads = 256;
constexpr int kWalkBlocks = 5;  // at least so many at once on an SM
constexpr int kWalkLanes = 8;
constexpr int kMostThreads = 512;  // of a block a query
constexpr int kLeastSlots = 1024;
constexpr int kMostSlots = 12288;  // 96 KiB: two blocks on an H200's SM
constexpr int kSlotBytes = 2 * sizeof(uint32_t);
constexpr int64_t kTableBytes = int64_t{256} << 20;
constexpr int kTableBlocks = 132;

// Rows [begin, end) of HashingTree::ids.
struct PooledRange {
  int32_t begin, end;
};

// A warp a query: rounds it as RoundedRows.Assign does.
__global__ void RoundQueriesKernel(GpuForest forest, const float* queries,
                                   int64_t batch, int16_t* rounded,
                                   float* scales) {
  const int64_t i = WarpNumber();
  if (i >= batch) return;
  const float* query = queries + i * forest.dim;
  float largest = 0.0f;
  for (int64_t d = Lane(); d < forest.dim; d += kWarp) {
    largest = fmaxf(largest, fabsf(query[d]));
  }
  largest = WarpMax(largest);
  const float inverse = largest > 0 ? forest.levels / largest : 0.0f;
  for (int64_t d = Lane(); d < forest.padded; d += kWarp) {
    const float x = d < forest.dim ? rintf(query[d] * inverse) : 0.0f;
    rounded[i * forest.padded + d] = static_cast<int16_t>(x);
  }
  if (Lane() == 0) scales[i] = largest / forest.levels;
}

// Of two pairs of 16-bit integers.
__device__ __forceinline__ int PairDot(unsigned a, unsigned b) {
  const int low =
      static_cast<int16_t>(a & 0xffff) * static_cast<int16_t>(b & 0xffff);
  return low + (static_cast<int>(a) >> 16) * (static_cast<int>(b) >> 16);
}

__device__ __forceinline__ ForestNode LoadNode(const ForestNode* from) {
  const uint4 x = *reinterpret_cast<const uint4*>(from);
  return {static_cast<int32_t>(x.x), static_cast<int32_t>(x.y),
          static_cast<int32_t>(x.z), static_cast<int32_t>(x.w)};
}

// The part of one of kWalkLanes lanes of a product of rounded rows.
__device__ __forceinline__ int PartOfDot(const int16_t* plane,
                                         const int16_t* query, int padded) {
  const uint4* a = reinterpret_cast<const uint4*>(plane);
  const uint4* b = reinterpret_cast<const uint4*>(query);
  int sum = 0;
#pragma unroll 2
  for (int v = threadIdx.x % kWalkLanes; v < padded / 8; v += kWalkLanes) {
    const uint4 x = a[v], y = b[v];
    sum += PairDot(x.x, y.x) + PairDot(x.y, y.y) + PairDot(x.z, y.z) +
           PairDot(x.w, y.w);
  }
  return sum;
}

// kWalkLanes lanes for each tree and query. pooled [batch, num_trees].
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks)
    WalkKernel(GpuForest forest, const int16_t* rounded, const float* scales,
               int64_t batch, int bucket, PooledRange* pooled) {
  const int64_t walk = ThreadNumber() / kWalkLanes;
  const bool is_walk = walk < batch * forest.num_trees;
  const int t = is_walk ? static_cast<int>(walk / batch) : 0;
  const int i = is_walk ? static_cast<int>(walk % batch) : 0;
  const int padded = static_cast<int>(forest.padded);
  const ForestNode* nodes = forest.nodes + forest.first_node[t];
  const int16_t* planes = forest.planes + forest.first_plane[t] * padded;
  const int16_t* query = rounded + int64_t{i} * padded;
  ForestNode node = LoadNode(nodes);
  PooledRange parent = {node.begin, node.end};
  bool walking = is_walk;
  while (true) {
    walking = walking && node.child >= 0 && node.end - node.begin >= bucket;
    if (!__any_sync(kAllLanes, walking)) break;
    const bool has_plane = walking && node.plane >= 0;
    int sum = 0;
    if (has_plane) {
      sum = PartOfDot(planes + int64_t{node.plane} * padded, query, padded);
    }
    for (int offset = kWalkLanes / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    if (!walking) continue;
    bool is_right = sum >= 0;  // as it is where there is no plane
    // The product of two scales may vanish, and -0 >= 0.
    if (!is_right && !(scales[i] * forest.least_scale > 0)) {
      const int64_t plane = forest.first_plane[t] + node.plane;
      is_right = scales[i] * forest.scales[plane] * sum >= 0;
    }
    parent = {node.begin, node.end};
    node = LoadNode(nodes + node.child + is_right);
  }
  if (!is_walk || threadIdx.x % kWalkLanes != 0) return;
  pooled[i * forest.num_trees + t] = node.end - node.begin < bucket
                                         ? parent
                                         : PooledRange{node.begin, node.end};
}

// What the kernels with a block a query have.
struct QueryArgs {
  GpuForest forest;
  const float *kernel, *queries;
  int64_t batch, num_neighbors, num_candidates;
  bool normalize;
  const PooledRange* pooled;
  int slots, limit;   // of the table, and how many of them may be taken
  int sort_size;      // the least power of two >= num_neighbors
  int32_t* overflow;  // [1 + batch]: how many queries do not fit, and which
  int64_t* ids;
  float* scores;
};

// vote(id) for all pooled rows of query i, a warp a tree.
template <class Vote>
__device__ __forceinline__ void ForEachPooled(const QueryArgs& args, int64_t i,
                                              const Vote& vote) {
  const int64_t trees = args.forest.num_trees;
  for (int64_t t = threadIdx.x / kWarp; t < trees; t += blockDim.x / kWarp) {
    const PooledRange range = args.pooled[i * trees + t];
    const int32_t* ids = args.forest.ids + t * args.forest.count;
    for (int r = range.begin + Lane(); r < range.end; r += kWarp) vote(ids[r]);
  }
}

// Puts scores in the place of votes; the pool is dense.
template <int kWidth>
__device__ void ScorePool(const QueryArgs& args, int64_t i,
                          const RowPool& pool) {
  constexpr int kTogether = 4;
  const int64_t dim = args.forest.dim;
  const int warps = blockDim.x / kWarp;
  for (int r = threadIdx.x / kWarp * kTogether; r < pool.size;
       r += warps * kTogether) {
    const float* rows[kTogether];
    float dots[kTogether], squares[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      rows[j] = args.kernel + pool.Id(min(r + j, pool.size - 1)) * dim;
    }
    WarpDots<kWidth, kTogether, true>(args.queries + i * dim, rows,
                                      static_cast<int>(dim), dots, squares);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (Lane() != j || r + j >= pool.size) continue;
      float score = dots[j];
      if (args.normalize) {
        score = squares[j] > 0 ? score / sqrtf(squares[j]) : 0.0f;
      }
      pool.values[r + j] = OrderedBits(score);
    }
  }
  __syncthreads();
}

// From the votes of query i to its results. keys [sort_size].
template <int kWidth>
__device__ __forceinline__ void RankPool(const QueryArgs& args, int64_t i,
                                         RowPool pool, uint64_t* keys) {
  PoolCut cut = {0, 0};
  if (args.num_candidates > 0) {
    cut = FindCut(pool, args.num_candidates, BitsOf(args.forest.num_trees),
                  BitsOf(args.forest.count));
  }
  Compact(cut, &pool);
  ScorePool<kWidth>(args, i, pool);
  cut = FindCut(pool, args.num_neighbors, 32, BitsOf(args.forest.count));
  const int found = SortKept(cut, pool, keys, args.sort_size);
  const int64_t first = i * args.num_neighbors;
  for (int r = threadIdx.x; r < args.num_neighbors; r += blockDim.x) {
    const uint64_t key = ~keys[r];
    const bool is_row = r < found;
    args.ids[first + r] = is_row ? IdOfKey(key) : -1;
    args.scores[first + r] = is_row ? FromOrderedBits(key >> 32) : 0.0f;
  }
}

// A block a query. Shared memory: sort_size keys and the table.
template <int kWidth>
__global__ void __launch_bounds__(kMostThreads, 2) QueryKernel(QueryArgs args) {
  TFXCLASS_DYNAMIC_SHARED(uint64_t, keys);
  __shared__ int distinct, is_full;
  const int64_t i = blockIdx.x;
  const RowPool pool = {
      reinterpret_cast<uint32_t*>(keys + args.sort_size),
      reinterpret_cast<uint32_t*>(keys + args.sort_size) + args.slots,
      args.slots};
  for (int s = threadIdx.x; s < args.slots; s += blockDim.x) {
    pool.tags[s] = pool.values[s] = 0;
  }
  if (threadIdx.x == 0) distinct = is_full = 0;
  __syncthreads();
  ForEachPooled(args, i, [&](int32_t id) {
    if (*const_cast<volatile int*>(&is_full)) return;
    const TableVote vote = VoteInTable(pool, id);
    const bool fits =
        vote != TableVote::kNoRoom &&
        (vote == TableVote::kOld || atomicAdd(&distinct, 1) < args.limit);
    if (!fits) is_full = 1;
  });
  __syncthreads();
  if (is_full) {
    if (threadIdx.x == 0) {
      args.overflow[1 + atomicAdd(args.overflow, 1)] = static_cast<int>(i);
    }
    return;
  }
  RankPool<kWidth>(args, i, pool, keys);
}

// A block for some of the queries that did not fit. votes, tags and values
// [blocks, count]. Shared memory: sort_size keys.
template <int kWidth>
__global__ void __launch_bounds__(kMostThreads)
    OverflowKernel(QueryArgs args, uint32_t* votes, uint32_t* tags,
                   uint32_t* values) {
  TFXCLASS_DYNAMIC_SHARED(uint64_t, keys);
  __shared__ int distinct;
  const int num_queries = args.overflow[0];
  if (static_cast<int>(blockIdx.x) >= num_queries) return;
  const int64_t first = blockIdx.x * args.forest.count;
  votes += first;
  for (int64_t c = threadIdx.x; c < args.forest.count; c += blockDim.x) {
    votes[c] = 0;
  }
  for (int q = blockIdx.x; q < num_queries; q += gridDim.x) {
    const int64_t i = args.overflow[1 + q];
    if (threadIdx.x == 0) distinct = 0;
    __syncthreads();
    RowPool pool = {tags + first, values + first, 0};
    ForEachPooled(args, i, [&](int32_t id) {
      if (atomicAdd(&votes[id], 1u) > 0) return;
      pool.tags[atomicAdd(&distinct, 1)] = id + 1;
    });
    __syncthreads();
    pool.size = distinct;
    for (int r = threadIdx.x; r < pool.size; r += blockDim.x) {
      uint32_t* const of_row = votes + pool.Id(r);
      pool.values[r] = *of_row;
      *of_row = 0;
    }
    __syncthreads();
    RankPool<kWidth>(args, i, pool, keys);
    __syncthreads();
  }
}

int64_t Clamp(int64_t x, int64_t least, int64_t most) {
  return x < least ? least : x > most ? most : x;
}

// Twice the smallest pools, for what walks overshoot; votes overlap, so most
// queries take far fewer.
int64_t SlotsFor(const GpuForest& forest, int64_t bucket) {
  const int64_t fewer = bucket < forest.count ? bucket : forest.count;
  const int64_t of_tree =
      2 * fewer > forest.largest_leaf ? 2 * fewer : forest.largest_leaf;
  const int64_t trees = Clamp(forest.num_trees, 1, kMostSlots);
  return Clamp(CeilDiv(trees * of_tree, kWarp) * kWarp, kLeastSlots,
               kMostSlots);
}

// At most as many as fit beside the keys in the shared memory of a block.
GpuStatus FitSlots(int64_t wanted, size_t key_bytes, int* slots) {
  int64_t bytes;
  TFXCLASS_RETURN_IF_GPU_ERROR(MostSharedBytes(QueryKernel<1>, &bytes));
  const int64_t room = bytes - static_cast<int64_t>(key_bytes);
  *slots = static_cast<int>(Clamp(wanted, 1, room / kSlotBytes));
  return nullptr;
}

GpuStatus CheckQuery(const GpuForest& forest,
                     const ForestQueryOptions& options) {
  if (options.num_neighbors < 1 || options.num_neighbors > kMostNeighbors) {
    return "`num_neighbors` must be in [1, 4096] on a GPU";
  }
  if (options.num_candidates < 0 || options.bucket < 0) {
    return "`num_candidates` and `bucket` must be >= 0";
  }
  if (options.table_slots < 0 || options.table_slots > kMostSlots) {
    return "`table_slots` must be in [0, 12288]";
  }
  return forest.count > 0 && forest.count < INT32_MAX
             ? nullptr
             : "a forest must have 1 row at least and fewer than 2^31 - 1";
}

GpuStatus Walk(const GpuForest& forest, const float* queries, int64_t batch,
               int64_t bucket, PooledRange* pooled, Scratch* scratch,
               GpuStream stream) {
  int16_t* rounded = scratch->Get<int16_t>(batch * forest.padded);
  float* scales = scratch->Get<float>(batch);
  if (rounded == nullptr || scales == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(RoundQueriesKernel, BlocksOfWarps(batch, kWalkThreads),
             kWalkThreads, 0, stream, forest, queries, batch, rounded, scales));
  const int64_t threads = batch * forest.num_trees * kWalkLanes;
  const int least = static_cast<int>(Clamp(bucket, 1, forest.count + 1));
  return Launch(WalkKernel, CeilDiv(threads, kWalkThreads), kWalkThreads, 0,
                stream, forest, rounded, scales, batch, least, pooled);
}

GpuStatus RankOverflow(const QueryArgs& args, bool wide, int threads,
                       size_t shared_bytes, Scratch* scratch,
                       GpuStream stream) {
  const int64_t count = args.forest.count;
  const int64_t most = args.batch < kTableBlocks ? args.batch : kTableBlocks;
  const int64_t blocks =
      Clamp(kTableBytes / (3 * sizeof(uint32_t) * count), 1, most);
  uint32_t* votes = scratch->Get<uint32_t>(blocks * count);
  uint32_t* tags = scratch->Get<uint32_t>(blocks * count);
  uint32_t* values = scratch->Get<uint32_t>(blocks * count);
  if (votes == nullptr || tags == nullptr || values == nullptr) {
    return kNoScratch;
  }
  return Launch(wide ? OverflowKernel<4> : OverflowKernel<1>, blocks, threads,
                shared_bytes, stream, args, votes, tags, values);
}

}  // namespace

GpuStatus QueryForest(const GpuForest& forest, const float* kernel,
                      const float* queries, int64_t batch,
                      const ForestQueryOptions& options, int64_t* ids,
                      float* scores, Scratch* scratch, GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(CheckQuery(forest, options));
  if (batch == 0) return nullptr;
  if (batch >= INT32_MAX) return "more queries than 2^31 - 2";
  const int64_t bucket =
      options.bucket > 0 ? options.bucket : options.num_neighbors;
  PooledRange* pooled = scratch->Get<PooledRange>(batch * forest.num_trees);
  int32_t* overflow = scratch->Get<int32_t>(1 + batch);
  if (pooled == nullptr || overflow == nullptr) return kNoScratch;
  if (forest.num_trees > 0) {
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Walk(forest, queries, batch, bucket, pooled, scratch, stream));
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(overflow, 0, sizeof(*overflow), stream));
  const int sort_size = PowerOfTwo(options.num_neighbors);
  const size_t key_bytes = sizeof(uint64_t) * sort_size;
  int slots;
  TFXCLASS_RETURN_IF_GPU_ERROR(FitSlots(
      options.table_slots > 0 ? options.table_slots : SlotsFor(forest, bucket),
      key_bytes, &slots));
  const QueryArgs args = {forest,
                          kernel,
                          queries,
                          batch,
                          options.num_neighbors,
                          options.num_candidates,
                          options.normalize,
                          pooled,
                          slots,
                          slots - slots / 8,
                          sort_size,
                          overflow,
                          ids,
                          scores};
  const bool wide = AreAligned(forest.dim, kernel, queries);
  const int threads = slots <= 2 * kLeastSlots ? 128 : kMostThreads;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(wide ? QueryKernel<4> : QueryKernel<1>, batch, threads,
             key_bytes + kSlotBytes * slots, stream, args));
  if (forest.count <= args.limit) return nullptr;
  return RankOverflow(args, wide, threads, key_bytes, scratch, stream);
}

}  // namespace tfxclass
