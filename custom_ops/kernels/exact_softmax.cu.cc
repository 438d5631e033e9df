#include "kernels/exact_softmax.cu.h"

#include "kernels/cuda_sort.cu.h"
#include "kernels/exact_softmax_kernel.cu.h"

namespace tfxclass {
namespace {

// Tiles of own rows that fill the device: two for each of an H200's 132
// multiprocessors. A constant, so that sums do not depend on the device.
constexpr int64_t kTilesAtOnce = 264;
constexpr int kThreads = 256;

// A thread an element of padded [batch, width].
__global__ void PadQueriesKernel(const float* queries, int64_t batch,
                                 int64_t dim, int64_t width, Bf16* padded) {
  const int64_t at = ThreadNumber();
  if (at >= batch * width) return;
  const int64_t b = at / width, d = at % width;
  padded[at] = ToBf16(d < dim ? queries[b * dim + d] : 0.0f);
}

// A warp's sum over a class row, of `of(d, the row's element d)`.
template <class Of>
__device__ __forceinline__ float SumOverRow(const Bf16* row, int64_t dim,
                                            const Of& of) {
  float sum = 0;
  for (int64_t d = Lane(); d < dim; d += kWarp) sum += of(d, ToFloat(row[d]));
  return WarpSum(sum);
}

__device__ __forceinline__ float SquaresOf(const Bf16* row, int64_t dim) {
  return SumOverRow(row, dim, [](int64_t, float x) { return x * x; });
}

// A warp a class row.
__global__ void InverseNormsKernel(const Bf16* rows, int64_t num_classes,
                                   int64_t dim, float epsilon, float* inverse) {
  const int64_t c = WarpNumber();
  if (c >= num_classes) return;
  const float squares = SquaresOf(rows + c * dim, dim);
  if (Lane() == 0) inverse[c] = 1 / sqrtf(fmaxf(squares, epsilon));
}

// A warp a class row: of the gradient of a row divided by its norm to that of
// the row. One shorter than the least norm is only scaled.
__global__ void ProjectKernel(const Bf16* rows, int64_t num_classes,
                              int64_t dim, float epsilon, const float* inverse,
                              float* grads) {
  const int64_t c = WarpNumber();
  if (c >= num_classes) return;
  const Bf16* const row = rows + c * dim;
  float* const grad = grads + c * dim;
  const float scale = inverse[c];
  const float dot =
      SumOverRow(row, dim, [grad](int64_t d, float x) { return x * grad[d]; });
  const bool is_long = SquaresOf(row, dim) > epsilon;
  const float along = is_long ? dot * scale * scale : 0.0f;
  for (int64_t d = Lane(); d < dim; d += kWarp) {
    grad[d] = (grad[d] - along * ToFloat(row[d])) * scale;
  }
}

// A thread a target: its place in Task::keys, last where it is no class.
__global__ void TargetKeysKernel(const int64_t* targets, int64_t count,
                                 int64_t width, int64_t num_classes,
                                 bool owns_batch, int64_t own_tiles,
                                 int64_t column_tiles, uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const int64_t b = i / width, c = targets[i];
  const int64_t own = owns_batch ? b : c, other = owns_batch ? c : b;
  const bool is_class = c >= 0 && c < num_classes;
  keys[i] = is_class
                ? own / MmaTile::kOwn * column_tiles + other / MmaTile::kColumns
                : own_tiles * column_tiles;
}

// A thread an example.
__global__ void MergeStatsKernel(const SoftmaxStats* stats, int64_t ranges,
                                 int64_t batch, float* top, double* total) {
  const int64_t b = ThreadNumber();
  if (b >= batch) return;
  SoftmaxStats all = stats[b];
  for (int64_t r = 1; r < ranges; ++r) all = Merge(all, stats[r * batch + b]);
  top[b] = all.max;
  total[b] = all.sum;
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

template <Job kJob>
GpuStatus Run(const Task& task, GpuStream stream) {
  const bool many = task.chunks > 1;
  const int64_t outputs = kJob == Job::kSums ? 1 : task.chunks;
  return Launch(
      many ? ExactSoftmaxKernel<kJob, true> : ExactSoftmaxKernel<kJob, false>,
      task.own_tiles * task.ranges * outputs, kTileThreads, SharedBytes(many),
      stream, task);
}

// As many ranges of classes as fill the device.
int RangesOf(const Task& task, int64_t outputs) {
  const int64_t wanted = kTilesAtOnce / (task.own_tiles * outputs);
  const int64_t most = wanted < task.column_tiles ? wanted : task.column_tiles;
  return static_cast<int>(most < 1 ? 1 : most);
}

GpuStatus SortTargets(const SoftmaxClasses& classes, bool owns_batch,
                      Task* task, Scratch* scratch, GpuStream stream) {
  const int64_t count = classes.batch * classes.width;
  uint64_t* const keys = scratch->Get<uint64_t>(count);
  uint64_t* const sorted = scratch->Get<uint64_t>(count);
  int32_t* const order = scratch->Get<int32_t>(count);
  if (keys == nullptr || sorted == nullptr || order == nullptr) {
    return kNoScratch;
  }
  task->keys = sorted;
  task->order = order;
  task->num_targets = count;
  task->width = classes.width;
  task->targets = classes.targets;
  task->values = classes.values;
  if (count == 0) return nullptr;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(TargetKeysKernel, count, stream, classes.targets, count,
                 classes.width, classes.num_classes, owns_batch,
                 task->own_tiles, task->column_tiles, keys));
  const int bits = BitsOf(task->own_tiles * task->column_tiles);
  return SortKeys(keys, count, bits, sorted, order, scratch, stream);
}

// All but what a job is of.
GpuStatus PrepareTask(const SoftmaxClasses& classes, bool owns_batch,
                      Task* task, Scratch* scratch, GpuStream stream) {
  *task = {};
  const int64_t batch = classes.batch, num_classes = classes.num_classes;
  task->batch = batch;
  task->num_classes = num_classes;
  task->dim = classes.dim;
  task->rows = reinterpret_cast<const Bf16*>(classes.rows);
  task->bias = classes.bias;
  task->is_aligned = classes.dim * sizeof(Bf16) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(classes.rows) % 16 == 0;
  task->chunks = static_cast<int>(CeilDiv(classes.dim, kDims));
  task->own_tiles = CeilDiv(owns_batch ? batch : num_classes, MmaTile::kOwn);
  task->column_tiles =
      CeilDiv(owns_batch ? num_classes : batch, MmaTile::kColumns);
  const int64_t width = int64_t{task->chunks} * kDims, count = batch * width;
  Bf16* const padded = scratch->Get<Bf16>(count);
  if (padded == nullptr) return kNoScratch;
  task->queries = padded;
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(PadQueriesKernel, count, stream,
                                          classes.queries, batch, classes.dim,
                                          width, padded));
  if (classes.epsilon > 0) {
    float* const inverse = scratch->Get<float>(num_classes);
    if (inverse == nullptr) return kNoScratch;
    task->inverse = inverse;
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Launch(InverseNormsKernel, CeilDiv(num_classes, kThreads / kWarp),
               kThreads, 0, stream, task->rows, num_classes, classes.dim,
               classes.epsilon, inverse));
  }
  return SortTargets(classes, owns_batch, task, scratch, stream);
}

GpuStatus SumRows(Task task, const float* top, float* rows, Scratch* scratch,
                  GpuStream stream) {
  const int64_t count = task.batch * task.dim;
  task.ranges = RangesOf(task, task.chunks);
  task.top = top;
  task.output = rows;
  if (task.ranges > 1) {
    task.output = scratch->Get<float>(task.ranges * count);
    if (task.output == nullptr) return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(Run<Job::kRowSums>(task, stream));
  if (task.ranges == 1) return nullptr;
  return LaunchEach(SumRangesKernel, count, stream, task.output, task.ranges,
                    count, rows);
}

}  // namespace

GpuStatus ExactSoftmax(const SoftmaxClasses& classes, float* top, double* total,
                       float* rows, Scratch* scratch, GpuStream stream) {
  const int64_t batch = classes.batch;
  if (batch == 0) return nullptr;
  Task task;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      PrepareTask(classes, true, &task, scratch, stream));
  task.ranges = RangesOf(task, 1);
  task.stats = scratch->Get<SoftmaxStats>(task.ranges * batch);
  if (task.stats == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(Run<Job::kSums>(task, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchEach(MergeStatsKernel, batch, stream,
                                          task.stats, task.ranges, batch, top,
                                          total));
  if (rows == nullptr) return nullptr;
  return SumRows(task, top, rows, scratch, stream);
}

GpuStatus ExactSoftmaxGrad(const SoftmaxClasses& classes,
                           const float* logsumexp, const float* factor,
                           float uniform, float* rows_grad, float* bias_grad,
                           Scratch* scratch, GpuStream stream) {
  if (classes.num_classes == 0) return nullptr;
  Task task;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      PrepareTask(classes, false, &task, scratch, stream));
  task.logsumexp = logsumexp;
  task.factor = factor;
  task.uniform = uniform;
  task.ranges = 1;
  task.output = rows_grad;
  task.bias_grad = bias_grad;
  TFXCLASS_RETURN_IF_GPU_ERROR(Run<Job::kRowsGrad>(task, stream));
  if (task.inverse == nullptr) return nullptr;
  return Launch(ProjectKernel, CeilDiv(classes.num_classes, kThreads / kWarp),
                kThreads, 0, stream, task.rows, classes.num_classes,
                classes.dim, classes.epsilon, task.inverse, rows_grad);
}

}  // namespace tfxclass
