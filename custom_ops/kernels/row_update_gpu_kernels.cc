// The optimizers' steps on touched rows, on the GPU.
//
// Nothing waits for the host but SumDuplicateRows, whose output is as long as
// the device says. Ids out of range are left out: to name them would mean to
// wait.
#include <limits>
#include <type_traits>

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

// What both ops do: Launch puts their work on the stream. Rows of T.
template <class Inputs, class T>
class GpuLazyRowsOp : public RowOp {
 public:
  GpuLazyRowsOp(OpKernelConstruction* c, bool needs_history)
      : RowOp(c, Inputs::kLeastSlots, Inputs::kMostSlots, Inputs::kMoments,
              Inputs::kHasRates, needs_history) {
    options_.rule = Inputs::kRule;
    OP_REQUIRES_OK(c, ReadOptions(c, &options_));
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed_));
  }

 protected:
  // With the variables locked and writable, launch(scalars, rows, history).
  // `step` is on the device; null where rows catch up.
  template <class Run>
  absl::Status Compute(OpKernelContext* c, const Tensor* grads,
                       const int64_t* step, RowScalars scalars,
                       const Run& launch) const {
    if (Inputs::kRule == RowRule::kAdam) {
      TF_RETURN_IF_ERROR(ScalarAt(c, "beta_1", &scalars.beta_1));
      TF_RETURN_IF_ERROR(ScalarAt(c, "beta_2", &scalars.beta_2));
    }
    RowVariables variables;
    RowMatrices matrices;
    const auto copy = [c](void* to, const void* from, size_t bytes) {
      return ToStatus(CopyInDevice(to, from, bytes, StreamOf(c)));
    };
    // The clock is on the device.
    const auto look = [](RowVariables*, bool*) { return absl::OkStatus(); };
    TF_RETURN_IF_ERROR(
        Open(c, grads, NoCheck, look, copy, &variables, &matrices));
    GpuRows rows;
    rows.num_rows = matrices.num_rows;
    rows.dim = matrices.dim;
    if (std::is_same_v<T, float>) {
      rows.rows = matrices.matrix<float>(0);
    } else {
      rows.bf16_rows = matrices.matrix<uint16_t>(0);
    }
    for (int s = 0; s < 3; ++s) rows.slots[s] = matrices.matrices[s + 1];
    rows.is_compact = is_compact();
    rows.seed = static_cast<uint64_t>(seed_);
    rows.step = step;
    return ToStatus(
        launch(scalars, rows,
               GpuHistory{matrices.last_step, matrices.clock, matrices.rates,
                          matrices.log_keeps, capacity()}));
  }

  RowRuleOptions options_;

 private:
  int64_t seed_ = 0;
};

template <class Inputs, class T>
class GpuUpdateOp : public GpuLazyRowsOp<Inputs, T> {
 public:
  explicit GpuUpdateOp(OpKernelConstruction* c)
      : GpuLazyRowsOp<Inputs, T>(c, false) {}

  void Compute(OpKernelContext* c) override {
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    RowScalars of_step;
    const int64_t* step;
    OP_REQUIRES_OK(c, ScalarAt(c, "step", &step));
    OP_REQUIRES_OK(c, ScalarAt(c, Inputs::kRate, &of_step.learning_rate));
    OP_REQUIRES_OK(c, ScalarAt(c, "decay", &of_step.decay));
    const Tensor& ids = this->Ids(c);
    const int64_t* of_rows = ids.flat<int64_t>().data();
    const int64_t n = ids.NumElements();
    const auto launch = [&](const RowScalars& scalars, const GpuRows& rows,
                            const GpuHistory& history) {
      OpScratch scratch(c);
      TFXCLASS_RETURN_IF_GPU_ERROR(
          UpdateRows(this->options_, scalars, rows, of_rows,
                     grads->flat<float>().data(), n, &scratch, StreamOf(c)));
      if (history.clock == nullptr) return GpuStatus(nullptr);
      return RecordStep(scalars, of_rows, n, rows.num_rows, history,
                        StreamOf(c));
    };
    OP_REQUIRES_OK(
        c, GpuLazyRowsOp<Inputs, T>::Compute(c, grads, step, of_step, launch));
  }
};

template <class Inputs, class T>
class GpuCatchUpOp : public GpuLazyRowsOp<Inputs, T> {
 public:
  explicit GpuCatchUpOp(OpKernelConstruction* c)
      : GpuLazyRowsOp<Inputs, T>(c, true) {
    OP_REQUIRES_OK(c, c->GetAttr("every_row", &every_row_));
    if (c->HasAttr("each_element")) {
      OP_REQUIRES_OK(c, c->GetAttr("each_element", &each_element_));
    }
  }

  void Compute(OpKernelContext* c) override {
    SkipTerms terms;
    terms.each_element = each_element_;
    if (Inputs::kHasTerms) {
      const int64_t least = each_element_ ? 2 : 1;
      OP_REQUIRES_OK(
          c, ReadTerms(c, least, each_element_ ? 2 : kMostSkipTerms, &terms));
    }
    const Tensor& ids = this->Ids(c);
    const auto launch = [&](const RowScalars& scalars, const GpuRows& rows,
                            const GpuHistory& history) {
      OpScratch scratch(c);
      return CatchUpRows(this->options_, scalars, rows,
                         ids.flat<int64_t>().data(), ids.NumElements(),
                         every_row_, history, terms, &scratch, StreamOf(c));
    };
    OP_REQUIRES_OK(c, GpuLazyRowsOp<Inputs, T>::Compute(c, nullptr, nullptr,
                                                        RowScalars(), launch));
  }

 private:
  bool every_row_, each_element_ = false;
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

#define TFXCLASS_GPU_OP(name, T, ...)               \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(name)         \
                        .TypeConstraint<T>("T")     \
                        .TypeConstraint<float>("S") \
                        .HostMemory("variable")     \
                        .HostMemory("slots")        \
                        .HostMemory("history"),     \
                    __VA_ARGS__)
#define TFXCLASS_GPU_RULE(name, Inputs, T)                   \
  TFXCLASS_GPU_OP(name "Update", T, GpuUpdateOp<Inputs, T>); \
  TFXCLASS_GPU_OP(name "CatchUp", T, GpuCatchUpOp<Inputs, T>)
#define TFXCLASS_GPU_ROWS(T)                          \
  TFXCLASS_GPU_RULE("LazySgd", SgdInputs, T);         \
  TFXCLASS_GPU_RULE("LazyAdagrad", AdagradInputs, T); \
  TFXCLASS_GPU_RULE("LazyAdam", AdamInputs, T)
TFXCLASS_GPU_ROWS(float);
TFXCLASS_GPU_ROWS(Eigen::bfloat16);
#undef TFXCLASS_GPU_ROWS
#undef TFXCLASS_GPU_RULE
#undef TFXCLASS_GPU_OP
TFXCLASS_REGISTER(
    TFXCLASS_GPU_NAME("SumDuplicateRows").TypeConstraint<float>("T"),
    GpuSumDuplicateRowsOp);

}  // namespace
}  // namespace tfxclass
