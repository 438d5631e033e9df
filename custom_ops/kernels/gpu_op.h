// What the ops on the device share: the stream, scratch memory, registration.
//
// Their bodies run on the host and only put work on TensorFlow's stream; tensor
// data is the device's, but for inputs and outputs named in HostMemory. With
// TFXCLASS_EMULATE_CUDA they are kernels of the CPU with the label "emulated":
// so they are tested where there is no GPU.
#ifndef TFXCLASS_KERNELS_GPU_OP_H_
#define TFXCLASS_KERNELS_GPU_OP_H_

#include <vector>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_memory.cu.h"
#include "kernels/kernel_utils.h"
#ifndef TFXCLASS_EMULATE_CUDA
#include "xla/stream_executor/stream.h"
#endif

#ifdef TFXCLASS_EMULATE_CUDA
#define TFXCLASS_GPU_NAME(name) \
  Name("Tfxclass>" name).Device(tensorflow::DEVICE_CPU).Label("emulated")
#else
#define TFXCLASS_GPU_NAME(name) \
  Name("Tfxclass>" name).Device(tensorflow::DEVICE_GPU)
#endif

namespace tfxclass {

inline GpuStream StreamOf(tensorflow::OpKernelContext* c) {
#ifdef TFXCLASS_EMULATE_CUDA
  return nullptr;
#else
  return static_cast<GpuStream>(
      c->op_device_context()->stream()->platform_specific_handle().stream);
#endif
}

inline absl::Status ToStatus(GpuStatus status) {
  if (status == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("On the GPU: ", status));
}

// Memory of TensorFlow's allocators, given back when the op returns: what comes
// later on the stream may then use it.
class OpScratch : public Scratch {
 public:
  enum Kind { kOnDevice, kPageLocked };  // of the host

  explicit OpScratch(tensorflow::OpKernelContext* c, Kind kind = kOnDevice)
      : context_(c), on_host_(kind == kPageLocked) {}

 protected:
  void* GetBytes(size_t bytes) override {
    tensorflow::AllocatorAttributes where;
    where.set_on_host(on_host_);
    where.set_gpu_compatible(on_host_);
    // Without page-locked memory there is other memory: no wait for it.
    const tensorflow::AllocationAttributes how(/*retry_on_failure=*/!on_host_,
                                               false, nullptr);
    tensorflow::Tensor tensor;
    const int64_t size = bytes > 0 ? bytes : 1;
    const absl::Status status = context_->allocate_temp(
        tensorflow::DT_UINT8, tensorflow::TensorShape({size}), &tensor, where,
        how);
    if (!status.ok()) return nullptr;
    tensors_.push_back(tensor);
    return tensor.data();
  }

 private:
  tensorflow::OpKernelContext* const context_;
  const bool on_host_;
  std::vector<tensorflow::Tensor> tensors_;
};

// Waits for the device.
template <class T>
absl::Status ReadFromDevice(tensorflow::OpKernelContext* c, const T* device,
                            int64_t count, T* host) {
  return ToStatus(CopyToHost(host, device, count * sizeof(T), StreamOf(c)));
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_GPU_OP_H_
