// Exclusive access to the variables that an optimizer step writes.
#ifndef TFXCLASS_KERNELS_ROW_VARIABLES_H_
#define TFXCLASS_KERNELS_ROW_VARIABLES_H_

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernel_utils.h"

namespace tfxclass {

// A copy for MakeWritable, on the host.
inline absl::Status CopyBytes(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

// The variables behind consecutive inputs of an op, locked until destroyed.
//
// Reads may share a variable's buffer; MakeWritable copies it then, as
// TensorFlow's dense updates do. We do not switch to copy-on-read, as its
// sparse updates do: every later read of the whole matrix would be a copy.
class RowVariables {
 public:
  RowVariables() = default;
  RowVariables(const RowVariables&) = delete;
  RowVariables& operator=(const RowVariables&) = delete;
  ~RowVariables() {
    for (tensorflow::Var* variable : locked_) variable->mu()->unlock();
  }

  // Once only. Fails where two inputs are the same variable.
  absl::Status Lock(tensorflow::OpKernelContext* context, int first,
                    int count) {
    variables_.resize(count);
    std::vector<tensorflow::Var*> order;
    for (int i = 0; i < count; ++i) {
      TF_RETURN_IF_ERROR(LookupVariable(context, first + i, &variables_[i]));
      order.push_back(variables_[i].get());
    }
    // By rising address of the mutex, like every op of TensorFlow: no deadlock.
    std::sort(order.begin(), order.end(),
              [](auto* a, auto* b) { return a->mu() < b->mu(); });
    if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
      return absl::InvalidArgumentError(
          "The variable and its slots must be different variables. Received: "
          "one of them twice");
    }
    for (tensorflow::Var* variable : order) variable->mu()->lock();
    locked_ = std::move(order);
    return absl::OkStatus();
  }

  int size() const { return static_cast<int>(variables_.size()); }
  const tensorflow::Tensor& operator[](int i) const {
    return *variables_[i]->tensor();
  }
  template <class T>
  T* data(int i) {
    return variables_[i]->tensor()->flat<T>().data();
  }

  void* bytes(int i) { return variables_[i]->tensor()->data(); }

  absl::Status CheckInitialized() const {
    for (const auto& variable : variables_) {
      if (variable->is_initialized) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "The variable and its slots must be initialised. Received: ",
          variable->DebugString()));
    }
    return absl::OkStatus();
  }

  // copy(to, from, bytes) copies the memory of a tensor. `*copied_bytes` are
  // those of the first variable, the matrix; 0 without a copy.
  template <class Copy>
  absl::Status MakeWritable(tensorflow::OpKernelContext* context,
                            const Copy& copy_bytes,
                            size_t* copied_bytes = nullptr) {
    if (copied_bytes != nullptr) *copied_bytes = 0;
    for (const auto& variable : variables_) {
      tensorflow::Tensor* tensor = variable->tensor();
      if (variable->copy_on_read_mode.load() || tensor->RefCountIsOne() ||
          tensor->NumElements() == 0) {
        continue;
      }
      tensorflow::AllocatorAttributes attributes;
      attributes.set_nic_compatible(true);
      tensorflow::Tensor copy;
      TF_RETURN_IF_ERROR(context->allocate_temp(
          tensor->dtype(), tensor->shape(), &copy, attributes));
      TF_RETURN_IF_ERROR(
          copy_bytes(copy.data(), tensor->data(), tensor->TotalBytes()));
      *tensor = copy;
      if (copied_bytes != nullptr && variable == variables_.front()) {
        *copied_bytes = copy.TotalBytes();
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<tensorflow::Var*> locked_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ROW_VARIABLES_H_
