// Codes of the hash functions of core/hash_functions.h on the device.
//
// Vectors are [count, dim] floats, or the rows `ids` [count] of a matrix, to
// which `extra` [count], unless null, adds a last coordinate; functions are
// over all of them. codes [num_tables, count].
#ifndef TFXCLASS_KERNELS_HASH_CODES_CU_H_
#define TFXCLASS_KERNELS_HASH_CODES_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

struct HashedVectors {
  const float* values;
  const float* extra;
  int64_t count, dim;
  const int64_t* ids = nullptr;

  int64_t width() const { return dim + (extra != nullptr); }

  // Vectors [first, first + n).
  HashedVectors Part(int64_t first, int64_t n) const {
    return {ids ? values : values + first * dim,
            extra ? extra + first : nullptr, n, dim,
            ids ? ids + first : nullptr};
  }
};

// planes [num_tables * num_hashes, width], num_hashes <= 30; sparse planes are
// given with their zeros. A product near 0 may fall to the other side than on
// the processor, whose sums are in another order. 2 width flops a plane and
// vector, in float32: above about 20 planes that is what takes the time, not
// the bytes.
GpuStatus SimHashCodes(const HashedVectors& vectors, const float* planes,
                       int64_t num_hashes, int64_t num_tables, int32_t* codes,
                       GpuStream stream);

// coordinates [num_tables * num_hashes, bin_size] in [0, width); `bits` a
// function. Equal to the processor's codes.
GpuStatus DwtaCodes(const HashedVectors& vectors, const int32_t* coordinates,
                    int64_t bin_size, int bits, uint64_t seed,
                    int64_t num_hashes, int64_t num_tables, int32_t* codes,
                    GpuStream stream);

// squared [count]: the norms of the vectors without their extra coordinate, in
// the order of sums of core/lane_rows.h.
GpuStatus SquaredNormsOf(const HashedVectors& vectors, float* squared,
                         GpuStream stream);

// Squared norms [count] become the coordinates that make them `greatest`, 0
// where they are more.
GpuStatus ExtraOfNorms(float greatest, int64_t count, float* squared,
                       GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_HASH_CODES_CU_H_
