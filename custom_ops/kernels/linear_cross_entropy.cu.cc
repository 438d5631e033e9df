#include "kernels/linear_cross_entropy.cu.h"

#include "kernels/linear_tiles.cu.h"
#include "kernels/softmax_stats.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;
// Tiles of MmaTile::kOwn rows that fill the device: two for each of an H200's
// 132 multiprocessors. A constant, so that sums do not depend on the device.
constexpr int64_t kTilesAtOnce = 264;

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
  for (int row = thread / kUnits; row < kRows; row += kThreads / kUnits) {
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
__global__ void __launch_bounds__(kThreads,
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

__device__ __forceinline__ void Round(float from, float* to) { *to = from; }
__device__ __forceinline__ void Round(float from, Bf16* to) {
  *to = ToBf16(from);
}

// A thread an element of padded [batch, width]. Features of examples that are
// left out become zeros, whatever they hold.
template <class Element>
__global__ void PadFeaturesKernel(const float* features, const int64_t* labels,
                                  int64_t batch, int64_t dim, int64_t width,
                                  Element* padded) {
  const int64_t at = ThreadNumber();
  if (at >= batch * width) return;
  const int64_t b = at / width, d = at % width;
  Round(d < dim && labels[b] >= 0 ? features[b * dim + d] : 0.0f, padded + at);
}

// A thread an example.
__global__ void MergeStatsKernel(const SoftmaxStats* stats, int64_t ranges,
                                 int64_t batch, const int64_t* labels,
                                 const float* label_logit, float* loss,
                                 float* logsumexp) {
  const int64_t b = ThreadNumber();
  if (b >= batch) return;
  SoftmaxStats all = stats[b];
  for (int64_t r = 1; r < ranges; ++r) all = Merge(all, stats[r * batch + b]);
  const float total = all.max + logf(all.sum);
  const bool is_in = labels[b] >= 0;
  logsumexp[b] = is_in ? total : 0.0f;
  loss[b] = is_in ? total - label_logit[b] : 0.0f;
}

// A thread an element.
__global__ void SumRangesKernel(const float* parts, int64_t ranges,
                                int64_t count, float* sum) {
  const int64_t at = ThreadNumber();
  if (at >= count) return;
  float total = parts[at];
  for (int64_t r = 1; r < ranges; ++r) total += parts[r * count + at];
  sum[at] = total;
}

template <class Tile, Job kJob>
GpuStatus Run(const Task<typename Tile::Element>& task, GpuStream stream) {
  const bool many = task.chunks > 1;
  const int64_t outputs = kJob == Job::kLoss ? 1 : task.chunks;
  return Launch(
      many ? LinearKernel<Tile, kJob, true> : LinearKernel<Tile, kJob, false>,
      task.own_tiles * task.ranges * outputs, kThreads,
      SharedBytes<Tile, kJob>(many), stream, task);
}

// As many ranges of classes as fill the device.
template <class Tile>
int64_t RangesOf(int64_t own_tiles, int64_t outputs, int64_t num_classes) {
  constexpr int64_t kAtOnce =
      Tile::kOwn == MmaTile::kOwn ? kTilesAtOnce : 2 * kTilesAtOnce;
  const int64_t tiles = CeilDiv(num_classes, Tile::kColumns);
  const int64_t wanted = kAtOnce / (own_tiles * outputs);
  return wanted < 1 ? 1 : wanted < tiles ? wanted : tiles;
}

template <class Element>
GpuStatus PrepareTask(const LinearClasses& classes, const Element* rows,
                      Task<Element>* task, Scratch* scratch, GpuStream stream) {
  *task = {};
  task->batch = classes.batch;
  task->num_classes = classes.num_classes;
  task->dim = classes.dim;
  task->rows = rows;
  task->bias = classes.bias;
  task->labels = classes.labels;
  task->is_aligned = classes.dim * sizeof(Element) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(rows) % 16 == 0;
  task->chunks = static_cast<int>(CeilDiv(classes.dim, kDims));
  const int64_t width = int64_t{task->chunks} * kDims,
                count = classes.batch * width;
  Element* padded = scratch->Get<Element>(count);
  if (padded == nullptr) return kNoScratch;
  task->features = padded;
  return Launch(PadFeaturesKernel<Element>, CeilDiv(count, kThreads), kThreads,
                0, stream, classes.features, classes.labels, classes.batch,
                classes.dim, width, padded);
}

template <class Tile>
GpuStatus ComputeLoss(const LinearClasses& classes,
                      const typename Tile::Element* rows, float* loss,
                      float* logsumexp, Scratch* scratch, GpuStream stream) {
  const int64_t batch = classes.batch;
  if (batch == 0) return nullptr;
  Task<typename Tile::Element> task;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      PrepareTask(classes, rows, &task, scratch, stream));
  task.own_tiles = CeilDiv(batch, Tile::kOwn);
  task.ranges = RangesOf<Tile>(task.own_tiles, 1, classes.num_classes);
  task.stats = scratch->Get<SoftmaxStats>(int64_t{task.ranges} * batch);
  task.label_logit = scratch->Get<float>(batch);
  if (task.stats == nullptr || task.label_logit == nullptr) return kNoScratch;
  // NaN, for labels past the last class.
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(task.label_logit, 0xff, batch * sizeof(float), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR((Run<Tile, Job::kLoss>(task, stream)));
  return Launch(MergeStatsKernel, CeilDiv(batch, kThreads), kThreads, 0, stream,
                task.stats, task.ranges, batch, classes.labels,
                task.label_logit, loss, logsumexp);
}

template <class Tile>
GpuStatus ComputeFeaturesGrad(Task<typename Tile::Element> task, float* grad,
                              Scratch* scratch, GpuStream stream) {
  const int64_t count = task.batch * task.dim;
  if (count == 0) return nullptr;
  task.own_tiles = CeilDiv(task.batch, Tile::kOwn);
  task.ranges = RangesOf<Tile>(task.own_tiles, task.chunks, task.num_classes);
  task.grad = grad;
  if (task.ranges > 1) {
    task.grad = scratch->Get<float>(int64_t{task.ranges} * count);
    if (task.grad == nullptr) return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR((Run<Tile, Job::kFeaturesGrad>(task, stream)));
  if (task.ranges == 1) return nullptr;
  return Launch(SumRangesKernel, CeilDiv(count, kThreads), kThreads, 0, stream,
                task.grad, task.ranges, count, grad);
}

template <class Tile>
GpuStatus ComputeGrad(const LinearClasses& classes,
                      const typename Tile::Element* rows,
                      const float* logsumexp, const float* upstream,
                      float* features_grad, float* rows_grad, float* bias_grad,
                      Scratch* scratch, GpuStream stream) {
  Task<typename Tile::Element> task;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      PrepareTask(classes, rows, &task, scratch, stream));
  task.logsumexp = logsumexp;
  task.upstream = upstream;
  if (features_grad != nullptr) {
    TFXCLASS_RETURN_IF_GPU_ERROR(
        ComputeFeaturesGrad<Tile>(task, features_grad, scratch, stream));
  }
  if (rows_grad == nullptr) return nullptr;
  task.own_tiles = CeilDiv(classes.num_classes, Tile::kOwn);
  task.ranges = 1;
  task.grad = rows_grad;
  task.bias_grad = bias_grad;
  return Run<Tile, Job::kRowsGrad>(task, stream);
}

}  // namespace

GpuStatus LinearCrossEntropy(const LinearClasses& classes, float* loss,
                             float* logsumexp, Scratch* scratch,
                             GpuStream stream) {
  if (classes.bf16_rows != nullptr) {
    return ComputeLoss<MmaTile>(
        classes, reinterpret_cast<const Bf16*>(classes.bf16_rows), loss,
        logsumexp, scratch, stream);
  }
  return ComputeLoss<FmaTile>(classes, classes.rows, loss, logsumexp, scratch,
                              stream);
}

GpuStatus LinearCrossEntropyGrad(const LinearClasses& classes,
                                 const float* logsumexp, const float* upstream,
                                 float* features_grad, float* rows_grad,
                                 float* bias_grad, Scratch* scratch,
                                 GpuStream stream) {
  if (classes.bf16_rows != nullptr) {
    return ComputeGrad<MmaTile>(
        classes, reinterpret_cast<const Bf16*>(classes.bf16_rows), logsumexp,
        upstream, features_grad, rows_grad, bias_grad, scratch, stream);
  }
  return ComputeGrad<FmaTile>(classes, classes.rows, logsumexp, upstream,
                              features_grad, rows_grad, bias_grad, scratch,
                              stream);
}

}  // namespace tfxclass
