// CPU kernels of the optimizers' steps on touched rows.
#include <algorithm>
#include <cstdint>
#include <cstring>
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

absl::Status CopyBytes(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CheckRowIds(const Tensor& ids, int64_t num_rows) {
  return CheckIds("ids", ids, num_rows);
}

RowRuns GroupsOf(const Tensor& ids, int64_t num_rows) {
  return GroupRows(ids.flat<int64_t>().data(), ids.NumElements(), num_rows);
}

// A Reader says which Rule an op applies and within what bounds it takes slots.
// ReadUpdate and ReadCatchUp read attributes and scalars into the rule,
// SetMatrices gives it the variables' buffers, Rate is what a step's history
// keeps.
template <class Reader>
class LazyUpdateOp : public RowOp {
 public:
  explicit LazyUpdateOp(OpKernelConstruction* c)
      : RowOp(c, Reader::kLeastSlots, Reader::kMostSlots, Reader::kHasRates,
              false),
        reader_(c) {}

  void Compute(OpKernelContext* c) override {
    using Value = typename Reader::Rule::Value;
    RowVariables variables;
    RowMatrices rows;
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    typename Reader::Rule rule;
    double rate, decay;
    OP_REQUIRES_OK(c, ReadScalar(c, Reader::kRate, &rate));
    OP_REQUIRES_OK(c, ReadScalar(c, "decay", &decay));
    OP_REQUIRES_OK(c, reader_.ReadUpdate(c, rate, decay, &rule));
    const auto look = [&](RowVariables* v, bool*) {
      int64_t clock;
      return ReadClock(v, &clock);
    };
    OP_REQUIRES_OK(
        c, Open(c, grads, CheckRowIds, look, CopyBytes, &variables, &rows));
    Reader::SetMatrices(rows, &rule);
    const RowRuns groups = GroupsOf(Ids(c), rows.num_rows);
    UpdateRows(groups, grads->flat<Value>().data(), rule, PoolOf(c));
    if (rows.last_step == nullptr) return;
    RecordStep(rate, decay, capacity(), rows.clock, rows.rates, rows.log_keeps);
    for (int64_t row : groups.rows) rows.last_step[row] = *rows.clock;
  }

 private:
  Reader reader_;
};

template <class Reader>
class LazyCatchUpOp : public RowOp {
 public:
  explicit LazyCatchUpOp(OpKernelConstruction* c)
      : RowOp(c, Reader::kLeastSlots, Reader::kMostSlots, Reader::kHasRates,
              true),
        reader_(c) {
    OP_REQUIRES_OK(c, c->GetAttr("every_row", &every_row_));
  }

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    typename Reader::Rule rule;
    SkipTerms terms;
    SkipFade fade;
    OP_REQUIRES_OK(c, reader_.ReadCatchUp(c, &rule, &terms, &fade));
    const auto look = [&](RowVariables* v, bool* is_idle) {
      int64_t clock;
      const absl::Status status = ReadClock(v, &clock);
      *is_idle = clock == 0;
      return status;
    };
    OP_REQUIRES_OK(
        c, Open(c, nullptr, CheckRowIds, look, CopyBytes, &variables, &rows));
    if (rows.num_rows == 0) return;
    Reader::SetMatrices(rows, &rule);
    const StepHistory history = {*rows.clock, capacity(), rows.rates,
                                 rows.log_keeps};
    const auto catch_up = [&](int64_t count, const auto& row_of) {
      CatchUpRows(count, row_of, rule, history, terms, fade, rows.last_step,
                  PoolOf(c));
    };
    if (every_row_ || history.IsFull()) {
      catch_up(rows.num_rows, [](int64_t i) { return i; });
      return;
    }
    const RowRuns groups = GroupsOf(Ids(c), rows.num_rows);
    catch_up(groups.size(), [&](int64_t i) { return groups.rows[i]; });
  }

 private:
  Reader reader_;
  bool every_row_;
};

template <class T>
class SgdReader {
 public:
  using Rule = SgdRule<T>;
  static constexpr int kLeastSlots = 0, kMostSlots = 1;
  static constexpr bool kHasRates = false;
  static constexpr const char* kRate = "learning_rate";

  explicit SgdReader(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("momentum", &momentum_));
    if (c->HasAttr("nesterov")) {
      OP_REQUIRES_OK(c, c->GetAttr("nesterov", &nesterov_));
    }
  }

  absl::Status ReadUpdate(OpKernelContext*, double rate, double decay,
                          Rule* rule) const {
    rule->learning_rate = rate;
    rule->decay = decay;
    rule->momentum = momentum_;
    rule->nesterov = nesterov_;
    return absl::OkStatus();
  }

  absl::Status ReadCatchUp(OpKernelContext* c, Rule*, SkipTerms* terms,
                           SkipFade* fade) const {
    fade->momentum = momentum_;
    return ReadTerms(c, 1, 1, terms);
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrix<T>(0);
    rule->velocity = rows.matrix<T>(1);
    rule->dim = rows.dim;
  }

 private:
  float momentum_ = 0;
  bool nesterov_ = false;
};

template <class T>
class AdagradReader {
 public:
  using Rule = AdagradRule<T>;
  static constexpr int kLeastSlots = 1, kMostSlots = 1;
  static constexpr bool kHasRates = false;
  static constexpr const char* kRate = "learning_rate";

  explicit AdagradReader(OpKernelConstruction* c) {
    if (c->HasAttr("epsilon")) {
      OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    }
  }

  absl::Status ReadUpdate(OpKernelContext*, double rate, double decay,
                          Rule* rule) const {
    rule->learning_rate = rate;
    rule->decay = decay;
    rule->epsilon = epsilon_;
    return absl::OkStatus();
  }

  absl::Status ReadCatchUp(OpKernelContext*, Rule*, SkipTerms*,
                           SkipFade*) const {
    return absl::OkStatus();
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrix<T>(0);
    rule->accumulator = rows.matrix<T>(1);
    rule->dim = rows.dim;
  }

 private:
  float epsilon_ = 0;
};

template <class T>
class AdamReader {
 public:
  using Rule = AdamRule<T>;
  static constexpr int kLeastSlots = 2, kMostSlots = 3;
  static constexpr bool kHasRates = true;
  static constexpr const char* kRate = "alpha";

  explicit AdamReader(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("epsilon", &epsilon_));
    if (c->HasAttr("each_element")) {
      OP_REQUIRES_OK(c, c->GetAttr("each_element", &each_element_));
    }
  }

  absl::Status ReadUpdate(OpKernelContext* c, double rate, double decay,
                          Rule* rule) const {
    double beta_1, beta_2;
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &beta_1));
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_2", &beta_2));
    rule->alpha = rate;
    rule->decay = decay;
    rule->epsilon = epsilon_;
    // In double, as Keras takes them from Python floats.
    rule->m_rate = 1 - beta_1;
    rule->v_rate = 1 - beta_2;
    return absl::OkStatus();
  }

  absl::Status ReadCatchUp(OpKernelContext* c, Rule* rule, SkipTerms* terms,
                           SkipFade* fade) const {
    rule->epsilon = epsilon_;
    terms->each_element = each_element_;
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_1", &fade->momentum));
    TF_RETURN_IF_ERROR(ReadScalar(c, "beta_2", &fade->velocity));
    return ReadTerms(c, each_element_ ? 2 : 1,
                     each_element_ ? 2 : kMostSkipTerms, terms);
  }

  static void SetMatrices(const RowMatrices& rows, Rule* rule) {
    rule->var = rows.matrix<T>(0);
    rule->momentum = rows.matrix<T>(1);
    rule->velocity = rows.matrix<T>(2);
    rule->velocity_hat = rows.matrix<T>(3);
    rule->dim = rows.dim;
  }

 private:
  float epsilon_;
  bool each_element_ = false;
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

#define TFXCLASS_CPU_OF(name, T, ...)                   \
  TFXCLASS_REGISTER(Name("Tfxclass>" name)              \
                        .Device(tensorflow::DEVICE_CPU) \
                        .TypeConstraint<T>("T"),        \
                    __VA_ARGS__)
#define TFXCLASS_CPU_ROWS(T)                                                 \
  TFXCLASS_CPU_OF("LazySgdUpdate", T, LazyUpdateOp<SgdReader<T>>);           \
  TFXCLASS_CPU_OF("LazySgdCatchUp", T, LazyCatchUpOp<SgdReader<T>>);         \
  TFXCLASS_CPU_OF("LazyAdagradUpdate", T, LazyUpdateOp<AdagradReader<T>>);   \
  TFXCLASS_CPU_OF("LazyAdagradCatchUp", T, LazyCatchUpOp<AdagradReader<T>>); \
  TFXCLASS_CPU_OF("LazyAdamUpdate", T, LazyUpdateOp<AdamReader<T>>);         \
  TFXCLASS_CPU_OF("LazyAdamCatchUp", T, LazyCatchUpOp<AdamReader<T>>)
TFXCLASS_CPU_ROWS(Eigen::half);
TFXCLASS_CPU_ROWS(Eigen::bfloat16);
TFXCLASS_CPU_ROWS(float);
TFXCLASS_CPU_ROWS(double);
TFXCLASS_CPU_OF("SumDuplicateRows", float, SumDuplicateRowsOp<float>);
TFXCLASS_CPU_OF("SumDuplicateRows", double, SumDuplicateRowsOp<double>);
#undef TFXCLASS_CPU_ROWS
#undef TFXCLASS_CPU_OF

}  // namespace
}  // namespace tfxclass
