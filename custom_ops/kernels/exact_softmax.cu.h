// The softmax over all classes of bfloat16 rows, as core/exact_softmax.h, in
// passes that never write the logits.
//
// Blocks own a tile of one side (examples or classes) and stream the other side
// through shared memory; a tile of logits lives in registers until it has been
// folded into (max, sum) or multiplied on. The idea is of Cut Cross-Entropy
// (Wijmans et al., 2024); here every sum has one owner and a fixed order, so
// that results are the same each time.
//
// Work: 5 products of 2 * batch * num_classes * dim operations: one for the
// sums, two (the logits again, and what they weigh) for the sum of rows and for
// the gradient. For dim > 128 each 128 columns of an output compute the logits
// again: 1 + 2 * (1 + ceil(dim / 128)). At 1M classes, batch 4,096, dim 128:
// 5.2 TFLOP, and 3 * 4.1e9 exponentials, of which an H200 does 3.6e12 a second.
//
// Traffic: tiles are of 256 rows x 64 columns. The class rows are read once for
// each 256 examples in each pass, and the features once for each 256 classes;
// blocks that run side by side read the same rows at about the same time, so
// that most of it comes from the L2 cache: at the size above 4.1 GB each time,
// 12.3 GB in all, against 0.8 GB from memory and 0.5 GB of gradient written. At
// 5 TB/s from L2 that is 2.5 ms; the products take 5.2 ms at 1,000 TFLOP/s, and
// 8 to 13 ms at the 400 to 650 that mma.sync is said to reach. Not measured
// yet. (There is none for float32 rows: plain float32 has a tenth of the rate
// of the tensor cores that TensorFlow's products use, so blocks of logits,
// kernels/softmax_block.cu.h, are the faster way.)
//
// Scratch: the queries once more, 16 bytes for an example and range of classes,
// 28 bytes a target and a sort of them, 4 bytes a class with norms, and the
// ranges' partial sums of rows. There are as many ranges as fill the device:
// their sums are no more than 264 tiles of 256 x 128 floats (35 MB); one range,
// with none, where the batch alone fills it.
//
// What sm_90 could gain: wgmma, which reads both tiles from shared memory, for
// mma.sync; the copy engine (TMA), which would free the warps from addresses.
#ifndef TFXCLASS_KERNELS_EXACT_SOFTMAX_CU_H_
#define TFXCLASS_KERNELS_EXACT_SOFTMAX_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// The logit of class c is queries . rows[c] + bias[c]. Queries are rounded to
// bfloat16; sums are float32.
struct SoftmaxClasses {
  int64_t batch = 0, num_classes = 0, dim = 0;
  const float* queries = nullptr;  // [batch, dim]
  const uint16_t* rows = nullptr;  // bfloat16 [num_classes, dim]
  const float* bias = nullptr;     // [num_classes], or null
  // > 0: rows are divided by their norms, at least its root.
  float epsilon = 0;
  // [batch, width], none twice in a row; those that are no class count nothing.
  // And a number for each. batch * width < 2^31.
  const int64_t* targets = nullptr;
  const float* values = nullptr;
  int64_t width = 0;
};

// The logits of targets are raised by their values; then total = sum_c
// exp(logit_c - top) and, unless null, rows [batch, dim] = the sum of
// exp(logit_c - top) times the row over all classes but the targets: the
// weights are rounded to bfloat16.
GpuStatus ExactSoftmax(const SoftmaxClasses& classes, float* top, double* total,
                       float* rows, Scratch* scratch, GpuStream stream);

// Of the gradients factor * (exp(logit - logsumexp) - uniform) of the logits,
// at targets their values - factor * uniform, rounded to bfloat16: rows_grad
// [num_classes, dim] and, unless null, bias_grad [num_classes].
GpuStatus ExactSoftmaxGrad(const SoftmaxClasses& classes,
                           const float* logsumexp, const float* factor,
                           float uniform, float* rows_grad, float* bias_grad,
                           Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_EXACT_SOFTMAX_CU_H_
