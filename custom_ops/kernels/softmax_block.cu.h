// Passes over a block of logits, as core/softmax_block.h, on the device.
//
// Matrices are float32, by rows. logits [batch, block]: its first column is
// class `offset`. All is deterministic. O(batch * block) time, each logit read
// once.
#ifndef TFXCLASS_KERNELS_SOFTMAX_BLOCK_CU_H_
#define TFXCLASS_KERNELS_SOFTMAX_BLOCK_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// Classes of each row, [batch, width], none twice in a row; those outside the
// block (-1: none) do nothing. And a number for each.
struct GpuTargets {
  const int64_t* ids = nullptr;
  const float* values = nullptr;
  int64_t width = 0;
};

// Folds the logits into (running_max, running_sum) [batch], where sum = sum_c
// exp(logit_c - max), those of the targets raised by their values first. The
// results may lie where the running ones do.
GpuStatus SoftmaxBlockStats(const float* logits, int64_t batch, int64_t block,
                            int64_t offset, const GpuTargets& delta,
                            const float* running_max, const double* running_sum,
                            float* max, double* sum, GpuStream stream);

// grad[i][c] = upstream[i] * exp(logits[i][c] - logsumexp[i]); at the targets
// their values. A float32 grad may be logits; the other one is bfloat16,
// rounded to nearest.
GpuStatus SoftmaxBlockGrad(const float* logits, int64_t batch, int64_t block,
                           int64_t offset, const GpuTargets& target_grad,
                           const float* logsumexp, const float* upstream,
                           float* grad, GpuStream stream);
GpuStatus SoftmaxBlockGrad(const float* logits, int64_t batch, int64_t block,
                           int64_t offset, const GpuTargets& target_grad,
                           const float* logsumexp, const float* upstream,
                           uint16_t* bf16_grad, GpuStream stream);

// Merges the logits into the k best of each row so far, (scores, ids)
// [batch, k], sorted by (score falling, id rising), where id -1 is none, with
// score -infinity. NaN never enters. Results lie elsewhere. Where few logits
// enter it costs one pass; sorting what enters costs more with k (made for
// k <= 128). Above 4,096 there is a pass for each 4,096, and scratch of
// 8 * batch * k bytes. block < 2^31.
GpuStatus TopKBlock(const float* logits, int64_t batch, int64_t block,
                    int64_t offset, int64_t k, const float* scores,
                    const int64_t* ids, float* new_scores, int64_t* new_ids,
                    Scratch* scratch, GpuStream stream);

// result = buffer [num_rows, width] with `count` rows from row `start` on
// replaced by `rows`. result may be buffer.
GpuStatus WriteRows(const float* buffer, int64_t num_rows, int64_t width,
                    const float* rows, int64_t count, int64_t start,
                    float* result, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_SOFTMAX_BLOCK_CU_H_
