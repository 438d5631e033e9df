#include "kernels/softmax_block.cu.h"

#include "core/bf16.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/softmax_stats.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A warp's step through a row: each lane has kValues of kTile columns, kWidth
// of them side by side.
constexpr int kValues = 16;
constexpr int kTile = kValues * kWarp;

template <int kWidth>
__device__ __forceinline__ int64_t ColumnOf(int64_t start, int j) {
  return start + j / kWidth * kWarp * kWidth + Lane() * kWidth + j % kWidth;
}

// -infinity past the end of the row.
template <int kWidth>
__device__ __forceinline__ void LoadTile(const float* row, int64_t block,
                                         int64_t start, float (&x)[kValues]) {
#pragma unroll
  for (int j = 0; j < kValues; j += kWidth) {
    const int64_t c = ColumnOf<kWidth>(start, j);
    if (kWidth == 4) {
      float4 four = make_float4(kLowest, kLowest, kLowest, kLowest);
      if (c < block) four = *reinterpret_cast<const float4*>(row + c);
      x[j] = four.x, x[j + 1] = four.y, x[j + 2] = four.z, x[j + 3] = four.w;
    } else {
      x[j] = c < block ? row[c] : kLowest;
    }
  }
}

// Adds their delta to the logits of the targets. A lane looks at a target; few
// are in the tile.
template <int kWidth>
__device__ __forceinline__ void RaiseTargets(const GpuTargets& delta,
                                             int64_t row, int64_t block,
                                             int64_t offset, int64_t start,
                                             float (&x)[kValues]) {
  for (int64_t first = 0; first < delta.width; first += kWarp) {
    int64_t column = -1;
    float move = 0;
    if (first + Lane() < delta.width) {
      column = delta.ids[row * delta.width + first + Lane()] - offset;
      move = delta.values[row * delta.width + first + Lane()];
    }
    const bool inside = column >= start && column < start + kTile &&
                        column < block && move != 0;
    unsigned found = __ballot_sync(kAllLanes, inside);
    for (; found != 0; found &= found - 1) {
      const int64_t c = __shfl_sync(kAllLanes, column, __ffs(found) - 1);
      const float d = __shfl_sync(kAllLanes, move, __ffs(found) - 1);
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        if (ColumnOf<kWidth>(start, j) == c) x[j] += d;
      }
    }
  }
}

// A block a row.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    StatsKernel(const float* logits, int64_t block, int64_t offset,
                GpuTargets delta, const float* running_max,
                const double* running_sum, float* max, double* sum) {
  TFXCLASS_DYNAMIC_SHARED(SoftmaxStats, of_warps);
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / kWarp;
  SoftmaxStats stats;
  for (int64_t start = warp * kTile; start < block; start += kWarps * kTile) {
    float x[kValues];
    LoadTile<kWidth>(logits + row * block, block, start, x);
    RaiseTargets<kWidth>(delta, row, block, offset, start, x);
    Fold(x, &stats);
  }
  stats = MergeLanes(stats);
  if (Lane() == 0) of_warps[warp] = stats;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kWarps; ++i) stats = Merge(stats, of_warps[i]);
  const float old_max = running_max[row];
  const double old_sum = running_sum[row];
  const float top = fmaxf(stats.max, old_max);
  if (top > kLowest) {  // exp, not Exp: its errors would add up over blocks
    max[row] = top;
    sum[row] = stats.sum * exp(double{stats.max} - top) +
               old_sum * exp(double{old_max} - top);
  } else {
    max[row] = old_max;
    sum[row] = stats.sum != stats.sum ? stats.sum : old_sum;
  }
}

constexpr int kGradColumns = kThreads * 16;

__device__ __forceinline__ void Store(float* to, float x) { *to = x; }
__device__ __forceinline__ void Store(Bf16* to, float x) { *to = ToBf16(x); }
__device__ __forceinline__ void StoreFour(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}
__device__ __forceinline__ void StoreFour(Bf16* to, const float4& x) {
  struct alignas(8) Four {
    Bf16 at[4];
  };
  *reinterpret_cast<Four*>(to) = {
      {ToBf16(x.x), ToBf16(x.y), ToBf16(x.z), ToBf16(x.w)}};
}

// A block for kGradColumns columns of a row.
template <int kWidth, class Stored>
__global__ void __launch_bounds__(kThreads)
    GradKernel(const float* logits, int64_t block, int64_t offset,
               GpuTargets target_grad, const float* logsumexp,
               const float* upstream, Stored* grad) {
  const int64_t pieces = (block + kGradColumns - 1) / kGradColumns;
  const int64_t row = blockIdx.x / pieces;
  const int64_t begin = blockIdx.x % pieces * kGradColumns;
  const int64_t end = min(begin + kGradColumns, block);
  const float shift = logsumexp[row], scale = upstream[row];
  const auto at = [&](float x) { return scale * Probability(x - shift); };
#pragma unroll 4
  for (int64_t c = begin + threadIdx.x * kWidth; c < end;
       c += kThreads * kWidth) {
    const float* from = logits + row * block + c;
    Stored* to = grad + row * block + c;
    if (kWidth == 4) {
      const float4 x = *reinterpret_cast<const float4*>(from);
      StoreFour(to, make_float4(at(x.x), at(x.y), at(x.z), at(x.w)));
    } else {
      Store(to, at(*from));
    }
  }
  __syncthreads();
  const int64_t first = row * target_grad.width;
  for (int64_t t = threadIdx.x; t < target_grad.width; t += kThreads) {
    const int64_t c = target_grad.ids[first + t] - offset;
    if (c < begin || c >= end) continue;
    Store(grad + row * block + c, target_grad.values[first + t]);
  }
}

bool AreWide(int64_t block, const void* a, const void* b) {
  return block % 4 == 0 && reinterpret_cast<uintptr_t>(a) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(b) % 16 == 0;
}

template <class Stored>
GpuStatus Grad(const float* logits, int64_t batch, int64_t block,
               int64_t offset, const GpuTargets& target_grad,
               const float* logsumexp, const float* upstream, Stored* grad,
               GpuStream stream) {
  return Launch(AreWide(block, logits, grad) ? GradKernel<4, Stored>
                                             : GradKernel<1, Stored>,
                batch * CeilDiv(block, kGradColumns), kThreads, 0, stream,
                logits, block, offset, target_grad, logsumexp, upstream, grad);
}

}  // namespace

GpuStatus SoftmaxBlockStats(const float* logits, int64_t batch, int64_t block,
                            int64_t offset, const GpuTargets& delta,
                            const float* running_max, const double* running_sum,
                            float* max, double* sum, GpuStream stream) {
  return Launch(
      AreWide(block, logits, nullptr) ? StatsKernel<4> : StatsKernel<1>, batch,
      kThreads, kWarps * sizeof(SoftmaxStats), stream, logits, block, offset,
      delta, running_max, running_sum, max, sum);
}

GpuStatus SoftmaxBlockGrad(const float* logits, int64_t batch, int64_t block,
                           int64_t offset, const GpuTargets& target_grad,
                           const float* logsumexp, const float* upstream,
                           float* grad, GpuStream stream) {
  return Grad(logits, batch, block, offset, target_grad, logsumexp, upstream,
              grad, stream);
}

GpuStatus SoftmaxBlockGrad(const float* logits, int64_t batch, int64_t block,
                           int64_t offset, const GpuTargets& target_grad,
                           const float* logsumexp, const float* upstream,
                           uint16_t* bf16_grad, GpuStream stream) {
  return Grad(logits, batch, block, offset, target_grad, logsumexp, upstream,
              reinterpret_cast<Bf16*>(bf16_grad), stream);
}

GpuStatus WriteRows(const float* buffer, int64_t num_rows, int64_t width,
                    const float* rows, int64_t count, int64_t start,
                    float* result, GpuStream stream) {
  if (start < 0 || count > num_rows - start) {
    return "rows to write must fit into the buffer";
  }
  if (result != buffer) {
    TFXCLASS_RETURN_IF_GPU_ERROR(
        CopyOnDevice(result, buffer, num_rows * width * sizeof(float), stream));
  }
  return CopyOnDevice(result + start * width, rows,
                      count * width * sizeof(float), stream);
}

}  // namespace tfxclass
