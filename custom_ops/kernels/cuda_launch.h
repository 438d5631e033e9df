// What a launcher takes and gives, without CUDA: for the ops and the tests.
//
// A launcher (kernels/*.cu.h) puts its work on `stream` and returns at once:
// null, or a message where a launch or a scratch buffer failed. Pointers are
// the device's. Scratch memory may be used again by what comes after it on the
// same stream.
#ifndef TFXCLASS_KERNELS_CUDA_LAUNCH_H_
#define TFXCLASS_KERNELS_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

struct CUstream_st;

namespace tfxclass {

using GpuStream = CUstream_st*;
using GpuStatus = const char*;

class Scratch {
 public:
  virtual ~Scratch() = default;

  // Null if there is no memory.
  template <class T>
  T* Get(int64_t count) {
    return static_cast<T*>(GetBytes(count * sizeof(T)));
  }

 protected:
  // Aligned to 256 bytes.
  virtual void* GetBytes(size_t bytes) = 0;
};

// For loops: the memory that the first round took serves the others.
class ReusedScratch : public Scratch {
 public:
  explicit ReusedScratch(Scratch* inner) : inner_(inner) {}
  void Reuse() { next_ = 0; }

 protected:
  void* GetBytes(size_t bytes) override {
    if (next_ == pieces_.size() || pieces_[next_].bytes < bytes) {
      void* const data = inner_->Get<char>(bytes);
      if (data == nullptr) return nullptr;
      pieces_.insert(pieces_.begin() + next_, {data, bytes});
    }
    return pieces_[next_++].data;
  }

 private:
  struct Piece {
    void* data;
    size_t bytes;
  };
  Scratch* const inner_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

constexpr GpuStatus kNoScratch = "no device memory for scratch buffers";

#define TFXCLASS_RETURN_IF_GPU_ERROR(expression)           \
  do {                                                     \
    const ::tfxclass::GpuStatus gpu_status = (expression); \
    if (gpu_status != nullptr) return gpu_status;          \
  } while (false)

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_CUDA_LAUNCH_H_
