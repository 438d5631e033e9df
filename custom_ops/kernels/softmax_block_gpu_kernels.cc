// The streaming passes over blocks of logits on the GPU. Nothing waits.
#include <cstdint>
#include <type_traits>

#include "kernels/gpu_op.h"
#include "kernels/softmax_block.cu.h"
#include "kernels/softmax_block_checks.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

const float* Floats(const Tensor& tensor) {
  return tensor.flat<float>().data();
}

// Inputs: logits, targets and a number for each, offset.
GpuTargets TargetsOf(OpKernelContext* c) {
  return {c->input(1).flat<int64_t>().data(), Floats(c->input(2)),
          c->input(1).dim_size(1)};
}

class GpuSoftmaxBlockStatsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    OP_REQUIRES_OK(c, CheckBlockInputs(c, "running_max", "running_sum"));
    const int64_t batch = logits.dim_size(0);
    Tensor *max, *sum;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch}, &max));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {batch}, &sum));
    OP_REQUIRES_OK(
        c, ToStatus(SoftmaxBlockStats(
               Floats(logits), batch, logits.dim_size(1), IndexOf(c->input(3)),
               TargetsOf(c), Floats(c->input(4)),
               c->input(5).flat<double>().data(), max->flat<float>().data(),
               sum->flat<double>().data(), StreamOf(c))));
  }
};

// T is how TensorFlow names the numbers that are stored here.
template <class T, class Stored>
class GpuSoftmaxBlockGradOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    OP_REQUIRES_OK(c, CheckBlockInputs(c, "logsumexp", "upstream"));
    const int64_t batch = logits.dim_size(0);
    Tensor* grad;
    OP_REQUIRES_OK(c, std::is_same_v<T, float>
                          ? c->forward_input_or_allocate_output(
                                {0}, 0, logits.shape(), &grad)
                          : c->allocate_output(0, logits.shape(), &grad));
    OP_REQUIRES_OK(
        c, ToStatus(SoftmaxBlockGrad(
               Floats(logits), batch, logits.dim_size(1), IndexOf(c->input(3)),
               TargetsOf(c), Floats(c->input(4)), Floats(c->input(5)),
               static_cast<Stored*>(grad->data()), StreamOf(c))));
  }
};

class GpuTopKBlockOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    const Tensor &logits = c->input(0), &scores = c->input(2);
    const Tensor& ids = c->input(3);
    OP_REQUIRES_OK(c, CheckTopK(logits, c->input(1), scores, ids));
    Tensor *new_scores, *new_ids;
    OP_REQUIRES_OK(c, c->allocate_output(0, scores.shape(), &new_scores));
    OP_REQUIRES_OK(c, c->allocate_output(1, ids.shape(), &new_ids));
    OpScratch scratch(c);
    OP_REQUIRES_OK(
        c, ToStatus(TopKBlock(
               Floats(logits), logits.dim_size(0), logits.dim_size(1),
               IndexOf(c->input(1)), scores.dim_size(1), Floats(scores),
               ids.flat<int64_t>().data(), new_scores->flat<float>().data(),
               new_ids->flat<int64_t>().data(), &scratch, StreamOf(c))));
  }
};

class GpuWriteRowsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    const Tensor &buffer = c->input(0), &rows = c->input(1);
    OP_REQUIRES_OK(c, CheckWriteRows(buffer, rows, c->input(2)));
    Tensor* result;
    OP_REQUIRES_OK(c, c->forward_input_or_allocate_output(
                          {0}, 0, buffer.shape(), &result));
    const int64_t num_rows = buffer.dim_size(0);
    const int64_t width = num_rows > 0 ? buffer.NumElements() / num_rows : 0;
    OP_REQUIRES_OK(
        c, ToStatus(WriteRows(Floats(buffer), num_rows, width, Floats(rows),
                              rows.dim_size(0), IndexOf(c->input(2)),
                              result->flat<float>().data(), StreamOf(c))));
  }
};

class GpuEmptyLikeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    Tensor* empty;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &empty));
  }
};

TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("SoftmaxBlockStats").HostMemory("offset"),
                  GpuSoftmaxBlockStatsOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("SoftmaxBlockGrad")
                      .TypeConstraint<float>("Out")
                      .HostMemory("offset"),
                  GpuSoftmaxBlockGradOp<float, float>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("SoftmaxBlockGrad")
                      .TypeConstraint<Eigen::bfloat16>("Out")
                      .HostMemory("offset"),
                  GpuSoftmaxBlockGradOp<Eigen::bfloat16, uint16_t>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("TopKBlock").HostMemory("offset"),
                  GpuTopKBlockOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("WriteRows").HostMemory("start"),
                  GpuWriteRowsOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("EmptyLike"), GpuEmptyLikeOp);

}  // namespace
}  // namespace tfxclass
