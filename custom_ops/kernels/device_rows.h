// Class vectors on a GPU, as the builds of indexes on the host read them.
//
// The device computes what a build needs of each row: hash codes, or a
// direction in 8 bits a number. Only that is copied to the host, some rows at a
// time, through page-locked memory, which the device writes at the full speed
// of the bus. While the host takes the rows of one copy, the device computes
// and copies the next ones.
#ifndef TFXCLASS_KERNELS_DEVICE_ROWS_H_
#define TFXCLASS_KERNELS_DEVICE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_memory.cu.h"

namespace tfxclass {

// Copies to the host what the device computes of rows.
struct RowCopier {
  Scratch* on_device;
  Scratch* page_locked;  // of the host; may have none
  GpuStream stream;
  int64_t copy_bytes = int64_t{8} << 20;

  // compute(first, n, to) puts `row_bytes` bytes of each of the rows
  // [first, first + n) to where the device has room, and returns a GpuStatus.
  // take(first, n, from) has them on the host. At most copy_bytes at a time,
  // or one row.
  template <class Compute, class Take>
  GpuStatus Copy(int64_t count, int64_t row_bytes, const Compute& compute,
                 const Take& take) const {
    if (count == 0) return nullptr;
    const int64_t together =
        std::min(count, std::max<int64_t>(copy_bytes / row_bytes, 1));
    char* const computed = on_device->Get<char>(together * row_bytes);
    if (computed == nullptr) return kNoScratch;
    std::vector<char> pageable;
    char* copies = page_locked->Get<char>(2 * together * row_bytes);
    if (copies == nullptr) {
      pageable.resize(2 * together * row_bytes);
      copies = pageable.data();
    }
    const auto copy_of = [&](int64_t first) {
      return copies + first / together % 2 * together * row_bytes;
    };
    const auto num_from = [&](int64_t first) {
      return std::min(together, count - first);
    };
    const auto start = [&](int64_t first) -> GpuStatus {
      const int64_t n = num_from(first);
      TFXCLASS_RETURN_IF_GPU_ERROR(compute(first, n, computed));
      return StartCopyToHost(copy_of(first), computed, n * row_bytes, stream);
    };
    TFXCLASS_RETURN_IF_GPU_ERROR(start(0));
    for (int64_t first = 0; first < count; first += together) {
      TFXCLASS_RETURN_IF_GPU_ERROR(WaitFor(stream));
      if (first + together < count) {
        TFXCLASS_RETURN_IF_GPU_ERROR(start(first + together));
      }
      take(first, num_from(first), copy_of(first));
    }
    return nullptr;
  }
};

// Rows [count, dim] of the device.
struct DeviceRows {
  const float* values;
  int64_t count, dim;
  RowCopier copier;
  mutable GpuStatus status = nullptr;  // why they could not be read

  // Whether that worked; keeps why not.
  bool Succeeded(GpuStatus result) const {
    status = result;
    return result == nullptr;
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_DEVICE_ROWS_H_
