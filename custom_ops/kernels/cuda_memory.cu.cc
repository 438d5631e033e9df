#include "kernels/cuda_memory.cu.h"

#include <atomic>
#include <vector>

#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

#ifdef TFXCLASS_EMULATE_CUDA

namespace {

// Copies are made as late as a GPU may make them, when their thread waits.
// Until then what the host has is garbage.
struct StartedCopy {
  void* to;
  const void* from;        // of the host; or null:
  std::vector<char> read;  // what the device had
  size_t bytes;
};

thread_local std::vector<StartedCopy> started;

std::atomic<int64_t> num_waits{0};

}  // namespace

// For tests of how often an op waits.
extern "C" int64_t tfxclass_emulated_waits() { return num_waits; }

GpuStatus StartCopyToHost(void* host, const void* device, size_t bytes,
                          GpuStream) {
  const char* const from = static_cast<const char*>(device);
  started.push_back({host, nullptr, {from, from + bytes}, bytes});
  std::memset(host, 0xff, bytes);
  return nullptr;
}

GpuStatus StartCopyToDevice(void* device, const void* host, size_t bytes,
                            GpuStream) {
  started.push_back({device, host, {}, bytes});
  return nullptr;
}

GpuStatus WaitFor(GpuStream) {
  ++num_waits;
  for (const StartedCopy& copy : started) {
    std::memcpy(copy.to, copy.from ? copy.from : copy.read.data(), copy.bytes);
  }
  started.clear();
  return nullptr;
}

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
