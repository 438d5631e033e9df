// The kernel of kernels/exact_softmax.cu.cc: one for the sums, the sum of rows
// and their gradient, over the tiles of kernels/mma_tile.cu.h.
#ifndef TFXCLASS_KERNELS_EXACT_SOFTMAX_KERNEL_CU_H_
#define TFXCLASS_KERNELS_EXACT_SOFTMAX_KERNEL_CU_H_

#include "kernels/exact_softmax_sides.cu.h"
#include "kernels/key_bits.cu.h"

namespace tfxclass {

// Products to logits, where the columns are classes.
__device__ __forceinline__ void ToLogits(const ColumnInfo& info,
                                         MmaTile* tile) {
#pragma unroll
  for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) {
    const int c = MmaTile::Column(j);
#pragma unroll
    for (int i = 0; i < MmaTile::kRows; ++i) {
      tile->At(i, j) = tile->At(i, j) * info.scale[c] + info.shift[c];
    }
  }
}

// kSums.
__device__ __forceinline__ void FoldTile(
    const Sides<Job::kSums>& sides, const ColumnInfo& info, int column_tile,
    int64_t* cursor, MmaTile* tile, SoftmaxStats (&stats)[MmaTile::kRows]) {
  ToLogits(info, tile);
  ForTargets(sides, column_tile, cursor, tile,
             [](float& x, float delta, int) { x += delta; });
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
    if (sides.OwnFirst() + MmaTile::Row(i) >= sides.task.batch) continue;
    float x[MmaTile::kColumnsOfThread];
#pragma unroll
    for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) x[j] = tile->At(i, j);
    Fold(x, &stats[i]);
  }
}

__device__ __forceinline__ void WriteSums(
    const Sides<Job::kSums>& sides, int64_t range,
    const SoftmaxStats (&stats)[MmaTile::kRows]) {
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
    const int64_t b = sides.OwnFirst() + MmaTile::Row(i);
    const SoftmaxStats of_row = MergeLanes(stats[i], MmaTile::kLanesOfRow);
    if (Lane() % MmaTile::kLanesOfRow == 0 && b < sides.task.batch) {
      sides.task.stats[range * sides.task.batch + b] = of_row;
    }
  }
}

// kRowSums: the weights of the class rows, 0 of targets.
__device__ __forceinline__ void ToWeights(const Sides<Job::kRowSums>& sides,
                                          const ColumnInfo& info,
                                          int column_tile, int64_t* cursor,
                                          MmaTile* tile) {
  ToLogits(info, tile);
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
    const int64_t b = sides.OwnFirst() + Anew(MmaTile::Row(i));
    const float top = b < sides.task.batch ? sides.task.top[b] : 0.0f;
    const float shift = top == kLowest ? 0.0f : top;
#pragma unroll
    for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) {
      float& x = tile->At(i, j);
      x = Probability(x - shift) * info.scale[MmaTile::Column(j)];
    }
  }
  ForTargets(sides, column_tile, cursor, tile,
             [](float& x, float, int) { x = 0; });
}

// kRowsGrad: the gradients of the logits; their sums over the columns.
__device__ __forceinline__ void ToGradients(const Sides<Job::kRowsGrad>& sides,
                                            const ColumnInfo& info,
                                            int column_tile, int64_t* cursor,
                                            MmaTile* tile,
                                            float (&sums)[MmaTile::kRows]) {
  const float uniform = sides.task.uniform;
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
    const int64_t own = sides.OwnFirst() + Anew(MmaTile::Row(i));
    const float shift = sides.BiasOf(own), scale = sides.InverseOf(own);
#pragma unroll
    for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) {
      const int b = MmaTile::Column(j);
      float& x = tile->At(i, j);
      const float p = Probability(x * scale + shift - info.shift[b]);
      x = info.scale[b] * (p - uniform);
    }
  }
  ForTargets(sides, column_tile, cursor, tile,
             [&](float& x, float value, int b) {
               x = value - info.scale[b] * uniform;
             });
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < MmaTile::kColumnsOfThread; ++j) {
      sums[i] += tile->At(i, j);
    }
  }
}

template <Job kJob>
__device__ __forceinline__ void WriteOutput(const Sides<kJob>& sides,
                                            int64_t range, int chunk,
                                            const MmaTile& tile) {
  const int dims = sides.DimsOf(chunk);
  float* output = sides.task.output + range * sides.NumOwn() * sides.task.dim;
  tile.Output([&](int row, int d, float value) {
    const int64_t own = sides.OwnFirst() + row;
    if (own >= sides.NumOwn() || d >= dims) return;
    output[own * sides.task.dim + int64_t{chunk} * kDims + d] = value;
  });
}

__device__ __forceinline__ void WriteBiasGrad(
    const Sides<Job::kRowsGrad>& sides, const float (&sums)[MmaTile::kRows]) {
#pragma unroll
  for (int i = 0; i < MmaTile::kRows; ++i) {
    const int64_t c = sides.OwnFirst() + MmaTile::Row(i);
    float sum = sums[i];
    for (int offset = MmaTile::kLanesOfRow / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    if (Lane() % MmaTile::kLanesOfRow == 0 && c < sides.task.num_classes) {
      sides.task.bias_grad[c] = sum;
    }
  }
}

// A place in the stream of tiles of columns, each of which is loaded chunk by
// chunk; the chunk that the output is of comes last, to be used at once.
template <bool kManyChunks>
struct Place {
  int tile, step;

  __device__ __forceinline__ Place Next(int chunks) const {
    if (kManyChunks && step + 1 < chunks) return {tile, step + 1};
    return {tile + 1, 0};
  }
  __device__ __forceinline__ int Chunk(int chunks, int last_chunk) const {
    const int chunk = last_chunk + 1 + step;
    return chunk < chunks ? chunk : chunk - chunks;
  }
};

constexpr int SharedBytes(bool many_chunks) {
  return ((many_chunks ? 2 : 1) * MmaTile::kOwn + 2 * MmaTile::kColumns) *
             kDims * static_cast<int>(sizeof(Bf16)) +
         2 * static_cast<int>(sizeof(ColumnInfo));
}
static_assert(SharedBytes(true) <= 163 << 10, "what a block has on sm_80");

// Block (chunk * ranges + range) * own_tiles + tile: of a tile of its own, a
// range of columns and a chunk of the output's dimensions.
template <Job kJob, bool kManyChunks>
__global__ void __launch_bounds__(kTileThreads,
                                  kJob == Job::kSums && !kManyChunks ? 2 : 1)
    ExactSoftmaxKernel(Task task) {
  constexpr int kRowUnits = kDims * sizeof(Bf16) / 16;
  constexpr int kOwnUnits = MmaTile::kOwn * kRowUnits;
  constexpr int kColumnUnits = MmaTile::kColumns * kRowUnits;
  TFXCLASS_DYNAMIC_SHARED(uint4, shared);
  uint4* const own = shared;
  uint4* const columns = own + (kManyChunks ? 2 : 1) * kOwnUnits;
  ColumnInfo* const infos =
      reinterpret_cast<ColumnInfo*>(columns + 2 * kColumnUnits);

  const Sides<kJob> sides = {task,
                             static_cast<int>(blockIdx.x % task.own_tiles)};
  const int rows_left = static_cast<int>(
      min(int64_t{MmaTile::kOwn}, sides.NumOwn() - sides.OwnFirst()));
  const int number = static_cast<int>(blockIdx.x / task.own_tiles);
  const int range = number % task.ranges;
  const int chunks = kManyChunks ? task.chunks : 1;
  const int last_chunk = kManyChunks ? number / task.ranges : 0;
  const int end =
      static_cast<int>(task.column_tiles * (range + 1) / task.ranges);

  const auto load = [&](const Place<kManyChunks>& place, int buffer) {
    const int64_t first = int64_t{place.tile} * MmaTile::kColumns;
    const int chunk = place.Chunk(chunks, last_chunk);
    sides.LoadColumns(first, chunk, columns + buffer * kColumnUnits);
    if (kManyChunks) sides.LoadOwn(chunk, own + buffer * kOwnUnits);
    if (place.step == 0) sides.LoadInfo(first, &infos[place.tile % 2]);
  };

  MmaTile tile = {};
  SoftmaxStats stats[MmaTile::kRows];
  float sums[MmaTile::kRows] = {};
  Place<kManyChunks> place = {
      static_cast<int>(task.column_tiles * range / task.ranges), 0};
  int64_t cursor = LowerBound(
      task.keys, task.num_targets,
      static_cast<uint64_t>(sides.own_tile * task.column_tiles + place.tile));
  if (place.tile < end) {
    if (!kManyChunks) sides.LoadOwn(0, own);
    load(place, 0);
  }
  for (int buffer = 0; place.tile < end; buffer ^= 1) {
    WaitForCopies();
    __syncthreads();
    const Place<kManyChunks> next = place.Next(chunks);
    if (next.tile < end) load(next, buffer ^ 1);
    if (place.step == 0) tile.Clear();
    const uint4* of_columns = columns + buffer * kColumnUnits;
    const int dims = sides.DimsOf(place.Chunk(chunks, last_chunk));
    tile.AddLogits(own + (kManyChunks ? buffer * kOwnUnits : 0), of_columns,
                   dims, rows_left);
    if (place.step + 1 == chunks) {
      const ColumnInfo& info = infos[place.tile % 2];
      if constexpr (kJob == Job::kSums) {
        FoldTile(sides, info, place.tile, &cursor, &tile, stats);
      } else {
        if constexpr (kJob == Job::kRowSums) {
          ToWeights(sides, info, place.tile, &cursor, &tile);
        } else {
          ToGradients(sides, info, place.tile, &cursor, &tile, sums);
        }
        tile.AddProduct(of_columns, dims, rows_left);
      }
    }
    place = next;
  }
  if constexpr (kJob == Job::kSums) {
    WriteSums(sides, range, stats);
  } else {
    WriteOutput(sides, range, last_chunk, tile);
    if constexpr (kJob == Job::kRowsGrad) {
      if (last_chunk == 0 && task.bias_grad != nullptr) {
        WriteBiasGrad(sides, sums);
      }
    }
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_EXACT_SOFTMAX_KERNEL_CU_H_
