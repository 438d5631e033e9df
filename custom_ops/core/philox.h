// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
//
// The n-th number is a function of (key, n) alone, so a result never depends
// on the thread count. Copying is cheap; not thread-safe, use one a thread.
#ifndef TFXCLASS_CORE_PHILOX_H_
#define TFXCLASS_CORE_PHILOX_H_

#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

class Philox {
 public:
  // Streams with different (key, stream) are independent.
  TFXCLASS_HD explicit Philox(uint64_t key, uint64_t stream = 0)
      : key_(key), stream_(stream) {}

  // Goes on from the numbers 4 block, 4 block + 1, ...
  TFXCLASS_HD void Seek(uint64_t block) {
    counter_ = block;
    used_ = 4;
  }

  TFXCLASS_HD uint32_t Next() {
    if (used_ == 4) Refill();
    return block_[used_++];
  }

  TFXCLASS_HD uint64_t Next64() {
    const uint64_t high = Next();
    return high << 32 | Next();
  }

  // Uniform in [0, bound) without the bias of a remainder that matters:
  // bound / 2^64 at most.
  TFXCLASS_HD int64_t Below(int64_t bound) {
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(Next64()) * bound) >> 64);
  }

  // Uniform in (0, 1), never 0 or 1.
  TFXCLASS_HD double Uniform() { return (Next() + 0.5) * (1.0 / 4294967296.0); }

  // The same with 52 bits, where rare events must be told apart.
  TFXCLASS_HD double UniformDouble() {
    return ((Next64() >> 12) + 0.5) * (1.0 / 4503599627370496.0);
  }

 private:
  TFXCLASS_HD void Refill() {
    uint32_t k0 = static_cast<uint32_t>(key_), k1 = key_ >> 32;
    uint32_t c[4] = {
        static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
        static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
      const uint32_t next[4] = {
          static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
      for (int i = 0; i < 4; ++i) c[i] = next[i];
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) block_[i] = c[i];
    used_ = 0;
    ++counter_;
  }

  uint64_t key_, stream_, counter_ = 0;
  uint32_t block_[4];
  int used_ = 4;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PHILOX_H_
