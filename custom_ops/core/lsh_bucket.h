// Where a code of LSH tables lies, and what stays in a full bucket.
#ifndef TFXCLASS_CORE_LSH_BUCKET_H_
#define TFXCLASS_CORE_LSH_BUCKET_H_

#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

// Of 2^range_bits: the code itself, or a hash of it where it is longer.
TFXCLASS_HD inline int32_t LshBucket(uint32_t code, int code_bits,
                                     int range_bits) {
  if (code_bits <= range_bits) return static_cast<int32_t>(code);
  return static_cast<int32_t>((code * 0x9E3779B97F4A7C15ull) >>
                              (64 - range_bits));
}

// By which a full bucket keeps the least ids.
TFXCLASS_HD inline uint64_t BucketPriority(uint64_t seed, int64_t table,
                                           int32_t id) {
  uint64_t x = seed + (static_cast<uint64_t>(table) << 32 | id);
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_LSH_BUCKET_H_
