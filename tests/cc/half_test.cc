// float16 as its bits: each number is exact, and floats between are rounded.
#include "core/half.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "check.h"

namespace tfxclass {
namespace {

float FloatOf(int bits) { return ToFloat(Half{static_cast<uint16_t>(bits)}); }

void TestEachNumberAndWhatIsBetween() {
  constexpr int kInfinity = 0x7c00;
  CHECK(FloatOf(1) == 0x1p-24f && FloatOf(0x3c00) == 1.0f);
  CHECK(FloatOf(kInfinity - 1) == 65504.0f && std::isinf(FloatOf(kInfinity)));
  for (int bits = 0; bits < kInfinity; ++bits) {
    const float x = FloatOf(bits);
    // The number after 65504 would be 65536; infinity has its bits.
    const float next = bits + 1 < kInfinity ? FloatOf(bits + 1) : 65536.0f;
    const float middle = (x + next) / 2;
    CHECK(next > x);
    for (const int sign : {0, 0x8000}) {
      const float s = sign ? -1 : 1;
      CHECK(FloatOf(bits | sign) == s * x);
      CHECK(ToHalf(s * x).bits == (bits | sign));
      CHECK(ToHalf(s * std::nextafter(middle, x)).bits == (bits | sign));
      CHECK(ToHalf(s * middle).bits == ((bits + bits % 2) | sign));
      CHECK(ToHalf(s * std::nextafter(middle, next)).bits ==
            ((bits + 1) | sign));
    }
  }
}

void TestWhatIsNotFinite() {
  for (const float s : {1.0f, -1.0f}) {
    CHECK(std::isnan(FloatOf(ToHalf(s * std::nanf("")).bits)));
    for (const float x : {1e30f, std::numeric_limits<float>::infinity()}) {
      CHECK(FloatOf(ToHalf(s * x).bits) ==
            s * std::numeric_limits<float>::infinity());
    }
  }
  CHECK(std::isnan(FloatOf(0x7e00)) && std::isnan(FloatOf(0xfc01)));
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::TestEachNumberAndWhatIsBetween();
  tfxclass::TestWhatIsNotFinite();
  return 0;
}
