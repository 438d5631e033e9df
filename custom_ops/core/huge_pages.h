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

// Moves an array into huge pages when it is first seen, so that a random row
// seldom misses the TLB. Smaller arrays, and systems without (Linux before
// 6.1), stay as they are. It takes the time of a copy. Thread-safe.
inline void UseHugePages(const void* data, int64_t bytes) {
  constexpr int64_t kLeast = 64 << 20, kPage = 2 << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
  if (bytes < kLeast || !AreHugePagesAllowed()) return;
  static std::mutex mutex;
  static auto& seen = *new std::unordered_map<const void*, int64_t>;
  {
    std::lock_guard<std::mutex> lock(mutex);
    int64_t& known = seen[data];
    if (known == bytes) return;
    known = bytes;
  }
  const int64_t address = reinterpret_cast<intptr_t>(data);
  const int64_t begin = (address + kPage - 1) / kPage * kPage;
  const int64_t end = (address + bytes) / kPage * kPage;
  // Where it fails, pages stay small.
  madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
}

#else

inline void UseHugePages(const void*, int64_t) {}

#endif

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_HUGE_PAGES_H_
