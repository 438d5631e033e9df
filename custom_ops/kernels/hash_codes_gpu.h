// Hash functions that were drawn on the host, for the device.
#ifndef TFXCLASS_KERNELS_HASH_CODES_GPU_H_
#define TFXCLASS_KERNELS_HASH_CODES_GPU_H_

#include <vector>

#include "core/hash_functions.h"
#include "kernels/cuda_memory.cu.h"
#include "kernels/hash_codes.cu.h"

namespace tfxclass {

// The memory is that of `memory`, which must outlive this.
class GpuHashFunctions {
 public:
  GpuStatus Upload(const HashFunctions& functions, Scratch* memory,
                   GpuStream stream) {
    options_ = functions.options();
    if (options_.family == HashFamily::kDwta) {
      bin_size_ = functions.bins().bin_size();
      return Copy(functions.bins().coordinates(), memory, stream,
                  &coordinates_);
    }
    if (options_.family == HashFamily::kSimHash) {
      return Copy(functions.planes(), memory, stream, &planes_);
    }
    return Copy(Dense(functions.sparse_planes(), functions.dim()), memory,
                stream, &planes_);
  }

  // codes [num_tables, vectors.count]
  GpuStatus Codes(const HashedVectors& vectors, int32_t* codes,
                  GpuStream stream) const {
    if (options_.family == HashFamily::kDwta) {
      return DwtaCodes(vectors, coordinates_, bin_size_,
                       options_.function_bits(), options_.seed,
                       options_.num_hashes, options_.num_tables, codes, stream);
    }
    return SimHashCodes(vectors, planes_, options_.num_hashes,
                        options_.num_tables, codes, stream);
  }

 private:
  template <class T>
  static GpuStatus Copy(const std::vector<T>& values, Scratch* memory,
                        GpuStream stream, T** on_device) {
    *on_device = memory->Get<T>(values.size());
    if (*on_device == nullptr) return kNoScratch;
    return CopyToDevice(*on_device, values.data(), values.size() * sizeof(T),
                        stream);
  }

  static std::vector<float> Dense(const SparsePlanes& sparse, int64_t dim) {
    const int64_t size = SparsePlaneSize(dim);
    const int64_t count = sparse.num_positive.size();
    std::vector<float> planes(count * dim, 0.0f);
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t i = 0; i < size; ++i) {
        planes[p * dim + sparse.coordinates[p * size + i]] =
            i < sparse.num_positive[p] ? 1.0f : -1.0f;
      }
    }
    return planes;
  }

  HashOptions options_;
  float* planes_ = nullptr;
  int32_t* coordinates_ = nullptr;
  int64_t bin_size_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_HASH_CODES_GPU_H_
