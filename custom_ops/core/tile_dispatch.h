// The functions of core/tile_kernels.h for the processor that runs.
//
// The portable ones are compiled for what the rest is (AVX2 by default), those
// for AVX-512 beside them. Results differ between processors in the last bits,
// as those of any library of products do, but not between runs or threads.
#ifndef TFXCLASS_CORE_TILE_DISPATCH_H_
#define TFXCLASS_CORE_TILE_DISPATCH_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/tile_kernels.h"

// Keeps -fassociative-math from merging x with what is added to it.
#if defined(__clang__)
#define TFXCLASS_TILE_FENCE(x) __arithmetic_fence(x)
#else
// Not __builtin_assoc_barrier: GCC 12 takes vectors of 16 floats apart for it.
// TFXCLASS_TILE_PLACE is where a vector lies.
#define TFXCLASS_TILE_FENCE(x)           \
  __extension__({                        \
    auto held = (x);                     \
    asm("" : TFXCLASS_TILE_PLACE(held)); \
    held;                                \
  })
// Vectors are passed between inlined functions alone.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace tfxclass {
namespace portable_tiles {
#define TFXCLASS_TILE_LANES 8
#define TFXCLASS_TILE_ROWS 6
#define TFXCLASS_TILE_NAME "portable"
#if defined(__AVX__)
#define TFXCLASS_TILE_PLACE "+x"
#else
#define TFXCLASS_TILE_PLACE "+m"
#endif
#include "core/tile_kernels_impl.h"
#undef TFXCLASS_TILE_LANES
#undef TFXCLASS_TILE_ROWS
#undef TFXCLASS_TILE_NAME
#undef TFXCLASS_TILE_PLACE
}  // namespace portable_tiles

#if defined(__x86_64__) && !defined(__clang__)
#define TFXCLASS_HAS_AVX512_TILES 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace avx512_tiles {
#define TFXCLASS_TILE_LANES 16
#define TFXCLASS_TILE_ROWS 12
#define TFXCLASS_TILE_NAME "AVX-512"
#define TFXCLASS_TILE_PLACE "+v"
#include "core/tile_kernels_impl.h"
#undef TFXCLASS_TILE_LANES
#undef TFXCLASS_TILE_ROWS
#undef TFXCLASS_TILE_NAME
#undef TFXCLASS_TILE_PLACE
}  // namespace avx512_tiles
#pragma GCC pop_options
#endif

// All that run here, the fastest last.
inline int RunnableTiles(const TileKernels* found[2]) {
  int count = 0;
  found[count++] = &portable_tiles::kKernels;
#ifdef TFXCLASS_HAS_AVX512_TILES
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    found[count++] = &avx512_tiles::kKernels;
  }
#endif
  return count;
}

// Whether oneDNN is told to use no instructions beyond AVX2, as one who asks
// how fast such a processor is does.
inline bool IsLimitedToAvx2() {
  const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
  return most != nullptr &&
         (std::strncmp(most, "SSE", 3) == 0 || std::strcmp(most, "AVX") == 0 ||
          std::strncmp(most, "AVX2", 4) == 0);
}

inline const TileKernels& BestTiles() {
  static const TileKernels* const best = [] {
    const TileKernels* found[2];
    const int count = RunnableTiles(found);
    return found[IsLimitedToAvx2() ? 0 : count - 1];
  }();
  return *best;
}

}  // namespace tfxclass

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef TFXCLASS_TILE_FENCE

#endif  // TFXCLASS_CORE_TILE_DISPATCH_H_
