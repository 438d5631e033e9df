// Copies between host and device.
#ifndef TFXCLASS_KERNELS_CUDA_MEMORY_CU_H_
#define TFXCLASS_KERNELS_CUDA_MEMORY_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// Both wait until the stream has come so far: `host` may be used at once.
GpuStatus CopyToHost(void* host, const void* device, size_t bytes,
                     GpuStream stream);
GpuStatus CopyToDevice(void* device, const void* host, size_t bytes,
                       GpuStream stream);
// Start copies: the host may use `host` once it has waited for the stream.
GpuStatus StartCopyToHost(void* host, const void* device, size_t bytes,
                          GpuStream stream);
GpuStatus StartCopyToDevice(void* device, const void* host, size_t bytes,
                            GpuStream stream);
GpuStatus WaitFor(GpuStream stream);
// Do not wait.
GpuStatus FillInDevice(void* data, int byte, size_t bytes, GpuStream stream);
GpuStatus CopyInDevice(void* to, const void* from, size_t bytes,
                       GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_CUDA_MEMORY_CU_H_
