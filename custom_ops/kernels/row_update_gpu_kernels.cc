// The optimizers' steps on touched rows, on the GPU.
//
// Nothing waits for the host but SumDuplicateRows, whose output is as long as
// the device says. Ids out of range are left out: to name them would mean to
// wait.
#include <limits>

#include "kernels/gpu_op.h"
#include "kernels/row_op.h"
#include "kernels/row_update.cu.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// What an op of each rule has: its slots, attributes and scalars.
struct SgdInputs {
  static constexpr RowRule kRule = RowRule::kSgd;
  static constexpr int kLeastSlots = 0, kMostSlots = 1;
  static constexpr const char* kUpdateRate = "learning_rate";
  static constexpr const char* kCatchUpRate = nullptr;

  static absl::Status GetAttrs(OpKernelConstruction* c, RowRuleOptions* o) {
    TF_RETURN_IF_ERROR(c->GetAttr("momentum", &o->momentum));
    return c->GetAttr("nesterov", &o->nesterov);
  }
};

struct AdagradInputs {
  static constexpr RowRule kRule = RowRule::kAdagrad;
  static constexpr int kLeastSlots = 1, kMostSlots = 1;
  static constexpr const char* kUpdateRate = "learning_rate";
  static constexpr const char* kCatchUpRate = nullptr;

  static absl::Status GetAttrs(OpKernelConstruction* c, RowRuleOptions* o) {
    return c->GetAttr("epsilon", &o->epsilon);
  }
};

struct AdamInputs {
  static constexpr RowRule kRule = RowRule::kAdam;
  static constexpr int kLeastSlots = 2, kMostSlots = 3;
  static constexpr const char* kUpdateRate = "alpha";
  static constexpr const char* kCatchUpRate = "learning_rate";

  static absl::Status GetAttrs(OpKernelConstruction* c, RowRuleOptions* o) {
    return c->GetAttr("epsilon", &o->epsilon);
  }
};

// The device's address of the scalar input `name`.
template <class T>
absl::Status ScalarAt(OpKernelContext* c, const char* name, const T** at) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(c->input(name, &tensor));
  TF_RETURN_IF_ERROR(CheckRank(name, *tensor, 0));
  *at = tensor->flat<T>().data();
  return absl::OkStatus();
}

template <class Inputs, bool kIsUpdate>
class GpuLazyRowsOp : public RowOp {
 public:
  explicit GpuLazyRowsOp(OpKernelConstruction* c)
      : RowOp(c, Inputs::kLeastSlots, Inputs::kMostSlots, kIsUpdate ? 0 : 1) {
    options_.rule = Inputs::kRule;
    OP_REQUIRES_OK(c, Inputs::GetAttrs(c, &options_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor* grads = nullptr;
    if (kIsUpdate) OP_REQUIRES_OK(c, c->input("grads", &grads));
    RowScalars scalars;
    OP_REQUIRES_OK(c, GetScalars(c, &scalars));
    RowVariables variables;
    RowMatrices matrices;
    const auto any = [](const Tensor&, int64_t) { return absl::OkStatus(); };
    const auto copy = [c](void* to, const void* from, size_t bytes) {
      return ToStatus(CopyInDevice(to, from, bytes, StreamOf(c)));
    };
    OP_REQUIRES_OK(c, Open(c, grads, any, copy, &variables, &matrices));
    GpuRows rows;
    rows.num_rows = matrices.num_rows;
    rows.dim = matrices.dim;
    rows.rows = matrices.matrices[0];
    std::copy_n(matrices.matrices + 1, 3, rows.slots);
    const float* of_rows =
        kIsUpdate ? grads->template flat<float>().data() : nullptr;
    OP_REQUIRES_OK(
        c, ToStatus(Launch(c, scalars, rows, of_rows, matrices.last_step)));
  }

 private:
  static absl::Status GetScalars(OpKernelContext* c, RowScalars* scalars) {
    constexpr const char* kRate =
        kIsUpdate ? Inputs::kUpdateRate : Inputs::kCatchUpRate;
    if (kRate != nullptr) {
      TF_RETURN_IF_ERROR(ScalarAt(c, kRate, &scalars->learning_rate));
    }
    if (Inputs::kRule == RowRule::kAdam) {
      TF_RETURN_IF_ERROR(ScalarAt(c, "beta_1", &scalars->beta_1));
      TF_RETURN_IF_ERROR(ScalarAt(c, "beta_2", &scalars->beta_2));
    }
    TF_RETURN_IF_ERROR(ScalarAt(c, "decay", &scalars->decay));
    return ScalarAt(c, "step", &scalars->step);
  }

  GpuStatus Launch(OpKernelContext* c, const RowScalars& scalars,
                   const GpuRows& rows, const float* grads,
                   int64_t* last_step) const {
    OpScratch scratch(c);
    const GpuStream stream = StreamOf(c);
    const int64_t* ids = Ids(c).template flat<int64_t>().data();
    const int64_t n = Ids(c).NumElements();
    if (!kIsUpdate) {
      return CatchUpRows(options_, scalars, rows, ids, n, last_step, &scratch,
                         stream);
    }
    TFXCLASS_RETURN_IF_GPU_ERROR(
        UpdateRows(options_, scalars, rows, ids, grads, n, &scratch, stream));
    if (last_step == nullptr) return nullptr;
    return SetLastStep(ids, n, rows.num_rows, scalars.step, last_step, stream);
  }

  RowRuleOptions options_;
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
    OP_REQUIRES_OK(c, c->allocate_output(0, {num_unique}, &ids_out));
    OP_REQUIRES_OK(c, c->allocate_output(1, shape, &sums_out));
    OP_REQUIRES_OK(
        c, ToStatus(CopyInDevice(ids_out->data(), unique, ids_out->TotalBytes(),
                                 StreamOf(c))));
    OP_REQUIRES_OK(
        c, ToStatus(CopyInDevice(sums_out->data(), sums, sums_out->TotalBytes(),
                                 StreamOf(c))));
  }
};

#define TFXCLASS_GPU_ROWS(name, Inputs)                     \
  REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME(name "Update")  \
                              .HostMemory("variable")       \
                              .HostMemory("slots")          \
                              .HostMemory("last_step"),     \
                          GpuLazyRowsOp<Inputs, true>);     \
  REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME(name "CatchUp") \
                              .HostMemory("variable")       \
                              .HostMemory("slots")          \
                              .HostMemory("last_step"),     \
                          GpuLazyRowsOp<Inputs, false>)
TFXCLASS_GPU_ROWS("LazySgd", SgdInputs);
TFXCLASS_GPU_ROWS("LazyAdagrad", AdagradInputs);
TFXCLASS_GPU_ROWS("LazyAdam", AdamInputs);
#undef TFXCLASS_GPU_ROWS
REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME("SumDuplicateRows"),
                        GpuSumDuplicateRowsOp);

}  // namespace
}  // namespace tfxclass
