// CPU kernel of the threshold of a sparsemax.
#include "core/sparsemax.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class SparsemaxThresholdOp : public OpKernel {
 public:
  explicit SparsemaxThresholdOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    OP_REQUIRES_OK(c, CheckRank("logits", logits, 2));
    const int64_t batch = logits.dim_size(0), count = logits.dim_size(1);
    OP_REQUIRES(c, count > 0,
                absl::InvalidArgumentError(
                    absl::StrCat("`logits` must have a class. Received: shape ",
                                 ShapeText(logits.shape()))));
    Tensor *top, *tau, *sum_squares;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch}, &top));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {batch}, &tau));
    OP_REQUIRES_OK(c, AllocateOutput(c, 2, {batch}, &sum_squares));
    const float* x = logits.flat<float>().data();
    float* tops = top->flat<float>().data();
    float* taus = tau->flat<float>().data();
    float* squares = sum_squares->flat<float>().data();
    PoolOf(c)(batch, count / 4 + 100, [=](int64_t begin, int64_t end) {
      SparsemaxScratch scratch;
      for (int64_t i = begin; i < end; ++i) {
        const SparsemaxThreshold found =
            FindSparsemaxThreshold(x + i * count, count, &scratch);
        tops[i] = found.top;
        taus[i] = found.tau;
        squares[i] = found.sum_squares;
      }
    });
  }
};

TFXCLASS_CPU("SparsemaxThreshold", SparsemaxThresholdOp);

}  // namespace
}  // namespace tfxclass
