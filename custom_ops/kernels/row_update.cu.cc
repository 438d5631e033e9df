#include "kernels/row_update.cu.h"

#include "kernels/cuda_utils.cu.h"
#include "kernels/row_runs.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 128;

// What becomes of an element w, its gradient and its slots.
struct SgdElement {
  static constexpr int kSlots = 0;
  float learning_rate, decay;

  __device__ float Step(float w, float grad, float*) const {
    return -w * decay - grad * learning_rate;
  }
};

struct MomentumElement {
  static constexpr int kSlots = 1;
  float learning_rate, decay, momentum;
  bool nesterov;

  __device__ float Step(float w, float grad, float* slots) const {
    const float step = grad * learning_rate;
    slots[0] = slots[0] * momentum - step;
    return (nesterov ? slots[0] * momentum - step : slots[0]) - w * decay;
  }
};

struct AdagradElement {
  static constexpr int kSlots = 1;
  float learning_rate, decay, epsilon;

  __device__ float Step(float w, float grad, float* slots) const {
    slots[0] += grad * grad;
    return -w * decay - learning_rate * grad / sqrtf(slots[0] + epsilon);
  }
};

template <bool kAmsGrad>
struct AdamElement {
  static constexpr int kSlots = kAmsGrad ? 3 : 2;
  float alpha, decay, m_rate, v_rate, epsilon;

  __device__ float Step(float w, float grad, float* slots) const {
    slots[0] += (grad - slots[0]) * m_rate;
    slots[1] += (grad * grad - slots[1]) * v_rate;
    float v = slots[1];
    if (kAmsGrad) v = slots[2] = max(slots[2], v);
    return -w * decay - slots[0] * alpha / (sqrtf(v) + epsilon);
  }
};

// How rows are kept: Read gives element d of a row, Move adds to it.
struct FloatRows {
  float* rows;

  template <int kWidth>
  __device__ Pack<kWidth> Read(int64_t at) const {
    return Load(rows + at, Pack<kWidth>());
  }
  template <int kWidth>
  __device__ void Move(int64_t at, const Pack<kWidth>& old,
                       const Pack<kWidth>& step) const {
    Pack<kWidth> sum;
    for (int j = 0; j < kWidth; ++j) sum.at[j] = old.at[j] + step.at[j];
    Store(rows + at, sum);
  }
};

struct MasterRows {
  Bf16* rows;
  float* master;

  template <int kWidth>
  __device__ Pack<kWidth> Read(int64_t at) const {
    return Load(master + at, Pack<kWidth>());
  }
  template <int kWidth>
  __device__ void Move(int64_t at, const Pack<kWidth>& old,
                       const Pack<kWidth>& step) const {
    Pack<kWidth> sum;
    for (int j = 0; j < kWidth; ++j) {
      sum.at[j] = old.at[j] + step.at[j];
      rows[at + j] = ToBf16(sum.at[j]);
    }
    Store(master + at, sum);
  }
};

struct KahanRows {
  Bf16* rows;
  Bf16* compensation;  // may be null

  template <int kWidth>
  __device__ Pack<kWidth> Read(int64_t at) const {
    Pack<kWidth> x;
    for (int j = 0; j < kWidth; ++j) x.at[j] = ToFloat(rows[at + j]);
    return x;
  }
  template <int kWidth>
  __device__ void Move(int64_t at, const Pack<kWidth>& old,
                       const Pack<kWidth>& step) const {
    for (int j = 0; j < kWidth; ++j) {
      float move = step.at[j];
      if (compensation != nullptr) move += ToFloat(compensation[at + j]);
      const Bf16 sum = ToBf16(old.at[j] + move);
      rows[at + j] = sum;
      if (compensation == nullptr) continue;
      compensation[at + j] = ToBf16(move - (ToFloat(sum) - old.at[j]));
    }
  }
};

struct Slots {
  float* at[3];
};

// Sum of the gradients of a run of equal ids, in the order of the batch.
template <int kWidth>
__device__ __forceinline__ Pack<kWidth> SumRun(const float* grads, int64_t dim,
                                               int64_t d, const int32_t* order,
                                               int64_t begin, int64_t end) {
  Pack<kWidth> sum = Load(grads + order[begin] * dim + d, Pack<kWidth>());
  for (int64_t i = begin + 1; i < end; ++i) {
    const Pack<kWidth> more = Load(grads + order[i] * dim + d, Pack<kWidth>());
    for (int j = 0; j < kWidth; ++j) sum.at[j] += more.at[j];
  }
  return sum;
}

// A warp for each sorted id: the first of a row's ids owns the row.
template <class Element, class Rows, int kWidth>
__global__ void __launch_bounds__(kThreads)
    UpdateRowsKernel(Element element, Rows rows, Slots slots, int64_t dim,
                     const int64_t* sorted, const int32_t* order,
                     const float* grads, int64_t n) {
  const int64_t i = WarpNumber();
  if (i >= n) return;
  const int64_t end = RunEnd(sorted, n, i);
  if (end == i) return;
  const int64_t first = sorted[i] * dim;
  for (int64_t d = Lane() * kWidth; d < dim; d += kWarp * kWidth) {
    Pack<kWidth> of_slots[Element::kSlots + 1];
    for (int s = 0; s < Element::kSlots; ++s) {
      of_slots[s] = Load(slots.at[s] + first + d, Pack<kWidth>());
    }
    const Pack<kWidth> old = rows.template Read<kWidth>(first + d);
    const Pack<kWidth> grad = SumRun<kWidth>(grads, dim, d, order, i, end);
    Pack<kWidth> step;
    for (int j = 0; j < kWidth; ++j) {
      float of_element[Element::kSlots + 1];
      for (int s = 0; s < Element::kSlots; ++s) {
        of_element[s] = of_slots[s].at[j];
      }
      step.at[j] = element.Step(old.at[j], grad.at[j], of_element);
      for (int s = 0; s < Element::kSlots; ++s) {
        of_slots[s].at[j] = of_element[s];
      }
    }
    for (int s = 0; s < Element::kSlots; ++s) {
      Store(slots.at[s] + first + d, of_slots[s]);
    }
    rows.template Move<kWidth>(first + d, old, step);
  }
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

// A warp for each id.
template <int kWidth>
__global__ void GatherRowsKernel(const float* rows, int64_t num_rows,
                                 int64_t dim, const int64_t* ids, int64_t n,
                                 float* to) {
  const int64_t i = WarpNumber();
  if (i >= n) return;
  const int64_t row = ids[i];
  const bool is_row = row >= 0 && row < num_rows;
  for (int64_t d = Lane() * kWidth; d < dim; d += kWarp * kWidth) {
    Pack<kWidth> x = {};
    if (is_row) x = Load(rows + row * dim + d, Pack<kWidth>());
    Store(to + i * dim + d, x);
  }
}

// A thread for each id. Ids that occur twice write the same.
__global__ void SetLastStepKernel(const int64_t* ids, int64_t n,
                                  int64_t num_rows, int64_t step,
                                  int64_t* last_step) {
  const int64_t i = ThreadNumber();
  if (i < n && ids[i] >= 0 && ids[i] < num_rows) last_step[ids[i]] = step;
}

template <class Element, class Rows>
GpuStatus Update(const Element& element, const Rows& kept, const GpuRows& rows,
                 const Runs& runs, const float* grads, int64_t n,
                 GpuStream stream) {
  const Slots slots = {{rows.slots[0], rows.slots[1], rows.slots[2]}};
  const bool wide = AreAligned(rows.dim, rows.rows, rows.master, rows.slots[0],
                               rows.slots[1], rows.slots[2], grads);
  return Launch(wide ? UpdateRowsKernel<Element, Rows, 4>
                     : UpdateRowsKernel<Element, Rows, 1>,
                BlocksOfWarps(n, kThreads), kThreads, 0, stream, element, kept,
                slots, rows.dim, runs.sorted, runs.order, grads, n);
}

template <class Element>
GpuStatus UpdateKept(const Element& element, const GpuRows& rows,
                     const Runs& runs, const float* grads, int64_t n,
                     GpuStream stream) {
  if (rows.bf16_rows == nullptr) {
    return Update(element, FloatRows{rows.rows}, rows, runs, grads, n, stream);
  }
  Bf16* kept = reinterpret_cast<Bf16*>(rows.bf16_rows);
  if (rows.master != nullptr) {
    return Update(element, MasterRows{kept, rows.master}, rows, runs, grads, n,
                  stream);
  }
  const KahanRows kahan = {kept, reinterpret_cast<Bf16*>(rows.compensation)};
  return Update(element, kahan, rows, runs, grads, n, stream);
}

}  // namespace

GpuStatus UpdateRows(const RowRuleOptions& options, const GpuRows& rows,
                     const int64_t* ids, const float* grads, int64_t n,
                     Scratch* scratch, GpuStream stream) {
  if (n == 0 || rows.dim == 0) return nullptr;
  Runs runs;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FindRuns(ids, n, rows.num_rows, &runs, scratch, stream));
  const RowRuleOptions& o = options;
  switch (o.rule) {
    case RowRule::kSgd:
      if (rows.slots[0] == nullptr) {
        return UpdateKept(SgdElement{o.learning_rate, o.decay}, rows, runs,
                          grads, n, stream);
      }
      return UpdateKept(
          MomentumElement{o.learning_rate, o.decay, o.momentum, o.nesterov},
          rows, runs, grads, n, stream);
    case RowRule::kAdagrad:
      return UpdateKept(AdagradElement{o.learning_rate, o.decay, o.epsilon},
                        rows, runs, grads, n, stream);
    case RowRule::kAdam:
      break;
  }
  if (rows.slots[2] == nullptr) {
    return UpdateKept(AdamElement<false>{o.learning_rate, o.decay, o.m_rate,
                                         o.v_rate, o.epsilon},
                      rows, runs, grads, n, stream);
  }
  return UpdateKept(AdamElement<true>{o.learning_rate, o.decay, o.m_rate,
                                      o.v_rate, o.epsilon},
                    rows, runs, grads, n, stream);
}

GpuStatus GatherRows(const float* rows, int64_t num_rows, int64_t dim,
                     const int64_t* ids, int64_t n, float* to,
                     GpuStream stream) {
  const bool wide = AreAligned(dim, rows, to);
  return Launch(wide ? GatherRowsKernel<4> : GatherRowsKernel<1>,
                BlocksOfWarps(n, kThreads), kThreads, 0, stream, rows, num_rows,
                dim, ids, n, to);
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

GpuStatus SetLastStep(const int64_t* ids, int64_t n, int64_t num_rows,
                      int64_t step, int64_t* last_step, GpuStream stream) {
  return Launch(SetLastStepKernel, CeilDiv(n, kThreads), kThreads, 0, stream,
                ids, n, num_rows, step, last_step);
}

}  // namespace tfxclass
