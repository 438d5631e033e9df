// CPU kernels of the exact softmax in two passes over the class rows.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/amx_products.h"
#include "core/exact_softmax.h"
#include "core/tile_dispatch.h"
#include "kernels/exact_softmax_op.h"
#include "kernels/kernel_utils.h"
#include "kernels/lazy_rows_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// T is how TensorFlow names the numbers that are stored here.
template <class T, class Stored>
const Stored* StoredData(const Tensor& kernel) {
  return reinterpret_cast<const Stored*>(kernel.flat<T>().data());
}

// `is_narrow` asks for products of numbers rounded to bfloat16, which are made
// where the processor is faster with them.
std::unique_ptr<QueryPanels> MakePanels(const SoftmaxInputs& in,
                                        bool has_gradient_side,
                                        bool is_narrow) {
#ifdef TFXCLASS_HAS_AMX_PRODUCTS
  if (is_narrow && !IsLimitedToAvx2() && HasAmx()) {
    return std::make_unique<AmxPanels>(in.queries, in.batch, in.dim,
                                       has_gradient_side);
  }
#endif
  return std::make_unique<FloatPanels>(BestTiles(), in.queries, in.batch,
                                       in.dim, has_gradient_side);
}

// Into bias_grads [classes], where there are biases.
template <class Stored>
void CopyBiasGrads(const ChunkGradients<Stored>& found, float* bias_grads) {
  if (found.bias_grads() == nullptr) return;
  std::copy_n(found.bias_grads(), found.count(), bias_grads + found.first());
}

template <class T, class Stored>
class ExactSoftmaxOp : public OpKernel {
 public:
  explicit ExactSoftmaxOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("wants_rows", &wants_rows_));
    OP_REQUIRES_OK(c, c->GetAttr("kept_bytes", &kept_bytes_));
    OP_REQUIRES_OK(c, c->GetAttr("bfloat16_products", &is_narrow_));
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(c, CheckEpsilon("epsilon", epsilon_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& kernel = c->input(1);
    SoftmaxInputs in;
    OP_REQUIRES_OK(c,
                   ReadSoftmaxInputs(c, kernel.shape(), "deltas", false, &in));
    Tensor *top, *total, *rows, *exponentials, *shifts;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {in.batch}, &top));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {in.batch}, &total));
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 2, {wants_rows_ ? in.batch : 0, in.dim}, &rows));
    const auto [of_panels, of_shifts] = KeptSizes(in.batch, kernel.shape());
    const bool keeps = of_panels <= kept_bytes_ / int64_t{sizeof(float)};
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 3, {keeps ? of_panels : 0}, &exponentials));
    OP_REQUIRES_OK(c, AllocateOutput(c, 4, {keeps ? of_shifts : 0}, &shifts));
    Exponentials<float> kept;
    if (keeps) {
      kept = {exponentials->flat<float>().data(), shifts->flat<float>().data()};
    }
    const int64_t num_classes = kernel.dim_size(0);
    const ClassMatrix<Stored> matrix =
        in.Matrix(StoredData<T, Stored>(kernel), num_classes, epsilon_);
    const std::vector<SoftmaxSums> sums =
        ForwardSoftmax(BestTiles(), matrix, *MakePanels(in, false, is_narrow_),
                       in.Targets(num_classes), wants_rows_, PoolOf(c), kept);
    float* const out = rows->flat<float>().data();
    for (int64_t b = 0; b < in.batch; ++b) {
      constexpr int64_t kGroup = kGroupPanels * kPanel;
      const SoftmaxSums& of_group = sums[b / kGroup];
      const int64_t place = b % kGroup;
      top->flat<float>()(b) = of_group.top[place];
      total->flat<double>()(b) = of_group.sum[place];
      if (!wants_rows_) continue;
      const float* const from = of_group.rows.data() +
                                place / kPanel * in.dim * kPanel +
                                place % kPanel;
      for (int64_t d = 0; d < in.dim; ++d) {
        out[b * in.dim + d] = from[d * kPanel];
      }
    }
  }

 private:
  bool wants_rows_, is_narrow_;
  int64_t kept_bytes_;
  float epsilon_;
};

template <class T, class Stored>
class ExactSoftmaxGradOp : public OpKernel {
 public:
  explicit ExactSoftmaxGradOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("uniform", &uniform_));
    OP_REQUIRES_OK(c, c->GetAttr("bfloat16_products", &is_narrow_));
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(c, CheckEpsilon("epsilon", epsilon_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& kernel = c->input(1);
    SoftmaxInputs in;
    OP_REQUIRES_OK(
        c, ReadSoftmaxInputs(c, kernel.shape(), "target_grads", true, &in));
    const int64_t num_classes = kernel.dim_size(0);
    Tensor *kernel_grad, *bias_grad;
    OP_REQUIRES_OK(c, c->allocate_output(0, kernel.shape(), &kernel_grad));
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 1, {in.bias ? num_classes : 0}, &bias_grad));
    float* const out = kernel_grad->flat<float>().data();
    float* const bias_out = bias_grad->flat<float>().data();
    const auto take = [=](const ChunkGradients<Stored>& found) {
      for (int64_t i = 0; i < found.count(); ++i) {
        std::copy_n(found.grads() + i * found.stride(), in.dim,
                    out + (found.first() + i) * in.dim);
      }
      CopyBiasGrads(found, bias_out);
    };
    BackwardSoftmax(
        BestTiles(),
        in.Matrix(StoredData<T, Stored>(kernel), num_classes, epsilon_),
        *MakePanels(in, true, is_narrow_), in.Targets(num_classes),
        in.Grads(uniform_), PoolOf(c), [=] { return take; }, in.kept);
  }

 private:
  bool is_narrow_;
  float uniform_, epsilon_;
};

// One step of a rule for all rows of a matrix, whose gradient is handed over
// chunk by chunk.
template <class Inputs, class Stored>
class ClassUpdateOp : public LazyRowsOp<Inputs, Stored, float> {
 public:
  explicit ClassUpdateOp(OpKernelConstruction* c)
      : LazyRowsOp<Inputs, Stored, float>(c) {
    OP_REQUIRES_OK(c, c->GetAttr("uniform", &uniform_));
    OP_REQUIRES_OK(c, c->GetAttr("bfloat16_products", &is_narrow_));
    OP_REQUIRES_OK(c, c->GetAttr("epsilon_of_norm", &epsilon_));
    OP_REQUIRES_OK(c, CheckEpsilon("epsilon_of_norm", epsilon_));
  }

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    RuleNumbers of_step;
    int64_t step;
    SoftmaxInputs in;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    OP_REQUIRES_OK(c, this->ReadNumbers(c, &of_step));
    const auto no_ids = [](const Tensor&, int64_t) { return absl::OkStatus(); };
    const auto read_inputs = [&](const tensorflow::TensorShape& kernel) {
      return ReadSoftmaxInputs(c, kernel, "target_grads", true, &in);
    };
    OP_REQUIRES_OK(c, this->Open(c, nullptr, no_ids, read_inputs, CopyBytes,
                                 &variables, &rows));
    Tensor* bias_grad;
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 0, {in.bias ? rows.num_rows : 0}, &bias_grad));
    this->WithRule(rows, of_step, step,
                   [&](const auto& rule, const auto& slotted) {
                     Step(c, in, rows.num_rows, rule, slotted,
                          bias_grad->flat<float>().data());
                   });
  }

 private:
  template <class Element, class Rows>
  void Step(OpKernelContext* c, const SoftmaxInputs& in, int64_t num_classes,
            const Element& rule, const Rows& slotted, float* bias_out) const {
    const auto make_take = [&] {
      return [&, element = rule, buffers = RowBuffers<Rows>(in.dim)](
                 const ChunkGradients<Stored>& found) mutable {
        for (int64_t i = 0; i < found.count(); ++i) {
          StepRow(element, slotted, found.first() + i,
                  found.grads() + i * found.stride(), &buffers);
        }
        CopyBiasGrads(found, bias_out);
      };
    };
    const Stored* const kernel = slotted.var;
    BackwardSoftmax(BestTiles(), in.Matrix(kernel, num_classes, epsilon_),
                    *MakePanels(in, true, is_narrow_), in.Targets(num_classes),
                    in.Grads(uniform_), PoolOf(c), make_take, in.kept);
  }

  bool is_narrow_;
  float uniform_, epsilon_;
};

#define TFXCLASS_CPU_OF(name, T, ...)                   \
  TFXCLASS_REGISTER(Name("Tfxclass>" name)              \
                        .Device(tensorflow::DEVICE_CPU) \
                        .TypeConstraint<T>("T"),        \
                    __VA_ARGS__)
#define TFXCLASS_CPU_UPDATE(name, T, ...)               \
  TFXCLASS_REGISTER(Name("Tfxclass>" name)              \
                        .Device(tensorflow::DEVICE_CPU) \
                        .TypeConstraint<T>("T")         \
                        .TypeConstraint<float>("S"),    \
                    __VA_ARGS__)
#define TFXCLASS_CPU_ROWS(T, Stored)                                          \
  TFXCLASS_CPU_OF("ExactSoftmax", T, ExactSoftmaxOp<T, Stored>);              \
  TFXCLASS_CPU_OF("ExactSoftmaxGrad", T, ExactSoftmaxGradOp<T, Stored>);      \
  TFXCLASS_CPU_UPDATE("ClassSgdUpdate", T, ClassUpdateOp<SgdInputs, Stored>); \
  TFXCLASS_CPU_UPDATE("ClassAdagradUpdate", T,                                \
                      ClassUpdateOp<AdagradInputs, Stored>);                  \
  TFXCLASS_CPU_UPDATE("ClassAdamUpdate", T, ClassUpdateOp<AdamInputs, Stored>)
TFXCLASS_CPU_ROWS(float, float);
TFXCLASS_CPU_ROWS(Eigen::bfloat16, Bf16);
#undef TFXCLASS_CPU_ROWS
#undef TFXCLASS_CPU_UPDATE
#undef TFXCLASS_CPU_OF

}  // namespace
}  // namespace tfxclass
