// The kernel of kernels/linear_cross_entropy.cu.cc: one for the loss and both
// gradients, over the tiles of kernels/linear_tiles.cu.h.
#ifndef TFXCLASS_KERNELS_LINEAR_KERNEL_CU_H_
#define TFXCLASS_KERNELS_LINEAR_KERNEL_CU_H_

#include "kernels/linear_tiles.cu.h"
#include "kernels/softmax_stats.cu.h"

namespace tfxclass {

enum class Job { kLoss, kFeaturesGrad, kRowsGrad };

template <class Element>
struct Task {
  int64_t batch, num_classes, dim;
  const Element* features;  // [batch, chunks * kDims], padded with zeros
  const Element* rows;
  const float* bias;
  const int64_t* labels;
  bool is_aligned;  // units of 16 bytes of `rows` may be copied
  int chunks;       // of kDims dimensions
  int64_t own_tiles;
  int ranges;
  // kLoss: [ranges, batch] and [batch].
  SoftmaxStats* stats;
  float* label_logit;
  // kFeaturesGrad: grad [ranges, batch, dim]; kRowsGrad: [num_classes, dim].
  const float *logsumexp, *upstream;
  float *grad, *bias_grad;
};

// What else belongs to the columns of a tile.
template <int kColumns>
struct ColumnInfo {
  float shift[kColumns];  // of a class: its bias, -infinity past the last;
                          // of an example: its logsumexp
  float upstream[kColumns];
  int label[kColumns];  // the row of the tile, -1: none
};

// Copies dimensions [first_dim, first_dim + dims) of rows [first, first +
// kRows) of a matrix [count, dim]; zeros for what is outside, and up to 16
// dimensions.
template <int kRows, class Element>
__device__ __forceinline__ void LoadTile(const Element* matrix, int64_t count,
                                         int64_t dim, bool is_aligned,
                                         int64_t first, int64_t first_dim,
                                         int dims, uint4* tile) {
  constexpr int kOfUnit = 16 / sizeof(Element);
  constexpr int kUnits = kDims / kOfUnit;
  const int thread = Anew(threadIdx.x);
  const int unit = thread % kUnits;  // the same of all its rows
  if (unit * kOfUnit >= RoundedDims(dims)) return;
  const int of_row = max(0, min(kOfUnit, dims - unit * kOfUnit));
  const Element* from = matrix + first * dim + first_dim + unit * kOfUnit;
  for (int row = thread / kUnits; row < kRows; row += kTileThreads / kUnits) {
    const int valid = first + row < count ? of_row : 0;
    const Element* of = valid > 0 ? from + row * dim : matrix;
    uint4* to = tile + UnitAt<Element>(row, unit);
    if (is_aligned) {
      CopyAsync16(to, of, valid * sizeof(Element));
    } else {
      Element* one = reinterpret_cast<Element*>(to);
      for (int e = 0; e < kOfUnit; ++e) one[e] = e < valid ? of[e] : Element{};
    }
  }
}

// One job's view of the two sides.
template <class Tile, Job kJob>
struct Sides {
  using Element = typename Tile::Element;
  using Info = ColumnInfo<Tile::kColumns>;
  static constexpr bool kOwnsBatch = kJob != Job::kRowsGrad;
  const Task<Element>& task;
  int own_tile;

  __device__ __forceinline__ int64_t OwnFirst() const {
    return int64_t{own_tile} * Tile::kOwn;
  }
  __device__ int64_t NumOwn() const {
    return kOwnsBatch ? task.batch : task.num_classes;
  }
  __device__ int64_t NumColumns() const {
    return kOwnsBatch ? task.num_classes : task.batch;
  }

  template <bool kBatch, int kRows>
  __device__ __forceinline__ void Load(int64_t first, int chunk,
                                       uint4* tile) const {
    const int64_t first_dim = int64_t{chunk} * kDims;
    if (kBatch) {
      LoadTile<kRows>(task.features, task.batch, int64_t{task.chunks} * kDims,
                      true, first, first_dim, DimsOf(chunk), tile);
    } else {
      LoadTile<kRows>(task.rows, task.num_classes, task.dim, task.is_aligned,
                      first, first_dim, DimsOf(chunk), tile);
    }
  }
  __device__ __forceinline__ void LoadOwn(int chunk, uint4* tile) const {
    Load<kOwnsBatch, Tile::kOwn>(OwnFirst(), chunk, tile);
  }
  __device__ __forceinline__ void LoadColumns(int64_t first, int chunk,
                                              uint4* tile) const {
    Load<!kOwnsBatch, Tile::kColumns>(first, chunk, tile);
  }
  __device__ __forceinline__ int DimsOf(int chunk) const {
    return static_cast<int>(
        min(int64_t{kDims}, task.dim - int64_t{chunk} * kDims));
  }

  __device__ __forceinline__ float BiasOf(int64_t c) const {
    if (c >= task.num_classes) return kLowest;
    return task.bias == nullptr ? 0.0f : task.bias[c];
  }

  // The column of an example's label in the tile from `first` on, or -1.
  __device__ __forceinline__ int LabelColumn(int64_t b, int64_t first) const {
    const int64_t label = task.labels[b];
    const bool is_in = label >= first && label < first + Tile::kColumns &&
                       label < task.num_classes;
    return is_in ? static_cast<int>(label - first) : -1;
  }

  // The first threads each see to a column.
  __device__ __forceinline__ void LoadInfo(int64_t first, Info* info) const {
    const int i = threadIdx.x;
    if (i >= Tile::kColumns) return;
    if (kOwnsBatch) {
      info->shift[i] = BiasOf(first + i);
      return;
    }
    const bool is_in = first + i < task.batch && task.labels[first + i] >= 0;
    const int64_t row = is_in ? task.labels[first + i] - OwnFirst() : -1;
    info->shift[i] = is_in ? task.logsumexp[first + i] : 0.0f;
    info->upstream[i] = is_in ? task.upstream[first + i] : 0.0f;
    info->label[i] =
        row < Tile::kOwn ? static_cast<int>(max(row, int64_t{-1})) : -1;
  }
};

template <class Tile, Job kJob>
struct Loss {
  SoftmaxStats stats[Tile::kRows];

  __device__ __forceinline__ void Fold(const Sides<Tile, kJob>& sides,
                                       const ColumnInfo<Tile::kColumns>& info,
                                       int64_t first_column, Tile* tile) {
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const int64_t b = sides.OwnFirst() + Tile::Row(i);
      if (b >= sides.task.batch) continue;
      const int label = sides.LabelColumn(b, first_column);
      float x[Tile::kColumnsOfThread];
#pragma unroll
      for (int j = 0; j < Tile::kColumnsOfThread; ++j) {
        x[j] = tile->At(i, j) + info.shift[Tile::Column(j)];
      }
      tfxclass::Fold(x, &stats[i]);
      if (label < 0) continue;
#pragma unroll
      for (int j = 0; j < Tile::kColumnsOfThread; ++j) {
        if (Tile::Column(j) == label) sides.task.label_logit[b] = x[j];
      }
    }
  }

  __device__ __forceinline__ void Write(const Sides<Tile, kJob>& sides,
                                        int64_t range) {
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const int64_t b = sides.OwnFirst() + Tile::Row(i);
      const SoftmaxStats of_row = MergeLanes(stats[i], Tile::kLanesOfRow);
      if (Lane() % Tile::kLanesOfRow == 0 && b < sides.task.batch) {
        sides.task.stats[range * sides.task.batch + b] = of_row;
      }
    }
  }
};

// Turns the logits of a tile into their gradients.
template <class Tile, Job kJob>
__device__ __forceinline__ void ToGradients(
    const Sides<Tile, kJob>& sides, const ColumnInfo<Tile::kColumns>& info,
    int64_t first_column, Tile* tile, float (&sums)[Tile::kRows]) {
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const int64_t own = sides.OwnFirst() + Anew(Tile::Row(i));
    float shift = 0, upstream = 0;
    int label = -1;
    if (kJob == Job::kRowsGrad) {
      shift = sides.BiasOf(own);
    } else if (own < sides.task.batch && sides.task.labels[own] >= 0) {
      shift = sides.task.logsumexp[own];
      upstream = sides.task.upstream[own];
      label = sides.LabelColumn(own, first_column);
    }
#pragma unroll
    for (int j = 0; j < Tile::kColumnsOfThread; ++j) {
      const int c = Tile::Column(j);
      float& x = tile->At(i, j);
      if (kJob == Job::kRowsGrad) {
        const float p = Probability(x + shift - info.shift[c]);
        x = info.upstream[c] * (info.label[c] == Tile::Row(i) ? p - 1.0f : p);
        sums[i] += x;
      } else {
        x = upstream * Probability(x + info.shift[c] - shift);
      }
    }
    if (label < 0) continue;
#pragma unroll
    for (int j = 0; j < Tile::kColumnsOfThread; ++j) {
      if (Tile::Column(j) == label) tile->At(i, j) -= upstream;
    }
  }
}

template <class Tile, Job kJob>
__device__ __forceinline__ void WriteGrad(const Sides<Tile, kJob>& sides,
                                          int64_t range, int chunk,
                                          const Tile& tile,
                                          float (&sums)[Tile::kRows]) {
  const int dims = sides.DimsOf(chunk);
  float* grad = sides.task.grad + range * sides.NumOwn() * sides.task.dim;
  tile.Output([&](int row, int d, float value) {
    const int64_t own = sides.OwnFirst() + row;
    if (own >= sides.NumOwn() || d >= dims) return;
    grad[own * sides.task.dim + int64_t{chunk} * kDims + d] = value;
  });
  if (kJob != Job::kRowsGrad || chunk != 0) return;
  if (sides.task.bias_grad == nullptr) return;
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const int64_t c = sides.OwnFirst() + Tile::Row(i);
    float sum = sums[i];
    for (int offset = Tile::kLanesOfRow / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    if (Lane() % Tile::kLanesOfRow == 0 && c < sides.task.num_classes) {
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

template <class Tile, Job kJob>
constexpr int SharedBytes(bool many_chunks) {
  return ((many_chunks ? 2 : 1) * Tile::kOwn + 2 * Tile::kColumns) * kDims *
             static_cast<int>(sizeof(typename Tile::Element)) +
         2 * static_cast<int>(sizeof(ColumnInfo<Tile::kColumns>)) +
         (kJob == Job::kLoss ? 0 : Tile::kSharedBytes);
}
static_assert(SharedBytes<MmaTile, Job::kRowsGrad>(true) <= 163 << 10 &&
                  SharedBytes<FmaTile, Job::kRowsGrad>(true) <= 163 << 10,
              "what a block may have on sm_80");

// Block (chunk * ranges + range) * own_tiles + tile: of a tile of its own, a
// range of columns and a chunk of the output's dimensions.
template <class Tile, Job kJob, bool kManyChunks>
__global__ void __launch_bounds__(kTileThreads,
                                  kJob == Job::kLoss && !kManyChunks ? 2 : 1)
    LinearKernel(Task<typename Tile::Element> task) {
  using Element = typename Tile::Element;
  using Info = ColumnInfo<Tile::kColumns>;
  constexpr int kRowUnits = kDims * sizeof(Element) / 16;
  constexpr int kOwnUnits = Tile::kOwn * kRowUnits;
  constexpr int kColumnUnits = Tile::kColumns * kRowUnits;
  TFXCLASS_DYNAMIC_SHARED(uint4, shared);
  uint4* const own = shared;
  uint4* const columns = own + (kManyChunks ? 2 : 1) * kOwnUnits;
  Info* const infos = reinterpret_cast<Info*>(columns + 2 * kColumnUnits);

  const Sides<Tile, kJob> sides = {
      task, static_cast<int>(blockIdx.x % task.own_tiles)};
  const int rows_left = static_cast<int>(
      min(int64_t{Tile::kOwn}, sides.NumOwn() - sides.OwnFirst()));
  const int number = static_cast<int>(blockIdx.x / task.own_tiles);
  const int range = number % task.ranges;
  const int chunks = kManyChunks ? task.chunks : 1;
  const int last_chunk = kManyChunks ? number / task.ranges : 0;
  const int64_t tiles =
      (sides.NumColumns() + Tile::kColumns - 1) / Tile::kColumns;
  const int end = static_cast<int>(tiles * (range + 1) / task.ranges);

  const auto load = [&](const Place<kManyChunks>& place, int buffer) {
    const int64_t first = int64_t{place.tile} * Tile::kColumns;
    const int chunk = place.Chunk(chunks, last_chunk);
    sides.LoadColumns(first, chunk, columns + buffer * kColumnUnits);
    if (kManyChunks) sides.LoadOwn(chunk, own + buffer * kOwnUnits);
    if (place.step == 0) sides.LoadInfo(first, &infos[place.tile % 2]);
  };

  Tile tile = {};
  Loss<Tile, kJob> loss;
  float sums[Tile::kRows] = {};
  Place<kManyChunks> place = {static_cast<int>(tiles * range / task.ranges), 0};
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
      const Info& info = infos[place.tile % 2];
      const int64_t first_column = int64_t{place.tile} * Tile::kColumns;
      if (kJob == Job::kLoss) {
        loss.Fold(sides, info, first_column, &tile);
      } else {
        ToGradients(sides, info, first_column, &tile, sums);
        tile.AddProduct(of_columns, dims, rows_left, infos + 2);
      }
    }
    place = place.Next(chunks);
  }
  if (kJob == Job::kLoss) {
    loss.Write(sides, range);
  } else {
    WriteGrad(sides, range, last_chunk, tile, sums);
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LINEAR_KERNEL_CU_H_
