// The optimizers' steps on touched rows, on the GPU.
//
// Nothing waits for the host but SumDuplicateRows, whose output is as long as
// the device says. Ids out of range are left out: to name them would mean to
// wait.
#include <limits>

#include "kernels/gpu_op.h"
#include "kernels/row_inputs.h"
#include "kernels/row_op.h"
#include "kernels/row_update.cu.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The device's address of the scalar input `name`.
template <class T>
absl::Status ScalarAt(OpKernelContext* c, const char* name, const T** at) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(c->input(name, &tensor));
  TF_RETURN_IF_ERROR(CheckRank(name, *tensor, 0));
  *at = tensor->flat<T>().data();
  return absl::OkStatus();
}

absl::Status NoCheck(const Tensor&, int64_t) { return absl::OkStatus(); }

template <class Inputs, RowType kType>
class GpuUpdateOp : public RowOp {
 public:
  explicit GpuUpdateOp(OpKernelConstruction* c)
      : RowOp(c, Inputs::kLeastSlots, Inputs::kMostSlots, Inputs::kMoments) {
    options_.rule = Inputs::kRule;
    OP_REQUIRES_OK(c, ReadOptions(c, &options_));
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    RowScalars scalars;
    const int64_t* step;
    OP_REQUIRES_OK(c, ScalarAt(c, "step", &step));
    OP_REQUIRES_OK(c, ScalarAt(c, Inputs::kRate, &scalars.learning_rate));
    OP_REQUIRES_OK(c, ScalarAt(c, "decay", &scalars.decay));
    if (Inputs::kRule == RowRule::kAdagrad) {
      OP_REQUIRES_OK(c, ScalarAt(c, "offset", &scalars.offset));
    }
    if (Inputs::kRule == RowRule::kAdam) {
      OP_REQUIRES_OK(c, ScalarAt(c, "beta_1", &scalars.beta_1));
      OP_REQUIRES_OK(c, ScalarAt(c, "beta_2", &scalars.beta_2));
    }
    RowVariables variables;
    RowMatrices matrices;
    const auto copy = [c](void* to, const void* from, size_t bytes) {
      return ToStatus(CopyInDevice(to, from, bytes, StreamOf(c)));
    };
    OP_REQUIRES_OK(
        c, Open(c, grads, NoCheck, AnyShape, copy, &variables, &matrices));
    GpuRows rows;
    rows.num_rows = matrices.num_rows;
    rows.dim = matrices.dim;
    rows.type = kType;
    rows.rows = matrices.matrices[0];
    for (int s = 0; s < 3; ++s) rows.slots[s] = matrices.matrices[s + 1];
    rows.has_row_moments = has_row_moments();
    rows.has_bf16_moments = has_bfloat16_moments();
    rows.seed = static_cast<uint64_t>(seed_);
    rows.step = step;
    const Tensor& ids = Ids(c);
    OpScratch scratch(c);
    OP_REQUIRES_OK(
        c, ToStatus(UpdateRows(options_, scalars, rows,
                               ids.flat<int64_t>().data(), grads->data(),
                               ids.NumElements(), &scratch, StreamOf(c))));
  }

 private:
  RowRuleOptions options_;
  int64_t seed_ = 0;
};

class GpuSumDuplicateRowsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    const Tensor &ids = c->input(0), &grads = c->input(1);
    OP_REQUIRES_OK(c, CheckRank("ids", ids, 1));
    const int64_t n = ids.NumElements();
    OP_REQUIRES_OK(c, CheckGradRows(grads, n));
    const int64_t dim = n ? grads.NumElements() / n : 0;
    OpScratch scratch(c);
    int64_t* const unique = scratch.Get<int64_t>(n);
    float* const sums = scratch.Get<float>(grads.NumElements());
    int64_t* const count = scratch.Get<int64_t>(1);
    OP_REQUIRES(c, unique != nullptr && sums != nullptr && count != nullptr,
                ToStatus(kNoScratch));
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    OP_REQUIRES_OK(
        c, ToStatus(SumDuplicateRows(
               ids.flat<int64_t>().data(), grads.flat<float>().data(), n, kMost,
               dim, unique, sums, count, &scratch, StreamOf(c))));
    int64_t num_unique;
    OP_REQUIRES_OK(c, ReadFromDevice(c, count, 1, &num_unique));
    tensorflow::TensorShape shape = grads.shape();
    shape.set_dim(0, num_unique);
    Tensor *ids_out, *sums_out;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {num_unique}, &ids_out));
    OP_REQUIRES_OK(c, c->allocate_output(1, shape, &sums_out));
    OP_REQUIRES_OK(
        c, ToStatus(CopyInDevice(ids_out->data(), unique, ids_out->TotalBytes(),
                                 StreamOf(c))));
    OP_REQUIRES_OK(
        c, ToStatus(CopyInDevice(sums_out->data(), sums, sums_out->TotalBytes(),
                                 StreamOf(c))));
  }
};

// float64 is the host's: its rules would need kernels of their own.
#define TFXCLASS_GPU_OP(name, T, S, ...)        \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(name)     \
                        .TypeConstraint<T>("T") \
                        .TypeConstraint<S>("S") \
                        .HostMemory("variable") \
                        .HostMemory("slots"),   \
                    __VA_ARGS__)
#define TFXCLASS_GPU_ROWS(T, S, kType)                                   \
  TFXCLASS_GPU_OP("LazySgdUpdate", T, S, GpuUpdateOp<SgdInputs, kType>); \
  TFXCLASS_GPU_OP("LazyAdagradUpdate", T, S,                             \
                  GpuUpdateOp<AdagradInputs, kType>);                    \
  TFXCLASS_GPU_OP("LazyAdamUpdate", T, S, GpuUpdateOp<AdamInputs, kType>)
TFXCLASS_GPU_ROWS(float, float, RowType::kFloat);
TFXCLASS_GPU_ROWS(Eigen::bfloat16, float, RowType::kRandomBf16);
TFXCLASS_GPU_ROWS(Eigen::bfloat16, Eigen::bfloat16, RowType::kBf16);
TFXCLASS_GPU_ROWS(Eigen::half, Eigen::half, RowType::kHalf);
#undef TFXCLASS_GPU_ROWS
#undef TFXCLASS_GPU_OP
TFXCLASS_REGISTER(
    TFXCLASS_GPU_NAME("SumDuplicateRows").TypeConstraint<float>("T"),
    GpuSumDuplicateRowsOp);

}  // namespace
}  // namespace tfxclass
