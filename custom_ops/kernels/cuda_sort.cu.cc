#include "kernels/cuda_sort.cu.h"

#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"

#ifdef TFXCLASS_EMULATE_CUDA
#include <algorithm>
#include <numeric>
#else
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#endif

namespace tfxclass {
namespace {

// A thread a number.
__global__ void CountUpKernel(int32_t* order, int64_t count) {
  const int64_t i = ThreadNumber();
  if (i < count) order[i] = static_cast<int32_t>(i);
}

// A thread a row; `bound` stands for all that are no rows.
__global__ void RowKeysKernel(const int64_t* rows, int64_t count, int64_t bound,
                              uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const int64_t row = rows[i];
  keys[i] = row >= 0 && row < bound ? row : bound;
}

__global__ void KeyRowsKernel(const uint64_t* keys, int64_t count,
                              int64_t bound, int64_t* rows) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const int64_t row = static_cast<int64_t>(keys[i]);
  rows[i] = row < bound ? row : -1;
}

#ifdef TFXCLASS_EMULATE_CUDA

GpuStatus Sort(const uint64_t* keys, int64_t count, int bits, uint64_t* sorted,
               const int32_t* numbers, int32_t* order, Scratch*, GpuStream) {
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  std::copy_n(numbers, count, order);
  std::stable_sort(order, order + count, [&](int32_t a, int32_t b) {
    return (keys[a] & mask) < (keys[b] & mask);
  });
  for (int64_t i = 0; i < count; ++i) sorted[i] = keys[order[i]];
  return nullptr;
}

GpuStatus Sum(const int32_t* values, int64_t count, int64_t* sums, Scratch*,
              GpuStream) {
  for (int64_t i = 0; i < count; ++i) sums[i + 1] = sums[i] + values[i];
  return nullptr;
}

#else

struct AddWide {
  __host__ __device__ int64_t operator()(int64_t a, int64_t b) const {
    return a + b;
  }
};

GpuStatus Sort(const uint64_t* keys, int64_t count, int bits, uint64_t* sorted,
               const int32_t* numbers, int32_t* order, Scratch* scratch,
               GpuStream stream) {
  size_t bytes = 0;
  const auto run = [&](void* temporary) {
    return CudaStatus(cub::DeviceRadixSort::SortPairs(
        temporary, bytes, keys, sorted, numbers, order, static_cast<int>(count),
        0, bits, stream));
  };
  TFXCLASS_RETURN_IF_GPU_ERROR(run(nullptr));
  char* temporary = scratch->Get<char>(bytes);
  if (temporary == nullptr) return kNoScratch;
  return run(temporary);
}

GpuStatus Sum(const int32_t* values, int64_t count, int64_t* sums,
              Scratch* scratch, GpuStream stream) {
  size_t bytes = 0;
  const auto run = [&](void* temporary) {
    return CudaStatus(cub::DeviceScan::InclusiveScan(
        temporary, bytes, values, sums + 1, AddWide(), count, stream));
  };
  TFXCLASS_RETURN_IF_GPU_ERROR(run(nullptr));
  char* temporary = scratch->Get<char>(bytes);
  if (temporary == nullptr) return kNoScratch;
  return run(temporary);
}

#endif

}  // namespace

GpuStatus SortKeys(const uint64_t* keys, int64_t count, int bits,
                   uint64_t* sorted, int32_t* order, Scratch* scratch,
                   GpuStream stream) {
  if (count == 0) return nullptr;
  if (count > INT32_MAX) return "more keys than 2^31 - 1";
  int32_t* numbers = scratch->Get<int32_t>(count);
  if (numbers == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(CountUpKernel, count, stream, numbers, count));
  return Sort(keys, count, bits, sorted, numbers, order, scratch, stream);
}

GpuStatus SortRows(const int64_t* rows, int64_t count, int64_t bound,
                   int64_t* sorted, int32_t* order, Scratch* scratch,
                   GpuStream stream) {
  if (count == 0) return nullptr;
  uint64_t* keys = scratch->Get<uint64_t>(count);
  uint64_t* sorted_keys = scratch->Get<uint64_t>(count);
  if (keys == nullptr || sorted_keys == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(RowKeysKernel, count, stream, rows, count, bound, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(SortKeys(keys, count, BitsOf(bound), sorted_keys,
                                        order, scratch, stream));
  return LaunchEach(KeyRowsKernel, count, stream, sorted_keys, count, bound,
                    sorted);
}

GpuStatus RunningSums(const int32_t* values, int64_t count, int64_t* sums,
                      Scratch* scratch, GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(sums, 0, sizeof(*sums), stream));
  if (count == 0) return nullptr;
  if (count > INT32_MAX) return "more values than 2^31 - 1";
  return Sum(values, count, sums, scratch, stream);
}

}  // namespace tfxclass
