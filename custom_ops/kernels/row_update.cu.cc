#include "kernels/row_update.cu.h"

#include "kernels/cuda_utils.cu.h"
#include "kernels/row_rules.cu.h"
#include "kernels/row_runs.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 128;
// Of UpdateRowsKernel, at least so many at once on an SM. With no such number,
// ptxas spills some of its instances; with 6, too.
constexpr int kBlocks = 5;

// Sum of the gradients of a run of equal ids, in the order of the batch.
template <int kWidth, class T>
__device__ __forceinline__ Pack<kWidth> SumRun(const T* grads, int64_t dim,
                                               int64_t d, const int32_t* order,
                                               int64_t begin, int64_t end) {
  constexpr int kAhead = 4;  // loads on their way at once
  Pack<kWidth> sum = Load(grads + order[begin] * dim + d, Pack<kWidth>());
  for (int64_t i = begin + 1; i < end; i += kAhead) {
    Pack<kWidth> more[kAhead];
    for (int a = 0; a < kAhead && i + a < end; ++a) {
      more[a] = Load(grads + order[i + a] * dim + d, Pack<kWidth>());
    }
    for (int a = 0; a < kAhead && i + a < end; ++a) {
      for (int j = 0; j < kWidth; ++j) sum.at[j] += more[a].at[j];
    }
  }
  return sum;
}

// step.at[j] = body(j, slots of j), which may change the slots.
template <class Element, int kWidth, class Body>
__device__ __forceinline__ Pack<kWidth> EachElement(Pack<kWidth>* of_slots,
                                                    const Body& body) {
  Pack<kWidth> step;
  for (int j = 0; j < kWidth; ++j) {
    float slots[Element::kSlots + 1];
    for (int s = 0; s < Element::kSlots; ++s) slots[s] = of_slots[s].at[j];
    step.at[j] = body(j, slots);
    for (int s = 0; s < Element::kSlots; ++s) of_slots[s].at[j] = slots[s];
  }
  return step;
}

// A warp for each sorted id: the first of a row's ids owns the row.
template <class Element, class Rows, int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    UpdateRowsKernel(RowRuleOptions options, RowScalars scalars, Rows rows,
                     const int64_t* sorted, const int32_t* order,
                     const typename Rows::Grad* grads, int64_t n) {
  const int64_t i = WarpNumber();
  if (i >= n) return;
  const int64_t end = RunEnd(sorted, n, i);
  if (end == i) return;
  const int64_t dim = rows.dim;
  float mean_square = 0;
  for (int64_t d = Lane() * kWidth; Rows::kHasRowSlots && d < dim;
       d += kWarp * kWidth) {
    const Pack<kWidth> grad = SumRun<kWidth>(grads, dim, d, order, i, end);
    for (int j = 0; j < kWidth; ++j) mean_square += grad.at[j] * grad.at[j];
  }
  if (Rows::kHasRowSlots) mean_square = WarpSum(mean_square) / dim;
  const Element element = ElementOf<Element>(options, scalars);
  rows.template Move<Element, kWidth>(
      sorted[i],
      [&](int64_t d, const Pack<kWidth>& old, Pack<kWidth>* of_slots) {
        const Pack<kWidth> grad = SumRun<kWidth>(grads, dim, d, order, i, end);
        return EachElement<Element>(of_slots, [&](int j, float* of_element) {
          const float g = grad.at[j];
          const float square = Rows::kHasRowSlots ? mean_square : g * g;
          return element.Step(old.at[j], g, square, of_element);
        });
      });
}

// A warp for each sorted id; sums[places[i]] is of the run that begins at i.
template <int kWidth>
__global__ void SumRunsKernel(const int64_t* sorted, const int32_t* order,
                              const int64_t* places, const float* grads,
                              int64_t dim, int64_t n, int64_t* unique_ids,
                              float* sums) {
  const int64_t i = WarpNumber();
  if (i >= n) return;
  const int64_t end = RunEnd(sorted, n, i);
  if (end == i) return;
  if (Lane() == 0) unique_ids[places[i]] = sorted[i];
  for (int64_t d = Lane() * kWidth; d < dim; d += kWarp * kWidth) {
    Store(sums + places[i] * dim + d,
          SumRun<kWidth>(grads, dim, d, order, i, end));
  }
}

int NumSlots(const GpuRows& rows) {
  return (rows.slots[0] != nullptr) + (rows.slots[1] != nullptr) +
         (rows.slots[2] != nullptr);
}

template <class V, class M, bool kRowMoments>
GpuSlottedRows<V, M, kRowMoments> RowsOf(const GpuRows& r) {
  void* const* s = r.slots;
  return {
      static_cast<V*>(r.rows), {s[0], s[1], s[2]}, r.dim, 2 * r.seed, r.step};
}

template <class V, class Run>
GpuStatus WithMoments(const GpuRows& rows, const Run& run) {
  if (rows.has_bf16_moments) return run(RowsOf<V, Bf16, true>(rows));
  if (rows.has_row_moments) return run(RowsOf<V, float, true>(rows));
  return run(RowsOf<V, float, false>(rows));
}

// Calls run(the matrices as kernels take them).
template <class Run>
GpuStatus WithRows(const GpuRows& rows, const Run& run) {
  switch (rows.type) {
    case RowType::kFloat:
      return WithMoments<float>(rows, run);
    case RowType::kRandomBf16:
      return WithMoments<Bf16>(rows, run);
    case RowType::kBf16:
      return run(RowsOf<NearestBf16, NearestBf16, false>(rows));
    case RowType::kHalf:
      break;
  }
  return run(RowsOf<Half, Half, false>(rows));
}

}  // namespace

GpuStatus UpdateRows(const RowRuleOptions& options, const RowScalars& scalars,
                     const GpuRows& rows, const int64_t* ids, const void* grads,
                     int64_t n, Scratch* scratch, GpuStream stream) {
  if (n == 0 || rows.dim == 0) return nullptr;
  Runs runs;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FindRuns(ids, n, rows.num_rows, &runs, scratch, stream));
  const bool wide = AreAligned(rows.dim, rows.rows, rows.slots[0],
                               rows.slots[1], rows.slots[2], grads);
  return WithElement<float>(options.rule, NumSlots(rows), [&](auto element) {
    return WithRows(rows, [&](auto kept) {
      using Element = typename decltype(element)::type;
      using Rows = decltype(kept);
      return Launch(wide ? UpdateRowsKernel<Element, Rows, 4>
                         : UpdateRowsKernel<Element, Rows, 1>,
                    BlocksOfWarps(n, kThreads), kThreads, 0, stream, options,
                    scalars, kept, runs.sorted, runs.order, grads, n);
    });
  });
}

GpuStatus SumDuplicateRows(const int64_t* ids, const float* grads, int64_t n,
                           int64_t bound, int64_t dim, int64_t* unique_ids,
                           float* sums, int64_t* num_unique, Scratch* scratch,
                           GpuStream stream) {
  if (n == 0) return FillBytes(num_unique, 0, sizeof(*num_unique), stream);
  Runs runs;
  TFXCLASS_RETURN_IF_GPU_ERROR(FindRuns(ids, n, bound, &runs, scratch, stream));
  int64_t* places;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      NumberRuns(runs, n, &places, num_unique, scratch, stream));
  const bool wide = AreAligned(dim, grads, sums);
  return Launch(wide ? SumRunsKernel<4> : SumRunsKernel<1>,
                BlocksOfWarps(n, kThreads), kThreads, 0, stream, runs.sorted,
                runs.order, places, grads, dim, n, unique_ids, sums);
}

}  // namespace tfxclass
