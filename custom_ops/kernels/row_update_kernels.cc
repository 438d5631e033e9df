// CPU kernels of the optimizers' steps on touched rows.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/bf16.h"
#include "core/huge_pages.h"
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

template <class Inputs, class Stored, class S>
class LazyUpdateOp : public LazyRowsOp<Inputs, Stored, S> {
 public:
  using LazyRowsOp<Inputs, Stored, S>::LazyRowsOp;

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    RowMatrices rows;
    const Tensor* grads;
    OP_REQUIRES_OK(c, c->input("grads", &grads));
    RuleNumbers of_step;
    int64_t step;
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    OP_REQUIRES_OK(c, this->ReadNumbers(c, &of_step));
    OP_REQUIRES_OK(c, this->Open(c, grads, CheckRowIds, AnyShape, CopyBytes,
                                 &variables, &rows));
    for (int i = 0; i <= this->num_slots(); ++i) {
      huge_pages_.Use(variables.bytes(i), variables[i].TotalBytes());
    }
    const RowRuns groups = GroupsOf(this->Ids(c), rows.num_rows);
    this->WithRule(
        rows, of_step, step, [&](const auto& rule, const auto& slotted) {
          UpdateRows(groups, grads->flat<S>().data(), rule, slotted, PoolOf(c));
        });
  }

 private:
  HugePages huge_pages_;
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
#define TFXCLASS_CPU_ROWS(T, Stored, S)                                       \
  TFXCLASS_CPU_OF("LazySgdUpdate", T, S, LazyUpdateOp<SgdInputs, Stored, S>); \
  TFXCLASS_CPU_OF("LazyAdagradUpdate", T, S,                                  \
                  LazyUpdateOp<AdagradInputs, Stored, S>);                    \
  TFXCLASS_CPU_OF("LazyAdamUpdate", T, S, LazyUpdateOp<AdamInputs, Stored, S>)
TFXCLASS_CPU_ROWS(Eigen::half, Eigen::half, Eigen::half);
TFXCLASS_CPU_ROWS(Eigen::bfloat16, Eigen::bfloat16, Eigen::bfloat16);
TFXCLASS_CPU_ROWS(float, float, float);
TFXCLASS_CPU_ROWS(double, double, double);
TFXCLASS_CPU_ROWS(Eigen::bfloat16, Bf16, float);
#undef TFXCLASS_CPU_ROWS
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
