// What the passes of kernels/exact_softmax_kernel.cu.h read: the two sides of
// the products, tile by tile, and the targets among their logits.
#ifndef TFXCLASS_KERNELS_EXACT_SOFTMAX_SIDES_CU_H_
#define TFXCLASS_KERNELS_EXACT_SOFTMAX_SIDES_CU_H_

#include "kernels/mma_tile.cu.h"
#include "kernels/softmax_stats.cu.h"

namespace tfxclass {

// Blocks own examples and stream classes, but with kRowsGrad.
enum class Job { kSums, kRowSums, kRowsGrad };

struct Task {
  int64_t batch, num_classes, dim;
  const Bf16* queries;  // [batch, chunks * kDims], padded with zeros
  const Bf16* rows;
  const float* bias;
  const float* inverse;  // of the rows' norms, or null
  bool is_aligned;       // units of 16 bytes of `rows` may be copied
  int chunks;            // of kDims dimensions
  int64_t own_tiles, column_tiles;
  int ranges;
  // Targets sorted by own tile and column tile: keys[i] = own tile *
  // column_tiles + column tile is of target order[i] of [batch, width].
  const uint64_t* keys;
  const int32_t* order;
  int64_t num_targets, width;
  const int64_t* targets;
  const float* values;
  SoftmaxStats* stats;              // kSums: [ranges, batch]
  const float* top;                 // kRowSums: [batch]
  const float *logsumexp, *factor;  // kRowsGrad: [batch]
  float uniform;
  // kRowSums: [ranges, batch, dim]; kRowsGrad: [num_classes, dim].
  float *output, *bias_grad;
};

// What else belongs to the columns of a tile: of a class its bias, -infinity
// past the last, and inverse norm; of an example its logsumexp and factor.
struct ColumnInfo {
  float shift[MmaTile::kColumns], scale[MmaTile::kColumns];
};

// Copies dimensions [first_dim, first_dim + dims) of rows [first, first +
// kRows) of a matrix [count, dim]; zeros for what is outside, and up to 16
// dimensions.
template <int kRows>
__device__ __forceinline__ void LoadTile(const Bf16* matrix, int64_t count,
                                         int64_t dim, bool is_aligned,
                                         int64_t first, int64_t first_dim,
                                         int dims, uint4* tile) {
  constexpr int kOfUnit = 16 / sizeof(Bf16);
  constexpr int kUnits = kDims / kOfUnit;
  const int thread = Anew(threadIdx.x);
  const int unit = thread % kUnits;  // the same of all its rows
  if (unit * kOfUnit >= RoundedDims(dims)) return;
  const int of_row = max(0, min(kOfUnit, dims - unit * kOfUnit));
  const Bf16* from = matrix + first * dim + first_dim + unit * kOfUnit;
  for (int row = thread / kUnits; row < kRows; row += kTileThreads / kUnits) {
    const int valid = first + row < count ? of_row : 0;
    const Bf16* of = valid > 0 ? from + row * dim : matrix;
    uint4* to = tile + UnitAt(row, unit);
    if (is_aligned) {
      CopyAsync16(to, of, valid * sizeof(Bf16));
    } else {
      Bf16* one = reinterpret_cast<Bf16*>(to);
      for (int e = 0; e < kOfUnit; ++e) one[e] = e < valid ? of[e] : Bf16{};
    }
  }
}

// One job's view of the two sides.
template <Job kJob>
struct Sides {
  static constexpr bool kOwnsBatch = kJob != Job::kRowsGrad;
  const Task& task;
  int own_tile;

  __device__ __forceinline__ int64_t OwnFirst() const {
    return int64_t{own_tile} * MmaTile::kOwn;
  }
  __device__ int64_t NumOwn() const {
    return kOwnsBatch ? task.batch : task.num_classes;
  }

  template <bool kBatch, int kRows>
  __device__ __forceinline__ void Load(int64_t first, int chunk,
                                       uint4* tile) const {
    const int64_t first_dim = int64_t{chunk} * kDims;
    if (kBatch) {
      LoadTile<kRows>(task.queries, task.batch, int64_t{task.chunks} * kDims,
                      true, first, first_dim, DimsOf(chunk), tile);
    } else {
      LoadTile<kRows>(task.rows, task.num_classes, task.dim, task.is_aligned,
                      first, first_dim, DimsOf(chunk), tile);
    }
  }
  __device__ __forceinline__ void LoadOwn(int chunk, uint4* tile) const {
    Load<kOwnsBatch, MmaTile::kOwn>(OwnFirst(), chunk, tile);
  }
  __device__ __forceinline__ void LoadColumns(int64_t first, int chunk,
                                              uint4* tile) const {
    Load<!kOwnsBatch, MmaTile::kColumns>(first, chunk, tile);
  }
  __device__ __forceinline__ int DimsOf(int chunk) const {
    return static_cast<int>(
        min(int64_t{kDims}, task.dim - int64_t{chunk} * kDims));
  }

  __device__ __forceinline__ float BiasOf(int64_t c) const {
    if (c >= task.num_classes) return kLowest;
    return task.bias == nullptr ? 0.0f : task.bias[c];
  }
  __device__ __forceinline__ float InverseOf(int64_t c) const {
    const bool is_in = task.inverse != nullptr && c < task.num_classes;
    return is_in ? task.inverse[c] : 1.0f;
  }

  // The first threads each see to a column.
  __device__ __forceinline__ void LoadInfo(int64_t first,
                                           ColumnInfo* info) const {
    const int i = threadIdx.x;
    if (i >= MmaTile::kColumns) return;
    const bool is_in = first + i < task.batch;
    if (kOwnsBatch) {
      info->shift[i] = BiasOf(first + i);
      info->scale[i] = InverseOf(first + i);
    } else {
      info->shift[i] = is_in ? task.logsumexp[first + i] : 0.0f;
      info->scale[i] = is_in ? task.factor[first + i] : 0.0f;
    }
  }
};

// Calls set(x, value, column) for the numbers of this thread that are of
// targets in the next tile of columns. `cursor` goes on to the tile after.
template <Job kJob, class Set>
__device__ __forceinline__ void ForTargets(const Sides<kJob>& sides,
                                           int column_tile, int64_t* cursor,
                                           MmaTile* tile, const Set& set) {
  const Task& task = sides.task;
  const uint64_t key = sides.own_tile * task.column_tiles + column_tile;
  for (; *cursor < task.num_targets && task.keys[*cursor] == key; ++*cursor) {
    const int64_t at = task.order[*cursor], b = at / task.width;
    const int64_t own = sides.kOwnsBatch ? b : task.targets[at];
    const int64_t other = sides.kOwnsBatch ? task.targets[at] : b;
    const int row = static_cast<int>(own % MmaTile::kOwn);
    const int column = static_cast<int>(other % MmaTile::kColumns);
#pragma unroll
    for (int i = 0; i < MmaTile::kRows; ++i) {
      if (MmaTile::Row(i) != row) continue;
#pragma unroll
      for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) {
        if (MmaTile::Column(j) == column) {
          set(tile->At(i, j), task.values[at], column);
        }
      }
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_EXACT_SOFTMAX_SIDES_CU_H_
