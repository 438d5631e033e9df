// What the tests of the kernels share: buffers, checks, random numbers, times.
//
// Built with nvcc the program runs on the GPU; built by a C++ compiler with
// TFXCLASS_EMULATE_CUDA it runs the same kernels on the processor. A buffer
// ends where the process's memory ends, or nearly, when emulated: what reads or
// writes past it crashes. New buffers hold NaN (all bits set).
#ifndef TFXCLASS_GPU_TESTS_HARNESS_H_
#define TFXCLASS_GPU_TESTS_HARNESS_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda_launch.h"

namespace gpu_tests {

#ifdef TFXCLASS_EMULATE_CUDA
constexpr bool kIsEmulated = true;
#else
constexpr bool kIsEmulated = false;
#endif

void* Allocate(size_t bytes);
void Free(void* data, size_t bytes);
void CopyIn(void* to, const void* from, size_t bytes);
void CopyOut(void* to, const void* from, size_t bytes);

// An array on the device.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : count_(count), data_(static_cast<T*>(Allocate(count * sizeof(T)))) {}
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    CopyIn(data_, values.data(), values.size() * sizeof(T));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Free(data_, count_ * sizeof(T)); }

  T* data() { return data_; }
  int64_t size() const { return count_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    CopyOut(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  int64_t count_;
  T* data_;
};

// Memory for a launcher, freed with it.
class TestScratch : public tfxclass::Scratch {
 public:
  ~TestScratch() override;
  // So that a benchmark takes memory once.
  void Reuse() { next_ = 0; }

 protected:
  void* GetBytes(size_t bytes) override;

 private:
  struct Piece {
    void* data;
    size_t bytes;
  };
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t bound);
  std::vector<float> Normal(int64_t count, float scale = 1.0f);
  std::vector<int64_t> Ids(int64_t count, int64_t bound);

 private:
  std::mt19937_64 engine_;
};

// Ends the running test if `status` is a message or the device failed since.
void Done(tfxclass::GpuStatus status);
void Expect(bool holds, const std::string& what);
// Norm of the difference over that of `expected`; NaN is never near.
void ExpectNear(const std::vector<float>& found,
                const std::vector<double>& expected, double tolerance,
                const std::string& what);

template <class T>
void ExpectEqual(const std::vector<T>& found, const std::vector<T>& expected,
                 const std::string& what) {
  Expect(found.size() == expected.size(), what + ": sizes");
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    Expect(false, what + " at " + std::to_string(i) + ": " +
                      std::to_string(found[i]) + ", expected " +
                      std::to_string(expected[i]));
  }
}

struct Test {
  Test(const char* name, void (*run)());
};

#define GPU_TEST(name)                                 \
  void name();                                         \
  const ::gpu_tests::Test test_of_##name(#name, name); \
  void name()

// Run on a GPU alone, after the tests.
#define GPU_BENCHMARK(name)                                      \
  void name();                                                   \
  const ::gpu_tests::Benchmark benchmark_of_##name(#name, name); \
  void name()

struct Benchmark {
  Benchmark(const char* name, void (*run)());
};

// Median milliseconds of `launch` by the device's events, after a warm-up.
double MedianMs(const std::function<void()>& launch);
// GB/s, read and written, of a copy on the device.
double CopyBandwidth();
// A line of JSON, which run.py makes a table of: the floor is `bytes` at the
// measured copy bandwidth or `flops` at the rate given by --tflops (a measured
// GEMM's), the longer.
void Report(const std::string& what, double ms, double bytes, double flops);

}  // namespace gpu_tests

#endif  // TFXCLASS_GPU_TESTS_HARNESS_H_
