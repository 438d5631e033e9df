// Copies arrays of the host to the device through page-locked memory.
//
// The device reads such memory at the full speed of the bus. While it reads one
// piece, threads of the host copy the next one there. Without page-locked
// memory arrays are copied from where they lie.
#ifndef TFXCLASS_KERNELS_DEVICE_WRITER_H_
#define TFXCLASS_KERNELS_DEVICE_WRITER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_memory.cu.h"

namespace tfxclass {

class DeviceWriter {
 public:
  static constexpr int64_t kPieceBytes = int64_t{8} << 20;

  // `page_locked` of the host, which may have none, must outlive this.
  DeviceWriter(Scratch* page_locked, const ParallelFor& parallel,
               GpuStream stream, int64_t piece_bytes = kPieceBytes)
      : parallel_(parallel),
        stream_(stream),
        piece_bytes_(piece_bytes),
        pieces_(page_locked->Get<char>(2 * piece_bytes)) {}
  DeviceWriter(const DeviceWriter&) = delete;
  DeviceWriter& operator=(const DeviceWriter&) = delete;
  // The device must not read what is used again.
  ~DeviceWriter() { WaitFor(stream_); }

  // `from` may be changed when it returns; `to` has all only after Finish.
  template <class T, class Allocator>
  GpuStatus Write(const std::vector<T, Allocator>& from, T* to) {
    return WriteBytes(reinterpret_cast<const char*>(from.data()),
                      from.size() * sizeof(T), reinterpret_cast<char*>(to));
  }

  // All are there, or why not.
  GpuStatus Finish() { return WaitFor(stream_); }

 private:
  GpuStatus WriteBytes(const char* from, int64_t bytes, char* to) {
    if (pieces_ == nullptr) return CopyToDevice(to, from, bytes, stream_);
    for (int64_t first = 0; first < bytes; first += piece_bytes_) {
      const int64_t n = std::min(piece_bytes_, bytes - first);
      char* const piece = pieces_ + (num_written_++ % 2) * piece_bytes_;
      CopyOnHost(piece, from + first, n);
      // After that the device reads this piece alone, and the other is free.
      TFXCLASS_RETURN_IF_GPU_ERROR(WaitFor(stream_));
      TFXCLASS_RETURN_IF_GPU_ERROR(
          StartCopyToDevice(to + first, piece, n, stream_));
    }
    return nullptr;
  }

  void CopyOnHost(char* to, const char* from, int64_t bytes) const {
    constexpr int64_t kPage = 4096, kPageNanoseconds = 400;
    const int64_t pages = (bytes + kPage - 1) / kPage;
    parallel_(pages, kPageNanoseconds, [=](int64_t begin, int64_t end) {
      const int64_t first = begin * kPage;
      std::memcpy(to + first, from + first,
                  std::min(end * kPage, bytes) - first);
    });
  }

  const ParallelFor parallel_;
  const GpuStream stream_;
  const int64_t piece_bytes_;
  char* const pieces_;  // two
  int64_t num_written_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_DEVICE_WRITER_H_
