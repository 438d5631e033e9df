// What the indexes on the GPU share.
//
// An index is built on the host by its own thread, from what the device
// computes of the rows where a refresh begins (device_rows.h: the step waits
// for that), and copied to the device by the first query that sees it. Ids that
// are marked are read by the host at each step. Everything that is saved lies
// on the host.
#ifndef TFXCLASS_KERNELS_GPU_INDEX_H_
#define TFXCLASS_KERNELS_GPU_INDEX_H_

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/device_rows.h"
#include "kernels/gpu_op.h"
#include "kernels/index_op.h"

namespace tfxclass {

// The rows of a variable on the GPU. TensorFlow keeps page-locked memory that
// was given back, so that refreshes use the same again.
class RowsOnGpu {
 public:
  // A new index is copied to the device as a whole, so it comes at once.
  static constexpr bool kInPlace = false;

  RowsOnGpu(tensorflow::OpKernelContext* c, const tensorflow::Tensor& kernel)
      : on_device_(c),
        page_locked_(c, OpScratch::kPageLocked),
        rows_{kernel.flat<float>().data(),
              kernel.dim_size(0),
              kernel.dim_size(1),
              {&on_device_, &page_locked_, StreamOf(c)}} {}

  const DeviceRows& rows() const { return rows_; }
  absl::Status status() const { return ToStatus(rows_.status); }

 private:
  OpScratch on_device_, page_locked_;
  const DeviceRows rows_;
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
                    IndexRestoreOp<Indexer, RowsOnGpu>)

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_GPU_INDEX_H_
