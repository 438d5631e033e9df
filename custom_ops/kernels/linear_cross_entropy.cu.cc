#include "kernels/linear_cross_entropy.cu.h"

#include "kernels/linear_kernel.cu.h"

namespace tfxclass {
namespace {

// Tiles of MmaTile::kOwn rows that fill the device: two for each of an H200's
// 132 multiprocessors. A constant, so that sums do not depend on the device.
constexpr int64_t kTilesAtOnce = 264;

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
  const float total = static_cast<float>(all.max + log(all.sum));
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
      task.own_tiles * task.ranges * outputs, kTileThreads,
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
  return LaunchEach(PadFeaturesKernel<Element>, count, stream, classes.features,
                    classes.labels, classes.batch, classes.dim, width, padded);
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
  return LaunchEach(MergeStatsKernel, batch, stream, task.stats, task.ranges,
                    batch, classes.labels, task.label_logit, loss, logsumexp);
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
  return LaunchEach(SumRangesKernel, count, stream, task.grad, task.ranges,
                    count, grad);
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
