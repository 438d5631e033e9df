// Huge pages for arrays of which a step reads rows here and there.
#ifndef TFXCLASS_CORE_HUGE_PAGES_H_
#define TFXCLASS_CORE_HUGE_PAGES_H_

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>

#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>
#endif

namespace tfxclass {

#if defined(__linux__)

// Whether the administrator allows them.
inline bool AreHugePagesAllowed() {
  static const bool allowed = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    return std::getline(file, line) && line.find("[never]") == line.npos;
  }();
  return allowed;
}

// Moves arrays into huge pages when it first sees them, so that a random row
// seldom misses the TLB. Smaller arrays, and systems without (Linux before
// 6.1), stay as they are. It takes the time of a copy. Thread-safe.
//
// An array that is freed and made again where it was is not moved again: keep
// one of these for each user of arrays, such as a kernel.
class HugePages {
 public:
  void Use(const void* data, int64_t bytes) {
    constexpr int64_t kLeast = 64 << 20, kPage = 2 << 20;
    constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
    if (bytes < kLeast || !AreHugePagesAllowed() || !IsNew(data, bytes)) return;
    const int64_t address = reinterpret_cast<intptr_t>(data);
    const int64_t begin = (address + kPage - 1) / kPage * kPage;
    const int64_t end = (address + bytes) / kPage * kPage;
    // Where it fails, pages stay small.
    madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
  }

 private:
  bool IsNew(const void* data, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t& known = seen_[data];
    const bool is_new = known != bytes;
    known = bytes;
    return is_new;
  }

  std::mutex mutex_;
  std::unordered_map<const void*, int64_t> seen_;
};

#else

class HugePages {
 public:
  void Use(const void*, int64_t) {}
};

#endif

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_HUGE_PAGES_H_
