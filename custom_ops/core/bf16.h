// bfloat16 as its bits: the upper half of a float's.
#ifndef TFXCLASS_CORE_BF16_H_
#define TFXCLASS_CORE_BF16_H_

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace tfxclass {

struct Bf16 {
  uint16_t bits;
};

TFXCLASS_HD inline float ToFloat(Bf16 x) {
  const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}
TFXCLASS_HD inline float ToFloat(float x) { return x; }

// Rounded to nearest even; NaN stays NaN.
TFXCLASS_HD inline Bf16 ToBf16(float x) {
  uint32_t wide;
  memcpy(&wide, &x, sizeof(wide));
  if ((wide & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};
  return {static_cast<uint16_t>((wide + 0x7fffu + (wide >> 16 & 1)) >> 16)};
}

// Rounded up with a chance of what it is above the number below, in units of
// their distance: x on average. `random` has 16 random bits. Infinity and NaN
// stay what they are.
TFXCLASS_HD inline Bf16 RoundStochastically(float x, uint32_t random) {
  uint32_t wide;
  memcpy(&wide, &x, sizeof(wide));
  const bool is_finite = (wide & 0x7f800000u) != 0x7f800000u;
  // A NaN whose set bits are all in the lower half would become infinity.
  const uint32_t quiet = (wide & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0;
  const uint32_t rounded = is_finite ? wide + (random & 0xffffu) : wide | quiet;
  return {static_cast<uint16_t>(rounded >> 16)};
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_BF16_H_
