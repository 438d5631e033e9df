// The exact softmax of bfloat16 rows on the GPU. Nothing waits.
#include "kernels/exact_softmax.cu.h"
#include "kernels/exact_softmax_op.h"
#include "kernels/gpu_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// An op with rows of bfloat16, its second input.
class GpuSoftmaxOp : public OpKernel {
 public:
  explicit GpuSoftmaxOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(c, CheckEpsilon("epsilon", epsilon_));
  }

 protected:
  // `values` names the numbers of the targets.
  absl::Status Read(OpKernelContext* c, const char* values, bool has_grads,
                    SoftmaxInputs* in, SoftmaxClasses* classes) const {
    const Tensor& kernel = c->input(1);
    TF_RETURN_IF_ERROR(
        ReadSoftmaxInputs(c, kernel.shape(), values, has_grads, in));
    const int64_t targets = in->batch * in->width;
    if (targets > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(
          "On a GPU `targets` must be less than 2^31. Received: ", targets));
    }
    classes->batch = in->batch;
    classes->num_classes = kernel.dim_size(0);
    classes->dim = in->dim;
    classes->queries = in->queries;
    classes->rows = static_cast<const uint16_t*>(kernel.data());
    classes->bias = in->bias;
    classes->epsilon = epsilon_;
    classes->targets = in->targets;
    classes->values = in->target_values;
    classes->width = in->width;
    return absl::OkStatus();
  }

 private:
  float epsilon_;
};

class GpuExactSoftmaxOp : public GpuSoftmaxOp {
 public:
  explicit GpuExactSoftmaxOp(OpKernelConstruction* c) : GpuSoftmaxOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("wants_rows", &wants_rows_));
  }

  void Compute(OpKernelContext* c) override {
    SoftmaxInputs in;
    SoftmaxClasses classes;
    OP_REQUIRES_OK(c, Read(c, "deltas", false, &in, &classes));
    Tensor *top, *total, *rows;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {in.batch}, &top));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {in.batch}, &total));
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 2, {wants_rows_ ? in.batch : 0, in.dim}, &rows));
    OpScratch scratch(c);
    OP_REQUIRES_OK(
        c, ToStatus(ExactSoftmax(
               classes, top->flat<float>().data(), total->flat<double>().data(),
               wants_rows_ ? rows->flat<float>().data() : nullptr, &scratch,
               StreamOf(c))));
  }

 private:
  bool wants_rows_;
};

class GpuExactSoftmaxGradOp : public GpuSoftmaxOp {
 public:
  explicit GpuExactSoftmaxGradOp(OpKernelConstruction* c) : GpuSoftmaxOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("uniform", &uniform_));
  }

  void Compute(OpKernelContext* c) override {
    SoftmaxInputs in;
    SoftmaxClasses classes;
    OP_REQUIRES_OK(c, Read(c, "target_grads", true, &in, &classes));
    Tensor *kernel_grad, *bias_grad;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(1).shape(), &kernel_grad));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {in.bias ? classes.num_classes : 0},
                                     &bias_grad));
    OpScratch scratch(c);
    OP_REQUIRES_OK(c, ToStatus(ExactSoftmaxGrad(
                          classes, in.logsumexp, in.factor, uniform_,
                          kernel_grad->flat<float>().data(),
                          in.bias ? bias_grad->flat<float>().data() : nullptr,
                          &scratch, StreamOf(c))));
  }

 private:
  float uniform_;
};

TFXCLASS_REGISTER(
    TFXCLASS_GPU_NAME("ExactSoftmax").TypeConstraint<Eigen::bfloat16>("T"),
    GpuExactSoftmaxOp);
TFXCLASS_REGISTER(
    TFXCLASS_GPU_NAME("ExactSoftmaxGrad").TypeConstraint<Eigen::bfloat16>("T"),
    GpuExactSoftmaxGradOp);

}  // namespace
}  // namespace tfxclass
