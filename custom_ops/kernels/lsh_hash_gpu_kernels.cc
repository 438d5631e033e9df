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

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class GpuLshHashOp : public LshHashOp {
 public:
  using LshHashOp::LshHashOp;

 private:
  absl::Status Hash(OpKernelContext* c, const HashFunctions& functions,
                    const Tensor& vectors, Tensor* codes) override {
    OpScratch scratch(c);
    GpuHashFunctions on_device;
    TF_RETURN_IF_ERROR(
        ToStatus(on_device.Upload(functions, &scratch, StreamOf(c))));
    return ToStatus(on_device.Codes({vectors.flat<float>().data(), nullptr,
                                     vectors.dim_size(0), vectors.dim_size(1)},
                                    codes->flat<int32_t>().data(),
                                    StreamOf(c)));
  }
};

TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshHash").HostMemory("seed"),
                  GpuLshHashOp);

}  // namespace
}  // namespace tfxclass
