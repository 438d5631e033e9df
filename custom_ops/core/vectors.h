// Dot products on rows padded to a multiple of kLanes floats.
#ifndef TFXCLASS_CORE_VECTORS_H_
#define TFXCLASS_CORE_VECTORS_H_

#include <cstdint>
#include <cstring>

namespace tfxclass {

constexpr int64_t kLanes = 8;

// Eight floats; GCC and clang map it on what the processor has.
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

inline float SumLanes(Lanes v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline int64_t PaddedDim(int64_t dim) {
  return (dim + kLanes - 1) / kLanes * kLanes;
}

// Four sums run side by side to hide the latency of an addition.
inline float DotPadded(const float* a, const float* b, int64_t padded) {
  Lanes s0{}, s1{}, s2{}, s3{};
  int64_t i = 0;
  for (; i + 4 * kLanes <= padded; i += 4 * kLanes) {
    s0 += LoadLanes(a + i) * LoadLanes(b + i);
    s1 += LoadLanes(a + i + kLanes) * LoadLanes(b + i + kLanes);
    s2 += LoadLanes(a + i + 2 * kLanes) * LoadLanes(b + i + 2 * kLanes);
    s3 += LoadLanes(a + i + 3 * kLanes) * LoadLanes(b + i + 3 * kLanes);
  }
  for (; i < padded; i += kLanes) s0 += LoadLanes(a + i) * LoadLanes(b + i);
  return SumLanes((s0 + s1) + (s2 + s3));
}

// For rows as the user has them, of any length.
inline float Dot(const float* a, const float* b, int64_t dim) {
  const int64_t whole = dim / kLanes * kLanes;
  float sum = DotPadded(a, b, whole);
  for (int64_t i = whole; i < dim; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_VECTORS_H_
