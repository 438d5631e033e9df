// What the CUDA kernels share: launches, warp sums, 16-bit floats, sorting.
//
// With TFXCLASS_EMULATE_CUDA the same sources are compiled by a C++ compiler
// and run on the processor, with a cuda_runtime.h that emulates CUDA, so that
// they can be tested where there is no GPU. Hence no `<<<>>>`, and `__shared__`
// arrays of run-time size by TFXCLASS_DYNAMIC_SHARED alone.
#ifndef TFXCLASS_KERNELS_CUDA_UTILS_CU_H_
#define TFXCLASS_KERNELS_CUDA_UTILS_CU_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/bf16.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

#ifdef TFXCLASS_EMULATE_CUDA

#define TFXCLASS_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::cuda_emulator::shared_memory())

template <class... Params, class... Args>
GpuStatus Launch(void (*kernel)(Params...), int64_t blocks, int threads,
                 size_t shared_bytes, GpuStream, const Args&... args) {
  return ::cuda_emulator::Run(blocks, threads, shared_bytes,
                              [&] { kernel(static_cast<Params>(args)...); });
}

template <class Kernel>
GpuStatus MostSharedBytes(Kernel*, int64_t* bytes) {
  *bytes = ::cuda_emulator::kMostDynamicBytes;
  return nullptr;
}

#else

#define TFXCLASS_DYNAMIC_SHARED(type, name)                        \
  extern __shared__ __align__(16) unsigned char tfxclass_shared[]; \
  type* const name = reinterpret_cast<type*>(tfxclass_shared)

inline GpuStatus CudaStatus(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// One-dimensional grids: they may have 2^31 - 1 blocks. No blocks: nothing.
template <class... Params, class... Args>
GpuStatus Launch(void (*kernel)(Params...), int64_t blocks, int threads,
                 size_t shared_bytes, GpuStream stream, const Args&... args) {
  if (blocks <= 0) return nullptr;
  if (blocks > INT32_MAX) return "more blocks than a CUDA grid may have";
  if (shared_bytes > 48 << 10) {
    TFXCLASS_RETURN_IF_GPU_ERROR(CudaStatus(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shared_bytes))));
  }
  // clang-format off
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(
      static_cast<Params>(args)...);
  // clang-format on
  return CudaStatus(cudaPeekAtLastError());
}

// Sets *bytes to the shared memory that a launch of `kernel` may ask for. Not
// all GPUs have as much: 227 KiB of the H200's block, 99 KiB of the L4's.
template <class Kernel>
GpuStatus MostSharedBytes(Kernel* kernel, int64_t* bytes) {
  int device = 0, of_block = 0;
  cudaFuncAttributes of_kernel;
  TFXCLASS_RETURN_IF_GPU_ERROR(CudaStatus(cudaGetDevice(&device)));
  TFXCLASS_RETURN_IF_GPU_ERROR(CudaStatus(cudaDeviceGetAttribute(
      &of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      CudaStatus(cudaFuncGetAttributes(&of_kernel, kernel)));
  *bytes = of_block - static_cast<int64_t>(of_kernel.sharedSizeBytes);
  return nullptr;
}

#endif

// A thread for each of `count` elements.
template <class... Params, class... Args>
GpuStatus LaunchEach(void (*kernel)(Params...), int64_t count, GpuStream stream,
                     const Args&... args) {
  constexpr int kThreads = 256;
  return Launch(kernel, CeilDiv(count, kThreads), kThreads, 0, stream, args...);
}

// Sets `bytes` of device memory to `value`.
inline GpuStatus FillBytes(void* data, int value, size_t bytes,
                           GpuStream stream) {
  if (bytes == 0) return nullptr;
#ifdef TFXCLASS_EMULATE_CUDA
  std::memset(data, value, bytes);
  return nullptr;
#else
  return CudaStatus(cudaMemsetAsync(data, value, bytes, stream));
#endif
}

inline GpuStatus CopyOnDevice(void* to, const void* from, size_t bytes,
                              GpuStream stream) {
  if (bytes == 0) return nullptr;
#ifdef TFXCLASS_EMULATE_CUDA
  std::memmove(to, from, bytes);
  return nullptr;
#else
  return CudaStatus(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
#endif
}

// Of the grid, in one dimension.
__device__ __forceinline__ int64_t ThreadNumber() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t WarpNumber() {
  return ThreadNumber() / kWarp;
}
__device__ __forceinline__ int Lane() { return threadIdx.x % kWarp; }

// In every lane, in one order: deterministic. All lanes must call.
template <class T>
__device__ __forceinline__ T WarpSum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <class T>
__device__ __forceinline__ T WarpMax(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_CUDA_UTILS_CU_H_
