// Dot products on rows padded to a multiple of kLanes floats, and maxima.
#ifndef TFXCLASS_CORE_VECTORS_H_
#define TFXCLASS_CORE_VECTORS_H_

#include <cstdint>
#include <cstring>
#include <limits>

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

inline Lanes MaxLanes(Lanes a, Lanes b) { return b > a ? b : a; }

// The greatest of x, NaN left out; -infinity where there is none. Written out:
// compilers leave a loop of std::max scalar, 20 times as slow.
inline float MaxOf(const float* x, int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr int kChains = 4;
  Lanes best[kChains];
  for (Lanes& lanes : best) lanes = Lanes{} + kLowest;
  int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (int j = 0; j < kChains; ++j) {
      best[j] = MaxLanes(best[j], LoadLanes(x + i + j * kLanes));
    }
  }
  const Lanes all =
      MaxLanes(MaxLanes(best[0], best[1]), MaxLanes(best[2], best[3]));
  float top = kLowest;
  for (int64_t l = 0; l < kLanes; ++l) top = all[l] > top ? all[l] : top;
  for (; i < count; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// The greatest |x|; NaN is left out, 0 where there is none.
inline float LargestOf(const float* x, int64_t count) {
  Lanes best{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes value = LoadLanes(x + i);
    best = MaxLanes(best, MaxLanes(value, -value));
  }
  float top = 0;
  for (int64_t l = 0; l < kLanes; ++l) top = best[l] > top ? best[l] : top;
  for (; i < count; ++i) {
    const float value = x[i] < 0 ? -x[i] : x[i];
    top = value > top ? value : top;
  }
  return top;
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

// a . b, and b . b, in one pass.
inline float DotAndSquare(const float* a, const float* b, int64_t dim,
                          float* square) {
  Lanes s0{}, s1{}, q0{}, q1{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
    const Lanes b0 = LoadLanes(b + i), b1 = LoadLanes(b + i + kLanes);
    s0 += LoadLanes(a + i) * b0;
    s1 += LoadLanes(a + i + kLanes) * b1;
    q0 += b0 * b0;
    q1 += b1 * b1;
  }
  float sum = SumLanes(s0 + s1), squares = SumLanes(q0 + q1);
  for (; i < dim; ++i) {
    sum += a[i] * b[i];
    squares += b[i] * b[i];
  }
  *square = squares;
  return sum;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_VECTORS_H_
