// What a warp needs for core/row_rules.h, and how rows are kept.
#ifndef TFXCLASS_KERNELS_ROW_RULES_CU_H_
#define TFXCLASS_KERNELS_ROW_RULES_CU_H_

#include <type_traits>

#include "core/half.h"
#include "core/philox.h"
#include "core/row_rules.h"
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
  return Element(options, {At(s.learning_rate), At(s.decay), At(s.beta_1),
                           At(s.beta_2), At(s.offset)});
}

// bfloat16 that is rounded to nearest; Bf16 is rounded stochastically here.
struct NearestBf16 {
  uint16_t bits;
};

__device__ __forceinline__ float ToFloat(NearestBf16 x) {
  return ToFloat(Bf16{x.bits});
}

__device__ __forceinline__ void Round(float x, uint32_t random, Bf16* to) {
  *to = RoundStochastically(x, random);
}
__device__ __forceinline__ void Round(float x, uint32_t, NearestBf16* to) {
  to->bits = ToBf16(x).bits;
}
__device__ __forceinline__ void Round(float x, uint32_t, Half* to) {
  *to = ToHalf(x);
}

// Rounded by what bits[j] have from bit `shift` on; floats are not.
template <int kWidth>
__device__ __forceinline__ void StoreKept(float* to, const Pack<kWidth>& x,
                                          const uint32_t*, int) {
  Store(to, x);
}
template <class T, int kWidth>
__device__ __forceinline__ void StoreKept(T* to, const Pack<kWidth>& x,
                                          const uint32_t* bits, int shift) {
  if constexpr (kWidth == 1) {
    Round(x.at[0], bits[0] >> shift, to);
  } else {
    uint64_t four = 0;
    for (int j = 0; j < 4; ++j) {
      T kept;
      Round(x.at[j], bits[j] >> shift, &kept);
      four |= static_cast<uint64_t>(kept.bits) << (16 * j);
    }
    *reinterpret_cast<uint64_t*>(to) = four;
  }
}

// A matrix of V and its slots, as SlottedRows of core/row_update.h: rounded by
// the same random bits.
template <class V, class M, bool kRowMoments>
struct GpuSlottedRows {
  static constexpr bool kHasRowSlots = kRowMoments;
  static constexpr bool kIsRandom =
      std::is_same_v<M, Bf16> || std::is_same_v<V, Bf16>;
  using Grad = std::conditional_t<kRowMoments, float, M>;

  V* rows;
  void* slots[3];
  int64_t dim;
  uint64_t seed;
  const int64_t* step;

  __device__ M* Full(int s, int64_t at) const {
    return static_cast<M*>(slots[s]) + at;
  }
  __device__ float* OfRow(int s, int64_t row) const {
    return static_cast<float*>(slots[s]) + row;
  }

  template <int kWidth>
  __device__ void Draw(int64_t row, int64_t d, uint32_t (&bits)[kWidth]) const {
    if (!kIsRandom) return;
    Philox random(seed, static_cast<uint64_t>(*step));
    random.Seek(static_cast<uint64_t>(row * ((dim + 3) / 4) + d / 4));
    for (int64_t j = d % 4; j > 0; --j) random.Next();
    for (int j = 0; j < kWidth; ++j) bits[j] = random.Next();
  }

  // A warp goes through a row: step_of(d, w, slots) is what w moves by.
  template <class Element, int kWidth, class StepOf>
  __device__ void Move(int64_t row, const StepOf& step_of) const {
    constexpr int kSlots = Element::kSlots;
    // With a number for each element; the others have one a row.
    constexpr int kFull = kRowMoments ? Element::kMoments : kSlots;
    float before[kSlots + 1], after[kSlots + 1];
    for (int s = kFull; s < kSlots; ++s) before[s] = *OfRow(s, row);
    if (kFull < kSlots) __syncwarp();  // all have read them
    for (int64_t d = Lane() * kWidth; d < dim; d += kWarp * kWidth) {
      const int64_t at = row * dim + d;
      Pack<kWidth> of_slots[kSlots + 1];
      for (int s = 0; s < kSlots; ++s) {
        if (s < kFull) {
          of_slots[s] = Load(Full(s, at), Pack<kWidth>());
        } else {
          for (int j = 0; j < kWidth; ++j) of_slots[s].at[j] = before[s];
        }
      }
      Pack<kWidth> w = Load(rows + at, Pack<kWidth>());
      const Pack<kWidth> move = step_of(d, w, of_slots);
      for (int j = 0; j < kWidth; ++j) w.at[j] += move.at[j];
      uint32_t bits[kWidth] = {};
      Draw(row, d, bits);
      for (int s = 0; s < kSlots; ++s) {
        if (s < kFull) {
          // Moments alone are rounded; they have the upper bits.
          StoreKept(Full(s, at), of_slots[s], bits, 16);
        } else {
          after[s] = of_slots[s].at[0];
        }
      }
      StoreKept(rows + at, w, bits, 0);
    }
    for (int s = kFull; s < kSlots; ++s) {
      if (Lane() == 0) *OfRow(s, row) = after[s];
    }
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_RULES_CU_H_
