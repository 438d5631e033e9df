// The optimizers' rules for an element of a row, and how rows are kept.
#ifndef TFXCLASS_KERNELS_ROW_RULES_CU_H_
#define TFXCLASS_KERNELS_ROW_RULES_CU_H_

#include "core/skipped_steps.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/row_runs.cu.h"
#include "kernels/row_update.cu.h"

namespace tfxclass {

template <class T>
__device__ T At(const T* scalar) {
  return scalar == nullptr ? T() : *scalar;
}

// The steps that a row skipped, as a warp sees them.
struct SkippedSteps {
  StepHistory history;
  SkipTerms terms;
  int64_t first = 0, age = 0, count = 0;  // the first `count` of `age` count

  __device__ SkippedSteps(const GpuHistory& h, const SkipTerms& of_steps,
                          int64_t last)
      : history{*h.clock, h.capacity, h.rates, h.log_keeps}, terms(of_steps) {
    first = history.First(last);
    age = history.End() - first;
    count = age < terms.steps ? age : terms.steps;
  }

  // keep_i rate_i of the i-th, from 0.
  __device__ float Rate(int64_t i) const {
    const double keep = history.Kept(first + i + 1);
    return static_cast<float>(keep * history.Rate(first + i));
  }

  // By all lanes together.
  __device__ Skipped Sum(const SkipFade& fade) const {
    Skipped skipped;
    skipped.keep = history.Kept(first);
    skipped.momentum = pow(fade.momentum, static_cast<double>(age));
    skipped.velocity = pow(fade.velocity, static_cast<double>(age));
    if (terms.each_element) return skipped;
    for (int64_t i = Lane(); i < count; i += kWarp) {
      const float rate = Rate(i);
      for (int p = 0; p < terms.terms; ++p) {
        skipped.move[p] += rate * terms.values[p * terms.steps + i];
      }
    }
    for (int p = 0; p < terms.terms; ++p) {
      skipped.move[p] = WarpSum(skipped.move[p]);
    }
    return skipped;
  }

  // By how much an element with this root of its velocity moves, over m.
  __device__ float MoveElement(float root, float epsilon) const {
    const float* const c = terms.values + terms.steps;
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += Rate(i) * terms.values[i] / (c[i] * root + epsilon);
    }
    return sum;
  }
};

// What becomes of an element w with a gradient (Step), and of one that steps
// skipped (Skip): by how much it moves. Both change its slots.
struct SgdElement {
  static constexpr int kSlots = 0;
  float learning_rate, decay;

  __device__ SgdElement(const RowRuleOptions&, const RowScalars& s)
      : learning_rate(At(s.learning_rate)), decay(At(s.decay)) {}
  __device__ SkipFade Fade() const { return {}; }

  __device__ float Step(float w, float grad, float*) const {
    return -w * decay - grad * learning_rate;
  }
  __device__ float Skip(float w, const SkippedSteps&, const Skipped& s,
                        float*) const {
    return w * static_cast<float>(s.keep - 1);
  }
};

struct MomentumElement {
  static constexpr int kSlots = 1;
  float learning_rate, decay, momentum;
  bool nesterov;

  __device__ MomentumElement(const RowRuleOptions& o, const RowScalars& s)
      : learning_rate(At(s.learning_rate)),
        decay(At(s.decay)),
        momentum(o.momentum),
        nesterov(o.nesterov) {}
  __device__ SkipFade Fade() const { return {momentum, 1}; }

  __device__ float Step(float w, float grad, float* slots) const {
    const float step = grad * learning_rate;
    slots[0] = slots[0] * momentum - step;
    return (nesterov ? slots[0] * momentum - step : slots[0]) - w * decay;
  }
  __device__ float Skip(float w, const SkippedSteps&, const Skipped& s,
                        float* slots) const {
    const float move = slots[0] * s.move[0];
    slots[0] *= static_cast<float>(s.momentum);
    return w * static_cast<float>(s.keep - 1) - move;
  }
};

struct AdagradElement {
  static constexpr int kSlots = 1;
  float learning_rate, decay, epsilon;

  __device__ AdagradElement(const RowRuleOptions& o, const RowScalars& s)
      : learning_rate(At(s.learning_rate)),
        decay(At(s.decay)),
        epsilon(o.epsilon) {}
  __device__ SkipFade Fade() const { return {}; }

  __device__ float Step(float w, float grad, float* slots) const {
    slots[0] += grad * grad;
    return -w * decay - learning_rate * grad / sqrtf(slots[0] + epsilon);
  }
  __device__ float Skip(float w, const SkippedSteps&, const Skipped& s,
                        float*) const {
    return w * static_cast<float>(s.keep - 1);
  }
};

template <bool kAmsGrad>
struct AdamElement {
  static constexpr int kSlots = kAmsGrad ? 3 : 2;
  float alpha, decay, m_rate, v_rate, epsilon;
  double beta_1, beta_2;

  // In double, as Keras takes the betas from Python floats.
  __device__ AdamElement(const RowRuleOptions& o, const RowScalars& s)
      : alpha(At(s.learning_rate)),
        decay(At(s.decay)),
        m_rate(static_cast<float>(1 - At(s.beta_1))),
        v_rate(static_cast<float>(1 - At(s.beta_2))),
        epsilon(o.epsilon),
        beta_1(At(s.beta_1)),
        beta_2(At(s.beta_2)) {}
  __device__ SkipFade Fade() const { return {beta_1, beta_2}; }

  __device__ float Step(float w, float grad, float* slots) const {
    slots[0] += (grad - slots[0]) * m_rate;
    slots[1] += (grad * grad - slots[1]) * v_rate;
    float v = slots[1];
    if (kAmsGrad) v = slots[2] = max(slots[2], v);
    return -w * decay - slots[0] * alpha / (sqrtf(v) + epsilon);
  }
  // AMSGrad's largest v does not change while v only falls.
  __device__ float Skip(float w, const SkippedSteps& steps, const Skipped& s,
                        float* slots) const {
    const float root = sqrtf(kAmsGrad ? slots[2] : slots[1]);
    const float h = root + epsilon;
    const float move = steps.terms.each_element
                           ? steps.MoveElement(root, epsilon)
                           : s.Move(epsilon / h) / h;
    const float step = w * static_cast<float>(s.keep - 1) - slots[0] * move;
    slots[0] *= static_cast<float>(s.momentum);
    slots[1] *= static_cast<float>(s.velocity);
    return step;
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

__device__ __forceinline__ Pack<1> Load(const Bf16* from, Pack<1>) {
  return {{ToFloat(*from)}};
}
__device__ __forceinline__ Pack<4> Load(const Bf16* from, Pack<4>) {
  const uint64_t bits = *reinterpret_cast<const uint64_t*>(from);
  Pack<4> x;
  for (int j = 0; j < 4; ++j) {
    x.at[j] = ToFloat(Bf16{static_cast<uint16_t>(bits >> (16 * j))});
  }
  return x;
}
__device__ __forceinline__ void Store(Bf16* to, const Pack<1>& x) {
  *to = ToBf16(x.at[0]);
}
__device__ __forceinline__ void Store(Bf16* to, const Pack<4>& x) {
  uint64_t bits = 0;
  for (int j = 0; j < 4; ++j) {
    bits |= static_cast<uint64_t>(ToBf16(x.at[j]).bits) << (16 * j);
  }
  *reinterpret_cast<uint64_t*>(to) = bits;
}

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
    for (int j = 0; j < kWidth; ++j) sum.at[j] = old.at[j] + step.at[j];
    Store(rows + at, sum);
    Store(master + at, sum);
  }
};

struct KahanRows {
  Bf16* rows;
  Bf16* compensation;  // may be null

  template <int kWidth>
  __device__ Pack<kWidth> Read(int64_t at) const {
    return Load(rows + at, Pack<kWidth>());
  }
  template <int kWidth>
  __device__ void Move(int64_t at, const Pack<kWidth>& old,
                       const Pack<kWidth>& step) const {
    Pack<kWidth> lost = {}, sum;
    if (compensation != nullptr) {
      lost = Load(compensation + at, Pack<kWidth>());
    }
    for (int j = 0; j < kWidth; ++j) {
      const float move = step.at[j] + lost.at[j];
      sum.at[j] = ToFloat(ToBf16(old.at[j] + move));
      lost.at[j] = move - (sum.at[j] - old.at[j]);
    }
    Store(rows + at, sum);
    if (compensation != nullptr) Store(compensation + at, lost);
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_RULES_CU_H_
