// Runs CUDA kernels on the processor, for tests where there is no GPU. Builds
// of the emulator find this header in place of CUDA's of the same name.
//
// Each thread of a block is a fiber; blocks run one after the other. A fiber
// runs until a barrier (of the block, or of its warp in a shuffle or vote), and
// the fibers go on from there in an order that changes from one barrier to the
// next, so that a missing barrier shows as a wrong result. Threads of a block
// that wait at different barriers abort the program: on a GPU they would hang.
// It says nothing about speed, and memory is the process's own. Launches that
// a GPU of compute capability 8.6 or 8.9 refuses are refused.
#ifndef TFXCLASS_GPU_TESTS_EMULATOR_CUDA_RUNTIME_H_
#define TFXCLASS_GPU_TESTS_EMULATOR_CUDA_RUNTIME_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

namespace cuda_emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

extern Index thread_index, block_index, block_size, grid_size;

constexpr int kMostThreads = 1024;
// A block has 99 KiB of shared memory. Arrays of fixed size take a part of it,
// which a C++ compiler does not tell: 2 KiB is more than they take in kernels
// that ask for memory at launch.
constexpr size_t kMostDynamicBytes = 97 << 10;

void* shared_memory();
// Null, or why a GPU would not run it.
const char* Run(int64_t blocks, int threads, size_t shared_bytes,
                const std::function<void()>& thread);

// `place` tells barriers apart.
void BlockBarrier(int place);
// Whether any thread of the block that has not ended says so.
bool BlockVote(int place, bool value);
void WarpBarrier();
// Writes `bits` for the other lanes of the warp and returns those of `lane`;
// its own where that one is no lane, or has ended.
uint64_t Exchange(uint64_t bits, int lane);
// A bit for each lane that has not ended, of whether its value is not 0.
unsigned Vote(bool value);
// A bit for each lane that has not ended, of whether it has the same bits.
unsigned Match(uint64_t bits);

template <class T>
T Shuffle(T value, int lane) {
  static_assert(sizeof(T) <= 8, "shuffles are of 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline int lane() { return thread_index.x % 32; }

}  // namespace cuda_emulator

#define threadIdx (::cuda_emulator::thread_index)
#define blockIdx (::cuda_emulator::block_index)
#define blockDim (::cuda_emulator::block_size)
#define gridDim (::cuda_emulator::grid_size)
#define __syncthreads() ::cuda_emulator::BlockBarrier(__LINE__)
#define __syncthreads_or(value) ::cuda_emulator::BlockVote(__LINE__, value)
#define __syncwarp(...) ::cuda_emulator::WarpBarrier()

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return cuda_emulator::Shuffle(value, lane % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cuda_emulator::Shuffle(value, cuda_emulator::lane() ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  return cuda_emulator::Shuffle(value, cuda_emulator::lane() - delta);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int delta) {
  return cuda_emulator::Shuffle(value, cuda_emulator::lane() + delta);
}
inline unsigned __ballot_sync(unsigned, bool value) {
  return cuda_emulator::Vote(value);
}
inline bool __any_sync(unsigned, bool value) {
  return cuda_emulator::Vote(value) != 0;
}
inline unsigned __match_any_sync(unsigned, int value) {
  return cuda_emulator::Match(static_cast<unsigned>(value));
}

// One thread runs at a time: nothing comes between.
template <class T, class U>
T atomicAdd(T* at, U value) {
  const T old = *at;
  *at = old + static_cast<T>(value);
  return old;
}
template <class T, class U>
T atomicMax(T* at, U value) {
  const T old = *at;
  *at = std::max(old, static_cast<T>(value));
  return old;
}
template <class T, class U>
T atomicMin(T* at, U value) {
  const T old = *at;
  *at = std::min(old, static_cast<T>(value));
  return old;
}
template <class T, class U>
T atomicOr(T* at, U value) {
  const T old = *at;
  *at = old | static_cast<T>(value);
  return old;
}
template <class T, class U, class V>
T atomicCAS(T* at, U expected, V value) {
  const T old = *at;
  if (old == static_cast<T>(expected)) *at = static_cast<T>(value);
  return old;
}

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline unsigned long long __umul64hi(unsigned long long a,
                                     unsigned long long b) {
  return static_cast<unsigned __int128>(a) * b >> 64;
}
using std::max;
using std::min;

#endif  // TFXCLASS_GPU_TESTS_EMULATOR_CUDA_RUNTIME_H_
