// CPU kernels of the optimizers' steps on touched rows.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/bf16.h"
#include "core/row_catch_up.h"
#include "core/row_rules.h"
#include "core/row_update.h"
#include "kernels/kernel_utils.h"
#include "kernels/lazy_rows_op.h"
#include "kernels/row_inputs.h"
#include "kernels/row_op.h"
#include "kernels/row_variables.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status CheckRowIds(const Tensor& ids, int64_t num_rows) {
  return CheckIds("ids", ids, num_rows);
}

RowRuns GroupsOf(const Tensor& ids, int64_t num_rows) {
  return GroupRows(ids.flat<int64_t>().data(), ids.NumElements(), num_rows);
}

template <class Inputs, class Kept, class S>
class LazyUpdateOp : public LazyRowsOp<Inputs, Kept, S> {
 public:
  explicit LazyUpdateOp(OpKernelConstruction* c)
      : LazyRowsOp<Inputs, Kept, S>(c, false) {}

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    RuleNumbers of_step;
    int64_t step;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    OP_REQUIRES_OK(c, ReadScalar(c, Inputs::kRate, &of_step.learning_rate));
    OP_REQUIRES_OK(c, ReadScalar(c, "decay", &of_step.decay));
    OP_REQUIRES_OK(c, this->ReadBetas(c, &of_step));
    const auto look = [&](RowVariables* v, bool*) {
      int64_t clock;
      return this->ReadClock(v, &clock);
    };
    OP_REQUIRES_OK(c, this->Open(c, grads, CheckRowIds, look, CopyBytes,
                                 &variables, &rows));
    const RowRuns groups = GroupsOf(this->Ids(c), rows.num_rows);
    this->WithRule(rows, of_step, step, kRoundUpdate,
                   [&](const auto& rule, const auto& slotted) {
                     UpdateRows(groups, grads->flat<S>().data(), rule, slotted,
                                PoolOf(c));
                   });
    if (rows.last_step == nullptr) return;
    RecordStep(of_step.learning_rate, of_step.decay, this->capacity(),
               rows.clock, rows.rates, rows.log_keeps);
    for (int64_t row : groups.rows) rows.last_step[row] = *rows.clock;
  }
};

template <class Inputs, class Kept, class S>
class LazyCatchUpOp : public LazyRowsOp<Inputs, Kept, S> {
 public:
  explicit LazyCatchUpOp(OpKernelConstruction* c)
      : LazyRowsOp<Inputs, Kept, S>(c, true) {
    OP_REQUIRES_OK(c, c->GetAttr("every_row", &every_row_));
    if (c->HasAttr("each_element")) {
      OP_REQUIRES_OK(c, c->GetAttr("each_element", &each_element_));
    }
  }

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    RuleNumbers numbers;
    SkipTerms terms;
    OP_REQUIRES_OK(c, this->ReadBetas(c, &numbers));
    if (Inputs::kHasTerms) OP_REQUIRES_OK(c, ReadOwnTerms(c, &terms));
    const auto look = [&](RowVariables* v, bool* is_idle) {
      int64_t clock;
      const absl::Status status = this->ReadClock(v, &clock);
      *is_idle = clock == 0;
      return status;
    };
    OP_REQUIRES_OK(c, this->Open(c, nullptr, CheckRowIds, look, CopyBytes,
                                 &variables, &rows));
    if (rows.num_rows == 0) return;
    const StepHistory history = {*rows.clock, this->capacity(), rows.rates,
                                 rows.log_keeps};
    const auto catch_up = [&](int64_t count, const int64_t* ids) {
      this->WithRule(rows, numbers, history.clock, kRoundCatchUp,
                     [&](const auto& rule, const auto& slotted) {
                       CatchUpRows(count, ids, rule, slotted, history, terms,
                                   rows.last_step, PoolOf(c));
                     });
    };
    if (every_row_ || history.IsFull()) {
      catch_up(rows.num_rows, nullptr);
      return;
    }
    const RowRuns groups = GroupsOf(this->Ids(c), rows.num_rows);
    catch_up(groups.size(), groups.rows.data());
  }

 private:
  absl::Status ReadOwnTerms(OpKernelContext* c, SkipTerms* terms) const {
    terms->each_element = each_element_;
    if (each_element_) return ReadTerms(c, 2, 2, terms);
    const bool is_adam = Inputs::kRule == RowRule::kAdam;
    return ReadTerms(c, 1, is_adam ? kMostSkipTerms : 1, terms);
  }

  bool every_row_, each_element_ = false;
};

template <class T>
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
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {groups.size()}, &unique));
    OP_REQUIRES_OK(c, c->allocate_output(1, shape, &sums));
    std::copy(groups.rows.begin(), groups.rows.end(),
              unique->flat<int64_t>().data());
    const int64_t dim = n ? grads.NumElements() / n : 0;
    const T* in = grads.flat<T>().data();
    T* out = sums->flat<T>().data();
    PoolOf(c)(groups.size(), dim + 50, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        SumGroup(groups, i, in, dim, out + i * dim);
      }
    });
  }
};

#define TFXCLASS_CPU_OF(name, T, S, ...)                \
  TFXCLASS_REGISTER(Name("Tfxclass>" name)              \
                        .Device(tensorflow::DEVICE_CPU) \
                        .TypeConstraint<T>("T")         \
                        .TypeConstraint<S>("S"),        \
                    __VA_ARGS__)
#define TFXCLASS_CPU_RULE(name, Inputs, T, Kept, S)                    \
  TFXCLASS_CPU_OF(name "Update", T, S, LazyUpdateOp<Inputs, Kept, S>); \
  TFXCLASS_CPU_OF(name "CatchUp", T, S, LazyCatchUpOp<Inputs, Kept, S>)
#define TFXCLASS_CPU_ROWS(T, Kept, S)                          \
  TFXCLASS_CPU_RULE("LazySgd", SgdInputs, T, Kept, S);         \
  TFXCLASS_CPU_RULE("LazyAdagrad", AdagradInputs, T, Kept, S); \
  TFXCLASS_CPU_RULE("LazyAdam", AdamInputs, T, Kept, S)
TFXCLASS_CPU_ROWS(Eigen::half, Eigen::half, Eigen::half);
TFXCLASS_CPU_ROWS(Eigen::bfloat16, Eigen::bfloat16, Eigen::bfloat16);
TFXCLASS_CPU_ROWS(float, float, float);
TFXCLASS_CPU_ROWS(double, double, double);
TFXCLASS_CPU_ROWS(Eigen::bfloat16, Bf16, float);
#undef TFXCLASS_CPU_ROWS
#undef TFXCLASS_CPU_RULE
#undef TFXCLASS_CPU_OF
#define TFXCLASS_CPU_SUMS(T)                            \
  TFXCLASS_REGISTER(Name("Tfxclass>SumDuplicateRows")   \
                        .Device(tensorflow::DEVICE_CPU) \
                        .TypeConstraint<T>("T"),        \
                    SumDuplicateRowsOp<T>)
TFXCLASS_CPU_SUMS(float);
TFXCLASS_CPU_SUMS(double);
#undef TFXCLASS_CPU_SUMS

}  // namespace
}  // namespace tfxclass
