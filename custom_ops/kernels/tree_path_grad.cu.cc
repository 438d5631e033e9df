// The gradient of the losses of tree_path.cu.cc.
#include "kernels/cuda_utils.cu.h"
#include "kernels/row_runs.cu.h"
#include "kernels/tree_path.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 128;

// A warp a sample: the gradient of its query, and for each of its rows whose it
// is and its part of the gradient's factor.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    QueryGradKernel(PathGradInput input, float* queries_grad, int32_t* owners,
                    float* factors, int32_t* unsound) {
  const int64_t i = WarpNumber();
  if (i >= input.batch) return;
  int64_t begin = input.splits[i], end = input.splits[i + 1];
  if (begin < 0 || end > input.count || begin > end) {
    if (Lane() == 0) *unsound = 1;
    begin = end = 0;
  }
  const float upstream = input.upstream[i];
  for (int64_t s = begin + Lane(); s < end; s += kWarp) {
    if (input.rows[s] < 0 || input.rows[s] >= input.num_rows) *unsound = 1;
    owners[s] = static_cast<int32_t>(i);
    factors[s] = upstream * input.slopes[s];
  }
  for (int64_t d = Lane() * kWidth; d < input.dim; d += kWarp * kWidth) {
    Pack<kWidth> sum = {};
#pragma unroll 4
    for (int64_t s = begin; s < end; ++s) {
      const int64_t row = input.rows[s];
      if (row < 0 || row >= input.num_rows) continue;
      const float factor = upstream * input.slopes[s];
      const Pack<kWidth> x =
          Load(input.kernel + row * input.dim + d, Pack<kWidth>());
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += factor * x.at[j];
    }
    Store(queries_grad + i * input.dim + d, sum);
  }
}

// What the sums are computed from and where they go.
struct RowSums {
  TouchedPathRows rows;
  int64_t count;
  const float* queries;
  int64_t dim;
  int64_t* touched;
  float* grads;

  // Elements d and on of the gradients at sorted places [begin, end).
  template <int kWidth>
  __device__ Pack<kWidth> Sum(int64_t begin, int64_t end, int64_t d) const {
    Pack<kWidth> sum = {};
#pragma unroll 4
    for (int64_t s = begin; s < end; ++s) {
      const int32_t at = rows.order[s];
      const float factor = rows.factors[at];
      const Pack<kWidth> x =
          Load(queries + rows.owners[at] * dim + d, Pack<kWidth>());
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += factor * x.at[j];
    }
    return sum;
  }
};

constexpr int kShortRun = 64;
constexpr int kLongThreads = 512;
constexpr int kLongWarps = kLongThreads / kWarp;

// A warp: one past the run that begins at i; i if none does, or a long one.
__device__ int64_t ShortRunEnd(const int64_t* sorted, int64_t n, int64_t i) {
  const int64_t row = sorted[i];
  if (row < 0 || (i > 0 && sorted[i - 1] == row)) return i;
  for (int64_t first = i + 1; first <= i + kShortRun; first += kWarp) {
    const int64_t at = first + Lane();
    const unsigned others =
        __ballot_sync(kAllLanes, at >= n || sorted[at] != row);
    if (others != 0) return first + __ffs(others) - 1;
  }
  return i;
}

// A warp for each sorted row: the first of a short run sums it.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) ShortRunsKernel(RowSums sums) {
  const int64_t i = WarpNumber();
  if (i >= sums.count) return;
  const int64_t* const sorted = sums.rows.sorted;
  const int64_t end = ShortRunEnd(sorted, sums.count, i);
  if (end == i) return;
  const int64_t place = sums.rows.places[i];
  if (Lane() == 0) sums.touched[place] = sorted[i];
  for (int64_t d = Lane() * kWidth; d < sums.dim; d += kWarp * kWidth) {
    Store(sums.grads + place * sums.dim + d, sums.Sum<kWidth>(i, end, d));
  }
}

struct Range {
  int64_t begin, end;
};

// The run of more than kShortRun equal rows whose first place that is a
// multiple of kShortRun is `at`; empty if there is none.
__device__ Range LongRun(const int64_t* sorted, int64_t n, int64_t at) {
  const int64_t row = sorted[at];
  if (row < 0 || (at >= kShortRun && sorted[at - kShortRun] == row)) {
    return {0, 0};
  }
  int64_t low = max(at - kShortRun, int64_t{-1}), high = at;
  while (high - low > 1) {  // sorted[high] is the row, what is at low is not
    const int64_t middle = (low + high) / 2;
    (sorted[middle] == row ? high : low) = middle;
  }
  const int64_t begin = high;
  if (begin + kShortRun >= n || sorted[begin + kShortRun] != row) return {0, 0};
  low = begin + kShortRun, high = n;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (sorted[middle] == row ? low : high) = middle;
  }
  return {begin, high};
}

// A block for each kShortRun sorted rows: a row near the root is touched by
// most samples. Each warp sums a stretch of the run.
template <int kWidth>
__global__ void __launch_bounds__(kLongThreads) LongRunsKernel(RowSums sums) {
  __align__(16) __shared__ float of_warp[kLongWarps][kWarp * kWidth];
  const int64_t* const sorted = sums.rows.sorted;
  const Range run =
      LongRun(sorted, sums.count, static_cast<int64_t>(blockIdx.x) * kShortRun);
  if (run.begin == run.end) return;
  const int64_t place = sums.rows.places[run.begin];
  if (threadIdx.x == 0) sums.touched[place] = sorted[run.begin];
  const int warp = threadIdx.x / kWarp;
  const int64_t size = run.end - run.begin;
  const int64_t begin = run.begin + size * warp / kLongWarps;
  const int64_t end = run.begin + size * (warp + 1) / kLongWarps;
  for (int64_t first = 0; first < sums.dim; first += kWarp * kWidth) {
    const int64_t d = first + Lane() * kWidth;
    if (d < sums.dim) {
      Store(&of_warp[warp][Lane() * kWidth], sums.Sum<kWidth>(begin, end, d));
    }
    __syncthreads();
    for (int j = threadIdx.x; j < kWarp * kWidth; j += kLongThreads) {
      if (first + j >= sums.dim) continue;
      float sum = 0;
      for (int w = 0; w < kLongWarps; ++w) sum += of_warp[w][j];
      sums.grads[place * sums.dim + first + j] = sum;
    }
    __syncthreads();
  }
}

}  // namespace

GpuStatus FindTouchedRows(const PathGradInput& input, float* queries_grad,
                          TouchedPathRows* rows, int64_t* num_touched,
                          int32_t* unsound, Scratch* scratch,
                          GpuStream stream) {
  const int64_t n = input.count;
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(unsound, 0, sizeof(*unsound), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(num_touched, 0, sizeof(*num_touched), stream));
  if (input.batch == 0) return nullptr;
  int32_t* owners = scratch->Get<int32_t>(n);
  float* factors = scratch->Get<float>(n);
  if (owners == nullptr || factors == nullptr) return kNoScratch;
  // Splits that leave rows out would leave their owners as they were.
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(owners, 0, n * sizeof(*owners), stream));
  const bool wide =
      AreAligned(input.dim, input.queries, input.kernel, queries_grad);
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(wide ? QueryGradKernel<4> : QueryGradKernel<1>,
             BlocksOfWarps(input.batch, kThreads), kThreads, 0, stream, input,
             queries_grad, owners, factors, unsound));
  if (n == 0) return nullptr;
  Runs runs;
  int64_t* places;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FindRuns(input.rows, n, input.num_rows, &runs, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      NumberRuns(runs, n, &places, num_touched, scratch, stream));
  *rows = {runs.sorted, runs.order, places, owners, factors};
  return nullptr;
}

GpuStatus SumTouchedRows(const PathGradInput& input,
                         const TouchedPathRows& rows, int64_t* touched,
                         float* touched_grads, GpuStream stream) {
  const int64_t n = input.count;
  if (input.batch == 0 || n == 0) return nullptr;
  const RowSums sums = {rows,      n,       input.queries,
                        input.dim, touched, touched_grads};
  const bool wide = AreAligned(input.dim, input.queries, touched_grads);
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(wide ? ShortRunsKernel<4> : ShortRunsKernel<1>,
             BlocksOfWarps(n, kThreads), kThreads, 0, stream, sums));
  return Launch(wide ? LongRunsKernel<4> : LongRunsKernel<1>,
                CeilDiv(n, kShortRun), kLongThreads, 0, stream, sums);
}

}  // namespace tfxclass
