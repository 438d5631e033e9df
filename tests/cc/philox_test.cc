// Philox4x32-10 against the known answers of Random123 (kat_vectors).
#include "core/philox.h"

#include <cstdint>

#include "check.h"

namespace tfxclass {
namespace {

void KnownAnswerOfZeros() {
  Philox random(0, 0);
  CHECK(random.Next() == 0x6627e8d5u);
  CHECK(random.Next() == 0xe169c58du);
  CHECK(random.Next() == 0xbc57ac4cu);
  CHECK(random.Next() == 0x9b00dbd8u);
}

// The counter cannot be set but for its upper half, the stream. Against the
// rounds of the paper, written out apart.
void Reference(const uint32_t counter[4], const uint32_t key[2],
               uint32_t out[4]) {
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const uint64_t p0 = uint64_t{0xD2511F53u} * x0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x2;
    const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
    const uint32_t y2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x1 = static_cast<uint32_t>(p1);
    x3 = static_cast<uint32_t>(p0);
    x0 = y0;
    x2 = y2;
  }
  out[0] = x0;
  out[1] = x1;
  out[2] = x2;
  out[3] = x3;
}

void ReferenceGivesThePublishedVectors() {
  const uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
  const uint32_t pi[4] = {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u};
  const uint32_t pi_key[2] = {0xa4093822u, 0x299f31d0u};
  uint32_t out[4];
  Reference(ones, ones, out);
  CHECK(out[0] == 0x408f276du && out[1] == 0x41c83b0eu);
  CHECK(out[2] == 0xa20bc7c6u && out[3] == 0x6d5451fdu);
  Reference(pi, pi_key, out);
  CHECK(out[0] == 0xd16cfe09u && out[1] == 0x94fdccebu);
  CHECK(out[2] == 0x5001e420u && out[3] == 0x24126ea1u);
}

void AnyKeyAndStreamFollowTheReference() {
  const uint64_t key = 0x299f31d0a4093822u, stream = 0x0370734413198a2eu;
  Philox random(key, stream);
  for (uint32_t n = 0; n < 100; ++n) {
    const uint32_t counter[4] = {n, 0, 0x13198a2eu, 0x03707344u};
    const uint32_t halves[2] = {0xa4093822u, 0x299f31d0u};
    uint32_t out[4];
    Reference(counter, halves, out);
    for (int i = 0; i < 4; ++i) CHECK(random.Next() == out[i]);
  }
}

void BelowAndUniformStayInRangeAndSpread() {
  Philox random(7, 3);
  int counts[7] = {0};
  double sum = 0;
  for (int i = 0; i < 70000; ++i) {
    const int64_t value = random.Below(7);
    CHECK(value >= 0 && value < 7);
    ++counts[value];
    const double uniform = random.Uniform();
    CHECK(uniform > 0 && uniform < 1);
    sum += uniform;
  }
  for (const int count : counts) CHECK(count > 9500 && count < 10500);
  CHECK(sum / 70000 > 0.495 && sum / 70000 < 0.505);
  CHECK(random.Below(1) == 0);
  const int64_t huge = INT64_MAX;
  for (int i = 0; i < 100; ++i) CHECK(random.Below(huge) >= 0);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::KnownAnswerOfZeros();
  tfxclass::ReferenceGivesThePublishedVectors();
  tfxclass::AnyKeyAndStreamFollowTheReference();
  tfxclass::BelowAndUniformStayInRangeAndSpread();
}
