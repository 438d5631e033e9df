// What the indexes on the GPU share.
//
// An index is built on the host by its own thread, from a copy of the rows that
// is made where a refresh begins (the step waits for it), and copied to the
// device by the first query that sees it. Ids that are marked are read by the
// host at each step. Everything that is saved lies on the host.
#ifndef TFXCLASS_KERNELS_GPU_INDEX_H_
#define TFXCLASS_KERNELS_GPU_INDEX_H_

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/gpu_op.h"
#include "kernels/index_op.h"

namespace tfxclass {

class GpuRowsCopy {
 public:
  // A new index is copied to the device as a whole, so it comes at once.
  static constexpr bool kInPlace = false;

  absl::Status Read(tensorflow::OpKernelContext* c,
                    const tensorflow::Tensor& kernel, ClassRows* rows) {
    values_.resize(kernel.NumElements());
    *rows = {values_.data(), kernel.dim_size(0), kernel.dim_size(1)};
    return ReadFromDevice(c, kernel.flat<float>().data(), kernel.NumElements(),
                          values_.data());
  }

 private:
  std::vector<float> values_;
};

// Device memory that lives as long as the index it is for.
class KeptOnDevice {
 public:
  explicit KeptOnDevice(tensorflow::OpKernelContext* c) : memory_(c) {}

  Scratch* memory() { return &memory_; }

  template <class T>
  absl::Status Copy(tensorflow::OpKernelContext* c,
                    const std::vector<T>& values, const T** on_device) {
    T* const data = memory_.Get<T>(values.size());
    if (data == nullptr) return ToStatus(kNoScratch);
    *on_device = data;
    return ToStatus(CopyToDevice(data, values.data(), values.size() * sizeof(T),
                                 StreamOf(c)));
  }

 private:
  OpScratch memory_;
};

// The device's copy of `index`, which is the resource's; made when it is new.
// OnDevice(c) has Upload(c, index).
template <class OnDevice, class Indexer>
absl::Status CopyOfIndex(tensorflow::OpKernelContext* c,
                         IndexResource<Indexer>* resource,
                         const typename Refreshing<Indexer>::Shared& index,
                         std::shared_ptr<OnDevice>* copy) {
  auto& on_device = resource->on_device;
  std::lock_guard<std::mutex> lock(on_device.mutex);
  if (on_device.of != index) {
    auto made = std::make_shared<OnDevice>(c);
    TF_RETURN_IF_ERROR(made->Upload(c, *index));
    on_device.of = index;
    on_device.copy = made;
  }
  *copy = std::static_pointer_cast<OnDevice>(on_device.copy);
  return absl::OkStatus();
}

#define TFXCLASS_GPU_INDEX_KERNELS(prefix, Indexer)                           \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(prefix "Handle").HostMemory("index"),   \
                    IndexHandleOp<Indexer>);                                  \
  TFXCLASS_REGISTER(                                                          \
      TFXCLASS_GPU_NAME(prefix "Mark").HostMemory("index").HostMemory("ids"), \
      IndexMarkOp<Indexer>);                                                  \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(prefix "Times")                         \
                        .HostMemory("index")                                  \
                        .HostMemory("count")                                  \
                        .HostMemory("seconds"),                               \
                    IndexTimesOp<Indexer>);                                   \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(prefix "Save")                          \
                        .HostMemory("index")                                  \
                        .HostMemory("ready")                                  \
                        .HostMemory("pending")                                \
                        .HostMemory("steps")                                  \
                        .HostMemory("touched"),                               \
                    IndexSaveOp<Indexer>);                                    \
  TFXCLASS_REGISTER(TFXCLASS_GPU_NAME(prefix "Restore")                       \
                        .HostMemory("index")                                  \
                        .HostMemory("ready")                                  \
                        .HostMemory("pending")                                \
                        .HostMemory("steps")                                  \
                        .HostMemory("touched"),                               \
                    IndexRestoreOp<Indexer>)

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_GPU_INDEX_H_
