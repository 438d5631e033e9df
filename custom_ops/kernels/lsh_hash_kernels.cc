// CPU kernels of the hash functions, without tables.
#include "core/hash_functions.h"
#include "core/lane_rows.h"
#include "kernels/kernel_utils.h"
#include "kernels/lsh_options.h"

namespace tfxclass {
namespace {

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

TFXCLASS_CPU("LshHash", CpuLshHashOp);

}  // namespace
}  // namespace tfxclass
