// CPU kernels of the hash functions, without tables.
#include "core/hash_functions.h"
#include "core/lane_rows.h"
#include "kernels/kernel_utils.h"
#include "kernels/lsh_options.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class CpuLshHashOp : public LshHashOp {
 public:
  using LshHashOp::LshHashOp;

 private:
  absl::Status Hash(OpKernelContext* c, const HashFunctions& functions,
                    const Tensor& vectors, Tensor* codes) override {
    TF_RETURN_IF_ERROR(CheckFinite("vectors", vectors));
    const int64_t count = vectors.dim_size(0), dim = vectors.dim_size(1);
    LaneRows rows;
    rows.Resize(count, dim);
    const int64_t cost =
        functions.options().num_tables * functions.Cost() + dim;
    PoolOf(c)(rows.blocks(), kBlockRows * cost,
              [&](int64_t begin, int64_t end) {
                for (int64_t b = begin; b < end; ++b) {
                  HashBlock(functions, vectors, b, &rows, codes);
                }
              });
    return absl::OkStatus();
  }

  static void HashBlock(const HashFunctions& functions, const Tensor& vectors,
                        int64_t b, LaneRows* rows, Tensor* to) {
    const int64_t num_tables = functions.options().num_tables;
    const int64_t first = b * kBlockRows;
    const int64_t num = std::min(kBlockRows, rows->count - first);
    for (int64_t i = first; i < first + num; ++i) {
      rows->Set(i, vectors.flat<float>().data() + i * rows->dim, rows->dim);
    }
    std::vector<uint32_t> codes(num_tables * kBlockRows);
    functions.Codes(rows->block(b), 0, num_tables, codes.data(), kBlockRows);
    for (int64_t t = 0; t < num_tables; ++t) {
      std::copy_n(codes.data() + t * kBlockRows, num,
                  to->flat<int32_t>().data() + t * rows->count + first);
    }
  }
};

class LshSparseHashOp : public OpKernel {
 public:
  explicit LshSparseHashOp(OpKernelConstruction* c) : OpKernel(c) {
    options_.family = HashFamily::kDwta;
    OP_REQUIRES_OK(c, GetHashOptions(c, &options_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& splits = c->input(0);
    const Tensor& ids = c->input(1);
    const Tensor& values = c->input(2);
    int64_t dim, seed;
    OP_REQUIRES_OK(c, ReadInteger(c, "dim", 1, INT32_MAX, &dim));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    OP_REQUIRES_OK(c, CheckIds("ids", ids, dim));
    OP_REQUIRES_OK(c, CheckFinite("values", values));
    OP_REQUIRES(
        c, values.shape() == ids.shape(),
        absl::InvalidArgumentError(absl::StrCat(
            "`values` must have the shape of `ids`, ", ShapeText(ids.shape()),
            ". Received: shape ", ShapeText(values.shape()))));
    OP_REQUIRES_OK(c, CheckSplits("row_splits", splits, ids.NumElements()));
    OP_REQUIRES_OK(c, CheckDrawn(options_, dim));
    HashOptions options = options_;
    options.seed = seed;
    const int64_t count = splits.NumElements() - 1;
    Tensor* codes;
    OP_REQUIRES_OK(c,
                   AllocateOutput(c, 0, {options.num_tables, count}, &codes));
    const HashFunctions functions(options, dim, PoolOf(c));
    const SparseDwta sparse(functions.bins(), dim, options.function_bits());
    const auto starts = splits.flat<int64_t>();
    const int64_t cost = options.count() * 10 + 1000;
    PoolOf(c)(count, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        sparse.Codes(
            ids.flat<int64_t>().data() + starts(i),
            values.flat<float>().data() + starts(i), starts(i + 1) - starts(i),
            options.num_hashes,
            reinterpret_cast<uint32_t*>(codes->flat<int32_t>().data()) + i,
            count);
      }
    });
  }

 private:
  HashOptions options_;
};

TFXCLASS_CPU("LshHash", CpuLshHashOp);
TFXCLASS_CPU("LshSparseHash", LshSparseHashOp);

}  // namespace
}  // namespace tfxclass
