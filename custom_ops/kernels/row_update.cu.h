// Optimizer steps on the rows of a matrix that a batch touched, on the device.
#ifndef TFXCLASS_KERNELS_ROW_UPDATE_CU_H_
#define TFXCLASS_KERNELS_ROW_UPDATE_CU_H_

#include "core/row_rules.h"
#include "core/skipped_steps.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

// RuleNumbers (core/row_rules.h), each on the device, so that no step waits for
// the host; null where a rule has none.
struct RowScalars {
  const double* learning_rate = nullptr;
  const double* decay = nullptr;
  const double* beta_1 = nullptr;
  const double* beta_2 = nullptr;
};

// The steps that the matrix has seen (core/skipped_steps.h), on the device:
// last_step [num_rows], clock, and rates and log_keeps or null.
struct GpuHistory {
  int64_t* last_step = nullptr;
  int64_t* clock = nullptr;
  float* rates = nullptr;
  double* log_keeps = nullptr;
  int64_t capacity = 1;
};

// A matrix [num_rows, dim], and its slots of the same shape. Rows are float32,
// or bfloat16 that are rounded stochastically. Slots are float32; compact ones
// are, of first moments, bfloat16 that are rounded so, too, and of second ones
// float32 [num_rows]. The random bits are those of core/row_update.h.
struct GpuRows {
  int64_t num_rows = 0, dim = 0;
  float* rows = nullptr;
  uint16_t* bf16_rows = nullptr;  // instead of rows
  void* slots[3] = {nullptr, nullptr, nullptr};
  bool is_compact = false;
  uint64_t seed = 0;
  // On the device, another for each update; not read where nothing is rounded.
  const int64_t* step = nullptr;
};

// ids [n], those outside [0, num_rows) are left out; grads [n, dim]. Gradients
// of one row are summed in the order of the batch: deterministic. Time
// O(n dim) and a sort of n ids; n < 2^31.
GpuStatus UpdateRows(const RowRuleOptions& options, const RowScalars& scalars,
                     const GpuRows& rows, const int64_t* ids,
                     const float* grads, int64_t n, Scratch* scratch,
                     GpuStream stream);

// Brings rows that are behind the clock to it, and says so in last_step: those
// of `ids`, or all of them with `every_row` and where the history is full. The
// terms are on the device.
GpuStatus CatchUpRows(const RowRuleOptions& options, const RowScalars& scalars,
                      const GpuRows& rows, const int64_t* ids, int64_t n,
                      bool every_row, const GpuHistory& history,
                      const SkipTerms& terms, Scratch* scratch,
                      GpuStream stream);

// Distinct ids, rising, and the sums of their gradients, in the first places of
// unique_ids [n] and sums [n, dim]; their number to *num_unique, on the device.
GpuStatus SumDuplicateRows(const int64_t* ids, const float* grads, int64_t n,
                           int64_t bound, int64_t dim, int64_t* unique_ids,
                           float* sums, int64_t* num_unique, Scratch* scratch,
                           GpuStream stream);

// A step: the clock moves on, last_step[ids[i]] is what it says then, for ids
// in [0, num_rows).
GpuStatus RecordStep(const RowScalars& scalars, const int64_t* ids, int64_t n,
                     int64_t num_rows, const GpuHistory& history,
                     GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_UPDATE_CU_H_
