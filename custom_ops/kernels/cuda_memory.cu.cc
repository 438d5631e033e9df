#include "kernels/cuda_memory.cu.h"

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

#ifdef TFXCLASS_EMULATE_CUDA

GpuStatus StartCopyToHost(void* host, const void* device, size_t bytes,
                          GpuStream) {
  std::memcpy(host, device, bytes);
  return nullptr;
}

GpuStatus StartCopyToDevice(void* device, const void* host, size_t bytes,
                            GpuStream) {
  std::memcpy(device, host, bytes);
  return nullptr;
}

GpuStatus WaitFor(GpuStream) { return nullptr; }

#else

GpuStatus StartCopyToHost(void* host, const void* device, size_t bytes,
                          GpuStream stream) {
  return CudaStatus(
      cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
}

GpuStatus StartCopyToDevice(void* device, const void* host, size_t bytes,
                            GpuStream stream) {
  return CudaStatus(
      cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

GpuStatus WaitFor(GpuStream stream) {
  return CudaStatus(cudaStreamSynchronize(stream));
}

#endif

GpuStatus CopyToHost(void* host, const void* device, size_t bytes,
                     GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(StartCopyToHost(host, device, bytes, stream));
  return WaitFor(stream);
}

GpuStatus CopyToDevice(void* device, const void* host, size_t bytes,
                       GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(StartCopyToDevice(device, host, bytes, stream));
  return WaitFor(stream);
}

GpuStatus FillInDevice(void* data, int byte, size_t bytes, GpuStream stream) {
  return FillBytes(data, byte, bytes, stream);
}

GpuStatus CopyInDevice(void* to, const void* from, size_t bytes,
                       GpuStream stream) {
  return CopyOnDevice(to, from, bytes, stream);
}

}  // namespace tfxclass
