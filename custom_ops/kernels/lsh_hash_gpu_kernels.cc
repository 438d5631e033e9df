// The hash functions of LSH on the GPU, without tables.
//
// The functions are drawn on the host at each call, and copied; vectors that
// are not finite are not told.
#include "core/hash_functions.h"
#include "kernels/gpu_op.h"
#include "kernels/hash_codes_gpu.h"
#include "kernels/lsh_options.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class GpuLshHashOp : public OpKernel {
 public:
  explicit GpuLshHashOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetHashFamily(c, &options_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& vectors = c->input(0);
    OP_REQUIRES_OK(c, CheckHashed(vectors));
    OP_REQUIRES_OK(c, CheckScalar("seed", c->input(1)));
    HashOptions options = options_;
    options.seed = c->input(1).flat<int64_t>()(0);
    const int64_t count = vectors.dim_size(0), dim = vectors.dim_size(1);
    Tensor* codes;
    OP_REQUIRES_OK(c,
                   c->allocate_output(0, {options.num_tables, count}, &codes));
    OpScratch scratch(c);
    GpuHashFunctions functions;
    OP_REQUIRES_OK(c, ToStatus(functions.Upload(HashFunctions(options, dim),
                                                &scratch, StreamOf(c))));
    OP_REQUIRES_OK(c, ToStatus(functions.Codes(
                          {vectors.flat<float>().data(), nullptr, count, dim},
                          codes->flat<int32_t>().data(), StreamOf(c))));
  }

 private:
  HashOptions options_;
};

REGISTER_KERNEL_BUILDER(TFXCLASS_GPU_NAME("LshHash").HostMemory("seed"),
                        GpuLshHashOp);

}  // namespace
}  // namespace tfxclass
