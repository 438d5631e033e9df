// Cross-entropy of features and class rows that never writes the logits.
//
// Blocks own a tile of one side (examples or classes) and stream the other side
// through shared memory; a tile of logits lives in registers until it has been
// folded into (max, sum) or multiplied on. The idea is of Cut Cross-Entropy
// (Wijmans et al., 2024); here every sum has one owner and a fixed order, so
// that results are the same each time.
//
// Work: 5 products of 2 * batch * num_classes * dim operations: one forward,
// two (the logits again, and the gradient) for each of the two gradients. For
// dim > 128 each 128 columns of a gradient compute the logits again: forward 1,
// backward 2 + 2 * ceil(dim / 128). At 1M classes, batch 4,096, dim 128: 5.2
// TFLOP, and 3 * 4.1e9 exponentials, of which an H200 does 3.6e12 a second.
//
// Traffic, bf16 rows: tiles are of 256 rows x 64 columns. The class rows are
// read once for each 256 examples, forward and again backward, and the features
// once for each 256 classes; blocks that run side by side read the same rows at
// about the same time, so that most of it comes from the L2 cache: at the size
// above 4.1 GB each time, 12.3 GB in all, against 0.8 GB from memory and 0.5 GB
// of gradient written. At 5 TB/s from L2 that is 2.5 ms; the products take
// 5.2 ms at 1,000 TFLOP/s, and 8 to 13 ms at the 400 to 650 that mma.sync is
// said to reach. Not measured yet. Float32 rows: tiles of 64 x 64, so that rows
// twice as long are read four times as often; products in plain float32.
//
// Scratch: the features once more, 16 bytes for an example and range of
// classes, and the ranges' partial gradients of the features. There are as many
// ranges as fill the device: their partial gradients are no more than 264 tiles
// of 256 x 128 floats (35 MB); one range, with none, where the batch alone
// fills it.
//
// What sm_90 could gain: wgmma, which reads both tiles from shared memory, for
// mma.sync; the copy engine (TMA), which would free the warps from addresses.
#ifndef TFXCLASS_KERNELS_LINEAR_CROSS_ENTROPY_CU_H_
#define TFXCLASS_KERNELS_LINEAR_CROSS_ENTROPY_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

struct LinearClasses {
  int64_t batch = 0, num_classes = 0, dim = 0;
  const float* features = nullptr;      // [batch, dim]
  const float* rows = nullptr;          // [num_classes, dim]
  const uint16_t* bf16_rows = nullptr;  // instead of rows
  const float* bias = nullptr;          // [num_classes], or null
  // [batch]. -1 leaves an example out: its loss, logsumexp and gradient are 0.
  // Past the last class: the loss is NaN.
  const int64_t* labels = nullptr;
};

// loss[i] = logsumexp[i] - logit of the label; [batch]. With bf16 rows the
// features are rounded to bf16 too, and sums are float32: relative errors of
// the logits up to 2^-8, as elsewhere with bf16.
GpuStatus LinearCrossEntropy(const LinearClasses& classes, float* loss,
                             float* logsumexp, Scratch* scratch,
                             GpuStream stream);

// What the gradients are of is sum_i upstream[i] * loss[i]. features_grad
// [batch, dim]; rows_grad [num_classes, dim], and bias_grad [num_classes] with
// it; null: not wanted. With bf16 rows the gradient of each logit is rounded
// to bf16 before it is multiplied: relative error of the gradients up to 1e-2
// of their norm.
GpuStatus LinearCrossEntropyGrad(const LinearClasses& classes,
                                 const float* logsumexp, const float* upstream,
                                 float* features_grad, float* rows_grad,
                                 float* bias_grad, Scratch* scratch,
                                 GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LINEAR_CROSS_ENTROPY_CU_H_
