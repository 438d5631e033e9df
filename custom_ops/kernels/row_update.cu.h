// Optimizer steps on the rows of a matrix that a batch touched, on the device.
#ifndef TFXCLASS_KERNELS_ROW_UPDATE_CU_H_
#define TFXCLASS_KERNELS_ROW_UPDATE_CU_H_

#include "core/row_rules.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

// RuleNumbers (core/row_rules.h), each on the device, so that no step waits for
// the host; null where a rule has none.
struct RowScalars {
  const double* learning_rate = nullptr;
  const double* decay = nullptr;
  const double* beta_1 = nullptr;
  const double* beta_2 = nullptr;
  const double* offset = nullptr;
};

// How rows are stored. Those of kRandomBf16 are bfloat16 that is rounded
// stochastically, with slots and gradients in float32. With the other types,
// slots and gradients have the type of the rows, rounded to nearest.
enum class RowType { kFloat, kRandomBf16, kBf16, kHalf };

// A matrix [num_rows, dim], and its slots of the same shape. With
// has_row_moments (for kFloat and kRandomBf16), second moments are float32
// [num_rows]. With has_bf16_moments (which needs has_row_moments), first
// moments are bfloat16, rounded stochastically. core/row_update.h uses the same
// random bits.
struct GpuRows {
  int64_t num_rows = 0, dim = 0;
  RowType type = RowType::kFloat;
  void* rows = nullptr;
  void* slots[3] = {nullptr, nullptr, nullptr};
  bool has_row_moments = false, has_bf16_moments = false;
  uint64_t seed = 0;
  // On the device, another for each update; not read where nothing is rounded.
  const int64_t* step = nullptr;
};

// ids [n], those outside [0, num_rows) are left out; grads [n, dim]. Gradients
// of one row are summed in the order of the batch: deterministic. Time
// O(n dim) and a sort of n ids; n < 2^31.
GpuStatus UpdateRows(const RowRuleOptions& options, const RowScalars& scalars,
                     const GpuRows& rows, const int64_t* ids, const void* grads,
                     int64_t n, Scratch* scratch, GpuStream stream);

// Distinct ids, rising, and the sums of their gradients, in the first places of
// unique_ids [n] and sums [n, dim]; their number to *num_unique, on the device.
GpuStatus SumDuplicateRows(const int64_t* ids, const float* grads, int64_t n,
                           int64_t bound, int64_t dim, int64_t* unique_ids,
                           float* sums, int64_t* num_unique, Scratch* scratch,
                           GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_UPDATE_CU_H_
