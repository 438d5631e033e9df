// What a warp needs for core/row_rules.h, and how rows are kept.
#ifndef TFXCLASS_KERNELS_ROW_RULES_CU_H_
#define TFXCLASS_KERNELS_ROW_RULES_CU_H_

#include "core/row_rules.h"
#include "core/skipped_steps.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/row_runs.cu.h"
#include "kernels/row_update.cu.h"

namespace tfxclass {

template <class T>
__device__ T At(const T* scalar) {
  return scalar == nullptr ? T() : *scalar;
}

// Element of a rule, with the numbers of this step.
template <class Element>
__device__ Element ElementOf(const RowRuleOptions& options,
                             const RowScalars& s) {
  return Element(
      options, {At(s.learning_rate), At(s.decay), At(s.beta_1), At(s.beta_2)});
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

  // By how much they move an element, over its first moment.
  template <class Element>
  __device__ float OverM(const Element& element, const Skipped& skipped,
                         const float* slots) const {
    if constexpr (Element::kHasRoot) {
      if (terms.each_element) {
        return SumOfMoves(element.Root(slots), element.epsilon);
      }
    }
    return element.OverM(skipped, slots);
  }

 private:
  __device__ float SumOfMoves(float root, float epsilon) const {
    const float* const c = terms.values + terms.steps;
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += MoveInOneStep(Rate(i) * terms.values[i], c[i], root, epsilon);
    }
    return sum;
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
