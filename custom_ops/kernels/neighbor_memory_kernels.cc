// CPU kernels of the memory of neighbours.
#include "core/neighbor_memory.h"
#include "core/recent_labels.h"
#include "kernels/index_op.h"
#include "kernels/row_variables.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

absl::Status ReadMemory(const Tensor& tensor, NeighborMemory* memory) {
  if (tensor.dtype() != tensorflow::DT_INT64 || tensor.dims() != 2 ||
      tensor.dim_size(0) < 1 || tensor.dim_size(1) < 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`memory` must be an int64 variable [slots, 2 + width]. Received: ",
        tensorflow::DataTypeString(tensor.dtype()), " of shape ",
        ShapeText(tensor.shape())));
  }
  // Written where a caller locked the variable for it.
  auto* const rows = const_cast<int64_t*>(tensor.flat<int64_t>().data());
  *memory = {rows, tensor.dim_size(0), tensor.dim_size(1) - 2};
  return absl::OkStatus();
}

// Which of the rows to search for, and what is known of all: neighbours of
// their labels, and labels of recent rows.
class RecallNeighborsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    RowVariables variables;
    OP_REQUIRES_OK(c, variables.Lock(c, 0, 3));
    OP_REQUIRES_OK(c, variables.CheckInitialized());
    OP_REQUIRES_OK(c, variables.MakeWritable(c, CopyBytes));
    NeighborMemory memory;
    OP_REQUIRES_OK(c, ReadMemory(variables[0], &memory));
    RecentLabels recent;
    OP_REQUIRES_OK(c, ReadRecentLabels(variables, &recent));
    OP_REQUIRES_OK(c, Check(c, recent));
    const int64_t n = c->input(3).dim_size(0);
    int64_t num_asked, step;
    OP_REQUIRES_OK(c, ReadInteger(c, "num_asked", 0, n, &num_asked));
    OP_REQUIRES_OK(c, ReadScalar(c, "step", &step));
    const int64_t remembered = 2 * memory.width;
    const int64_t columns = remembered + recent.tables * recent.places;
    Tensor *asked, *known;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {num_asked}, &asked));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {n, columns}, &known));
    const int64_t* const labels = c->input(4).flat<int64_t>().data();
    OldestSearches(memory, labels, n, num_asked, asked->flat<int64_t>().data());
    int64_t* const to = known->flat<int64_t>().data();
    RecallNeighbors(memory, labels, n, step, to, columns);
    const float* const products = c->input(3).flat<float>().data();
    MoveCentres(recent, products, n, step);
    const std::vector<uint32_t> codes = CodesOf(recent, products, n);
    ReadRecent(recent, codes, n, to + remembered, columns);
    InsertRecent(recent, codes, labels, n, step);
  }

 private:
  static constexpr int64_t kMostBits = 24;

  static absl::Status ReadRecentLabels(RowVariables& variables,
                                       RecentLabels* recent) {
    const Tensor &ids = variables[1], &centres = variables[2];
    const bool is_table =
        ids.dtype() == tensorflow::DT_INT32 && ids.dims() == 3;
    int64_t bits = 0;
    while (is_table && bits < kMostBits && 1 << bits < ids.dim_size(1)) ++bits;
    if (!is_table || ids.NumElements() < 1 || ids.dim_size(1) != 1 << bits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`recent` must be an int32 variable [tables, 2^bits, places]. "
          "Received: ",
          tensorflow::DataTypeString(ids.dtype()), " of shape ",
          ShapeText(ids.shape())));
    }
    *recent = {nullptr, ids.dim_size(0), bits, ids.dim_size(2), nullptr};
    if (centres.dtype() != tensorflow::DT_FLOAT ||
        centres.NumElements() != recent->Columns()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`centres` must be a float32 variable [", recent->Columns(),
          "]. Received: ", tensorflow::DataTypeString(centres.dtype()),
          " of shape ", ShapeText(centres.shape())));
    }
    recent->ids = variables.data<int32_t>(1);
    recent->centres = variables.data<float>(2);
    return absl::OkStatus();
  }

  static absl::Status Check(OpKernelContext* c, const RecentLabels& recent) {
    TF_RETURN_IF_ERROR(CheckRank("products", c->input(3), 2));
    TF_RETURN_IF_ERROR(CheckRank("labels", c->input(4), 1));
    const int64_t n = c->input(3).dim_size(0);
    if (c->input(3).dim_size(1) != recent.Columns()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`products` must have ", recent.Columns(),
          " columns. Received: ", "shape ", ShapeText(c->input(3).shape())));
    }
    if (c->input(4).dim_size(0) != n) {
      return absl::InvalidArgumentError(
          absl::StrCat("`labels` must have ", n, " rows. Received: shape ",
                       ShapeText(c->input(4).shape())));
    }
    TF_RETURN_IF_ERROR(CheckFinite("products", c->input(3)));
    return CheckIds("labels", c->input(4), int64_t{1} << 31, -1);
  }
};

class RankNeighborsOp : public tensorflow::OpKernel {
 public:
  explicit RankNeighborsOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES_OK(c, Rank(c));
    OP_REQUIRES_OK(c, Keep(c));
  }

 private:
  absl::Status CheckShapes(OpKernelContext* c) const {
    TF_RETURN_IF_ERROR(CheckRank("queries", c->input(2), 2));
    TF_RETURN_IF_ERROR(CheckRank("target_ids", c->input(3), 2));
    TF_RETURN_IF_ERROR(CheckRank("labels", c->input(4), 1));
    TF_RETURN_IF_ERROR(CheckRank("known", c->input(5), 2));
    TF_RETURN_IF_ERROR(CheckRank("asked", c->input(6), 1));
    TF_RETURN_IF_ERROR(CheckRank("found", c->input(7), 2));
    const int64_t n = c->input(2).dim_size(0);
    for (int i = 3; i <= 5; ++i) {
      if (c->input(i).dim_size(0) != n) return OtherRows(c, i, n);
    }
    const int64_t asked = c->input(6).dim_size(0);
    if (c->input(7).dim_size(0) != asked) return OtherRows(c, 7, asked);
    return absl::OkStatus();
  }

  static absl::Status OtherRows(OpKernelContext* c, int input, int64_t n) {
    constexpr const char* kNames[] = {"target_ids", "labels", "known", "asked",
                                      "found"};
    return absl::InvalidArgumentError(absl::StrCat(
        "`", kNames[input - 3], "` must have ", n, " rows. Received: shape ",
        ShapeText(c->input(input).shape())));
  }

  absl::Status CheckValues(OpKernelContext* c, int64_t num_classes) const {
    TF_RETURN_IF_ERROR(CheckFinite("queries", c->input(2)));
    TF_RETURN_IF_ERROR(CheckIds("target_ids", c->input(3), num_classes, -1));
    TF_RETURN_IF_ERROR(CheckIds("known", c->input(5), num_classes, -1));
    TF_RETURN_IF_ERROR(CheckIds("asked", c->input(6), c->input(2).dim_size(0)));
    return CheckIds("found", c->input(7), num_classes, -1);
  }

  absl::Status Rank(OpKernelContext* c) const {
    TF_RETURN_IF_ERROR(CheckShapes(c));
    RefCountPtr<Var> kernel;
    TF_RETURN_IF_ERROR(LookupVariable(c, 1, &kernel));
    const Tensor &queries = c->input(2), &targets = c->input(3),
                 &known = c->input(5), &found = c->input(7);
    const int64_t n = queries.dim_size(0);
    int64_t count;
    TF_RETURN_IF_ERROR(ReadInteger(c, "count", 1, kMostCount, &count));
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const Tensor& tensor = *kernel->tensor();
    TF_RETURN_IF_ERROR(CheckKernel("memory of neighbours", tensor, true));
    const ClassRows rows = RowsOf(tensor);
    if (queries.dim_size(1) != rows.dim) {
      return absl::InvalidArgumentError(
          absl::StrCat("`queries` must have ", rows.dim,
                       " columns, as `kernel` has. "
                       "Received: shape ",
                       ShapeText(queries.shape())));
    }
    TF_RETURN_IF_ERROR(CheckValues(c, rows.count));
    Tensor *ids, *shares;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {n, count}, &ids));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 1, {n, count}, &shares));
    const std::vector<int64_t> place = Places(c->input(6), n);
    const int64_t cost = (known.dim_size(1) + 2) * (10 + rows.dim / 8);
    PoolOf(c)(n, cost, [&](int64_t begin, int64_t end) {
      NeighborRanker ranker(rows, normalize_);
      for (int64_t r = begin; r < end; ++r) {
        NeighborRow row{
            queries.flat<float>().data() + r * rows.dim,
            targets.flat<int64_t>().data() + r * targets.dim_size(1),
            targets.dim_size(1),
            known.flat<int64_t>().data() + r * known.dim_size(1),
            known.dim_size(1),
            nullptr,
            found.dim_size(1)};
        if (place[r] >= 0) {
          row.found =
              found.flat<int64_t>().data() + place[r] * found.dim_size(1);
        }
        ranker.Rank(row, count, ids->flat<int64_t>().data() + r * count,
                    shares->flat<float>().data() + r * count);
      }
    });
    return absl::OkStatus();
  }

  // Of each row among those that were searched for; -1 if it was not.
  static std::vector<int64_t> Places(const Tensor& asked, int64_t n) {
    std::vector<int64_t> places(n, -1);
    const auto rows = asked.flat<int64_t>();
    for (int64_t i = 0; i < rows.size(); ++i) places[rows(i)] = i;
    return places;
  }

  static absl::Status Keep(OpKernelContext* c) {
    RowVariables memory;
    TF_RETURN_IF_ERROR(memory.Lock(c, 0, 1));
    TF_RETURN_IF_ERROR(memory.MakeWritable(c, CopyBytes));
    NeighborMemory kept;
    TF_RETURN_IF_ERROR(ReadMemory(memory[0], &kept));
    int64_t step;
    TF_RETURN_IF_ERROR(ReadScalar(c, "step", &step));
    const Tensor& ids = *c->mutable_output(0);
    const int64_t n = ids.dim_size(0);
    std::vector<bool> is_asked(n);
    const auto asked = c->input(6).flat<int64_t>();
    for (int64_t i = 0; i < asked.size(); ++i) is_asked[asked(i)] = true;
    KeepNeighbors(kept, c->input(4).flat<int64_t>().data(), n, is_asked, step,
                  ids.flat<int64_t>().data(), ids.dim_size(1));
    return absl::OkStatus();
  }

  static constexpr int64_t kMostCount = 1 << 20;
  bool normalize_;
};

TFXCLASS_CPU("RecallNeighbors", RecallNeighborsOp);
TFXCLASS_CPU("RankNeighbors", RankNeighborsOp);

}  // namespace
}  // namespace tfxclass
