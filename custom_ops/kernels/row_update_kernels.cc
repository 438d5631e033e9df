// CPU kernels of the optimizers' steps on touched rows.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/row_catch_up.h"
#include "core/row_update.h"
#include "kernels/kernel_utils.h"
#include "kernels/row_op.h"
#include "kernels/row_variables.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A Reader says which Rule an op applies and within what bounds it takes slots.
// ReadUpdate and ReadCatchUp read attributes and scalars into the rule,
// SetMatrices gives it the variables' buffers.
template <class Reader>
class LazyUpdateOp : public RowOp {
 public:
  explicit LazyUpdateOp(OpKernelConstruction* c)
      : RowOp(c, Reader::kLeastSlots, Reader::kMostSlots, 0), reader_(c) {}

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    int64_t step;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    typename Reader::Rule rule;
    OP_REQUIRES_OK(c, reader_.ReadUpdate(c, &rule));
    OP_REQUIRES_OK(c, Open(c, grads, &variables, &rows));
    Reader::SetMatrices(rows, &rule);
    UpdateRows(rows.groups, grads->flat<float>().data(), rule, PoolOf(c));
    if (rows.last_step == nullptr) return;
    for (int64_t row : rows.groups.rows) rows.last_step[row] = step + 1;
  }

 private:
  Reader reader_;
};

template <class Reader>
class LazyCatchUpOp : public RowOp {
 public:
  explicit LazyCatchUpOp(OpKernelConstruction* c)
      : RowOp(c, Reader::kLeastSlots, Reader::kMostSlots, 1), reader_(c) {}

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    int64_t step;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    typename Reader::Rule rule;
    SkipRule skip_rule;
    OP_REQUIRES_OK(c, reader_.ReadCatchUp(c, &rule, &skip_rule));
    OP_REQUIRES_OK(c, Open(c, nullptr, &variables, &rows));
    Reader::SetMatrices(rows, &rule);
    CatchUpRows(rows.groups, rule, skip_rule, step, rows.last_step, PoolOf(c));
  }

 private:
  Reader reader_;
};

class SgdReader {
 public:
  using Rule = SgdRule;
  static constexpr int kLeastSlots = 0, kMostSlots = 1;

  explicit SgdReader(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("momentum", &momentum_));
    OP_REQUIRES_OK(c, c->GetAttr("nesterov", &nesterov_));
  }

  absl::Status ReadUpdate(OpKernelContext* c, Rule* rule) const {
    rule->momentum = momentum_;
    rule->nesterov = nesterov_;
    TF_RETURN_IF_ERROR(ReadScalar(c, "learning_rate", &rule->learning_rate));
    return ReadScalar(c, "decay", &rule->decay);
  }

  absl::Status ReadCatchUp(OpKernelContext* c, Rule*, SkipRule* skip) const {
    float decay;
    TF_RETURN_IF_ERROR(ReadScalar(c, "decay", &decay));
    *skip = SgdSkipRule(decay, momentum_, nesterov_);
    return absl::OkStatus();
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrices[0];
    rule->velocity = rows.matrices[1];
    rule->dim = rows.dim;
  }

 private:
  float momentum_;
  bool nesterov_;
};

class AdagradReader {
 public:
  using Rule = AdagradRule;
  static constexpr int kLeastSlots = 1, kMostSlots = 1;

  explicit AdagradReader(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
  }

  absl::Status ReadUpdate(OpKernelContext* c, Rule* rule) const {
    rule->epsilon = epsilon_;
    TF_RETURN_IF_ERROR(ReadScalar(c, "learning_rate", &rule->learning_rate));
    return ReadScalar(c, "decay", &rule->decay);
  }

  absl::Status ReadCatchUp(OpKernelContext* c, Rule*, SkipRule* skip) const {
    float decay;
    TF_RETURN_IF_ERROR(ReadScalar(c, "decay", &decay));
    skip->keep = 1.0 - decay;
    return absl::OkStatus();
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrices[0];
    rule->accumulator = rows.matrices[1];
    rule->dim = rows.dim;
  }

 private:
  float epsilon_;
};

class AdamReader {
 public:
  using Rule = AdamRule;
  static constexpr int kLeastSlots = 2, kMostSlots = 3;

  explicit AdamReader(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(c, c->GetAttr("num_slots", &num_slots_));
  }

  absl::Status ReadUpdate(OpKernelContext* c, Rule* rule) const {
    rule->epsilon = epsilon_;
    double beta_1, beta_2;
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &beta_1));
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_2", &beta_2));
    // In double, as Keras takes them from Python floats.
    rule->m_rate = static_cast<float>(1 - beta_1);
    rule->v_rate = static_cast<float>(1 - beta_2);
    TF_RETURN_IF_ERROR(ReadScalar(c, "alpha", &rule->alpha));
    return ReadScalar(c, "decay", &rule->decay);
  }

  absl::Status ReadCatchUp(OpKernelContext* c, Rule* rule,
                           SkipRule* skip) const {
    rule->epsilon = epsilon_;
    float learning_rate, decay;
    double beta_1, beta_2;
    TF_RETURN_IF_ERROR(ReadScalar(c, "learning_rate", &learning_rate));
    TF_RETURN_IF_ERROR(ReadScalar(c, "decay", &decay));
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &beta_1));
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_2", &beta_2));
    *skip = AdamSkipRule(learning_rate, decay, beta_1, beta_2, num_slots_ == 3);
    return absl::OkStatus();
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrices[0];
    rule->momentum = rows.matrices[1];
    rule->velocity = rows.matrices[2];
    rule->velocity_hat = rows.matrices[3];
    rule->dim = rows.dim;
  }

 private:
  float epsilon_;
  int num_slots_;
};

class SumDuplicateRowsOp : public OpKernel {
 public:
  explicit SumDuplicateRowsOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& ids = c->input(0);
    const Tensor& grads = c->input(1);
    OP_REQUIRES_OK(c, CheckRank("ids", ids, 1));
    const int64_t n = ids.NumElements();
    OP_REQUIRES_OK(c, CheckGradRows(grads, n));
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    OP_REQUIRES_OK(c, CheckIds("ids", ids, kMost));
    const auto id = ids.flat<int64_t>();
    int64_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, id(i));
    const RowRuns groups = GroupRows(id.data(), n, largest + 1);
    tensorflow::TensorShape shape = grads.shape();
    shape.set_dim(0, groups.size());
    Tensor *unique, *sums;
    OP_REQUIRES_OK(c, c->allocate_output(0, {groups.size()}, &unique));
    OP_REQUIRES_OK(c, c->allocate_output(1, shape, &sums));
    std::copy(groups.rows.begin(), groups.rows.end(),
              unique->flat<int64_t>().data());
    const int64_t dim = n ? grads.NumElements() / n : 0;
    const float* in = grads.flat<float>().data();
    float* out = sums->flat<float>().data();
    PoolOf(c)(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        SumGroup(groups, i, in, dim, out + i * dim);
      }
    });
  }
};

#define TFXCLASS_CPU(name, ...) \
  REGISTER_KERNEL_BUILDER(      \
      Name("Tfxclass>" name).Device(tensorflow::DEVICE_CPU), __VA_ARGS__)
TFXCLASS_CPU("LazySgdUpdate", LazyUpdateOp<SgdReader>);
TFXCLASS_CPU("LazySgdCatchUp", LazyCatchUpOp<SgdReader>);
TFXCLASS_CPU("LazyAdagradUpdate", LazyUpdateOp<AdagradReader>);
TFXCLASS_CPU("LazyAdagradCatchUp", LazyCatchUpOp<AdagradReader>);
TFXCLASS_CPU("LazyAdamUpdate", LazyUpdateOp<AdamReader>);
TFXCLASS_CPU("LazyAdamCatchUp", LazyCatchUpOp<AdamReader>);
TFXCLASS_CPU("SumDuplicateRows", SumDuplicateRowsOp);
#undef TFXCLASS_CPU

}  // namespace
}  // namespace tfxclass
