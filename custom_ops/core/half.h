// float16 as its bits.
#ifndef TFXCLASS_CORE_HALF_H_
#define TFXCLASS_CORE_HALF_H_

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace tfxclass {

struct Half {
  uint16_t bits;
};

TFXCLASS_HD inline float ToFloat(Half x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  float value;
  memcpy(&value, &magnitude, sizeof(value));
  // The exponents' biases are 15 and 127. A product is right for subnormals.
  value *= 0x1p112f;
  uint32_t wide;
  memcpy(&wide, &value, sizeof(wide));
  if ((x.bits & 0x7c00u) == 0x7c00u) wide |= 0x7f800000u;  // infinity, NaN
  wide |= static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

// Rounded to nearest even; NaN stays NaN.
TFXCLASS_HD inline Half ToHalf(float x) {
  uint32_t wide;
  memcpy(&wide, &x, sizeof(wide));
  const uint32_t sign = wide >> 16 & 0x8000u;
  wide &= 0x7fffffffu;
  uint32_t bits;
  if (wide > 0x7f800000u) {
    bits = 0x7e00u;
  } else if (wide >= 0x477ff000u) {  // 65520, which rounds to infinity
    bits = 0x7c00u;
  } else if (wide < 0x38800000u) {  // 2^-14: below it are subnormals
    float magnitude;
    memcpy(&magnitude, &wide, sizeof(magnitude));
    // The last bit of a float in [0.5, 1) is that of a subnormal, 2^-24.
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, sizeof(bits));
    bits -= 0x3f000000u;
  } else {
    bits = (wide - (112u << 23) + 0xfffu + (wide >> 13 & 1)) >> 13;
  }
  return {static_cast<uint16_t>(sign | bits)};
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_HALF_H_
