#include "kernels/cuda_memory.cu.h"

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

#ifdef TFXCLASS_EMULATE_CUDA

GpuStatus CopyToHost(void* host, const void* device, size_t bytes, GpuStream) {
  std::memcpy(host, device, bytes);
  return nullptr;
}

GpuStatus CopyToDevice(void* device, const void* host, size_t bytes,
                       GpuStream) {
  std::memcpy(device, host, bytes);
  return nullptr;
}

#else

namespace {

GpuStatus CopyAndWait(void* to, const void* from, size_t bytes,
                      cudaMemcpyKind kind, GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(
      CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, stream)));
  return CudaStatus(cudaStreamSynchronize(stream));
}

}  // namespace

GpuStatus CopyToHost(void* host, const void* device, size_t bytes,
                     GpuStream stream) {
  return CopyAndWait(host, device, bytes, cudaMemcpyDeviceToHost, stream);
}

GpuStatus CopyToDevice(void* device, const void* host, size_t bytes,
                       GpuStream stream) {
  return CopyAndWait(device, host, bytes, cudaMemcpyHostToDevice, stream);
}

#endif

GpuStatus FillInDevice(void* data, int byte, size_t bytes, GpuStream stream) {
  return FillBytes(data, byte, bytes, stream);
}

GpuStatus CopyInDevice(void* to, const void* from, size_t bytes,
                       GpuStream stream) {
  return CopyOnDevice(to, from, bytes, stream);
}

}  // namespace tfxclass
