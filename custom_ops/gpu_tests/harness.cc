// The program: `gpu_tests [--list] [--no-benchmarks] [--tflops X] [part of a
// name ...]`.
#include "gpu_tests/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#ifdef TFXCLASS_EMULATE_CUDA
#include <sys/mman.h>
#else
#include <cuda_runtime.h>
#endif

namespace gpu_tests {
namespace {

struct Named {
  const char* name;
  void (*run)();
};

std::vector<Named>& Tests() {
  static std::vector<Named> tests;
  return tests;
}

std::vector<Named>& Benchmarks() {
  static std::vector<Named> benchmarks;
  return benchmarks;
}

double gemm_tflops = 0;

}  // namespace

#ifdef TFXCLASS_EMULATE_CUDA

namespace {

constexpr size_t kPage = 4096;

size_t PagesOf(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// A buffer begins at a multiple of 16 bytes, so up to 15 bytes past its end
// are its own.
size_t FirstByte(size_t bytes) { return (PagesOf(bytes) - bytes) / 16 * 16; }

}  // namespace

void* Allocate(size_t bytes) {
  const size_t pages = PagesOf(bytes);
  void* all = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::runtime_error("no memory");
  char* end = static_cast<char*>(all) + pages;
  mprotect(end, kPage, PROT_NONE);
  // Not of what is larger than memory: such a buffer is touched here and there.
  if (bytes < size_t{1} << 30) std::memset(all, 0xff, pages);
  return static_cast<char*>(all) + FirstByte(bytes);
}

void Free(void* data, size_t bytes) {
  munmap(static_cast<char*>(data) - FirstByte(bytes), PagesOf(bytes) + kPage);
}

void CopyIn(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CopyOut(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Done(tfxclass::GpuStatus status) {
  if (status != nullptr) throw std::runtime_error(status);
}

double MedianMs(const std::function<void()>&) { return 0; }
double CopyBandwidth() { return 0; }

#else

namespace {

void Check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace

void* Allocate(size_t bytes) {
  void* data;
  Check(cudaMalloc(&data, std::max<size_t>(bytes, 1)));
  Check(cudaMemset(data, 0xff, bytes));
  return data;
}

void Free(void* data, size_t) { cudaFree(data); }

void CopyIn(void* to, const void* from, size_t bytes) {
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

void CopyOut(void* to, const void* from, size_t bytes) {
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void Done(tfxclass::GpuStatus status) {
  if (status != nullptr) throw std::runtime_error(status);
  Check(cudaDeviceSynchronize());
}

double MedianMs(const std::function<void()>& launch) {
  constexpr int kWarmUp = 3, kRepeats = 20;
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kWarmUp + kRepeats; ++i) {
    Check(cudaEventRecord(begin));
    launch();
    Check(cudaEventRecord(end));
    Check(cudaEventSynchronize(end));
    float ms;
    Check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= kWarmUp) times.push_back(ms);
  }
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

double CopyBandwidth() {
  static const double measured = [] {
    constexpr size_t kBytes = size_t{4} << 30;
    Buffer<char> from(kBytes), to(kBytes);
    const double ms = MedianMs([&] {
      Check(cudaMemcpyAsync(to.data(), from.data(), kBytes,
                            cudaMemcpyDeviceToDevice));
    });
    return 2.0 * kBytes / ms / 1e6;
  }();
  return measured;
}

#endif

TestScratch::~TestScratch() {
  for (const Piece& piece : pieces_) Free(piece.data, piece.bytes);
}

void* TestScratch::GetBytes(size_t bytes) {
  if (next_ < pieces_.size() && pieces_[next_].bytes == bytes) {
    return pieces_[next_++].data;
  }
  pieces_.insert(pieces_.begin() + next_, {Allocate(bytes), bytes});
  return pieces_[next_++].data;
}

int64_t Random::Below(int64_t bound) {
  return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_);
}

std::vector<float> Random::Normal(int64_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine_);
  return values;
}

std::vector<int64_t> Random::Ids(int64_t count, int64_t bound) {
  std::vector<int64_t> ids(count);
  for (int64_t& id : ids) id = Below(bound);
  return ids;
}

void Expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void ExpectNear(const std::vector<float>& found,
                const std::vector<double>& expected, double tolerance,
                const std::string& what) {
  Expect(found.size() == expected.size(), what + ": sizes");
  double difference = 0, norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double off = found[i] - expected[i];
    difference += off * off;
    norm += expected[i] * expected[i];
  }
  const double error = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  Expect(error <= tolerance || (norm == 0 && difference == 0),
         what + ": relative error " + std::to_string(error) + ", tolerance " +
             std::to_string(tolerance));
}

Test::Test(const char* name, void (*run)()) { Tests().push_back({name, run}); }

Benchmark::Benchmark(const char* name, void (*run)()) {
  Benchmarks().push_back({name, run});
}

void Report(const std::string& what, double ms, double bytes, double flops) {
  const double by_bytes = bytes / CopyBandwidth() / 1e6;
  const double by_flops = gemm_tflops > 0 ? flops / gemm_tflops / 1e9 : 0;
  const double floor = std::max(by_bytes, by_flops);
  std::printf(
      "{\"kernel\": \"%s\", \"ms\": %.4f, \"floor_ms\": %.4f, "
      "\"gb_s\": %.0f, \"tflops\": %.1f}\n",
      what.c_str(), ms, floor, bytes / ms / 1e6, flops / ms / 1e9);
  std::fflush(stdout);
}

}  // namespace gpu_tests

namespace {

bool IsWanted(const char* name, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return true;
  for (const std::string& part : wanted) {
    if (std::strstr(name, part.c_str()) != nullptr) return true;
  }
  return false;
}

int RunTests(const std::vector<std::string>& wanted) {
  int failed = 0;
  for (const auto& test : gpu_tests::Tests()) {
    if (!IsWanted(test.name, wanted)) continue;
    try {
      test.run();
      std::printf("passed %s\n", test.name);
    } catch (const std::exception& e) {
      ++failed;
      std::printf("FAILED %s: %s\n", test.name, e.what());
    }
    std::fflush(stdout);
  }
  return failed;
}

int RunBenchmarks(const std::vector<std::string>& wanted) {
  int failed = 0;
  for (const auto& benchmark : gpu_tests::Benchmarks()) {
    if (!IsWanted(benchmark.name, wanted)) continue;
    try {
      benchmark.run();
    } catch (const std::exception& e) {
      ++failed;
      std::printf("FAILED %s: %s\n", benchmark.name, e.what());
    }
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  bool benchmarks = !gpu_tests::kIsEmulated;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--list") == 0) {
      for (const auto& test : gpu_tests::Tests()) std::puts(test.name);
      return 0;
    }
    if (std::strcmp(argv[i], "--no-benchmarks") == 0) {
      benchmarks = false;
    } else if (std::strcmp(argv[i], "--tflops") == 0 && i + 1 < argc) {
      gpu_tests::gemm_tflops = std::atof(argv[++i]);
    } else {
      wanted.push_back(argv[i]);
    }
  }
  int failed = RunTests(wanted);
  if (benchmarks) failed += RunBenchmarks(wanted);
  return failed == 0 ? 0 : 1;
}
