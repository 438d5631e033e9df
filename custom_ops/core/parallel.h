// How core algorithms ask for threads without knowing who owns them.
//
// A ParallelFor runs body(begin, end) over disjoint ranges that cover
// [0, total) exactly once, and returns when all are done. Results must not
// depend on how the range was cut. What a body throws (memory that is not to be
// had) the ParallelFor throws, once all ranges are done or left out. One whose
// threads may not start, for want of memory, is made by shared_loop.h.
#ifndef TFXCLASS_CORE_PARALLEL_H_
#define TFXCLASS_CORE_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace tfxclass {

using RangeBody = std::function<void(int64_t begin, int64_t end)>;
// cost: nanoseconds one element takes, roughly.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost, const RangeBody& body)>;

inline void SerialFor(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  if (total > 0) body(0, total);
}

// Carries what threads throw to the one that waits for them: an exception that
// leaves a thread ends the process. Run is thread-safe.
class FirstException {
 public:
  // Calls body() unless one before it has thrown.
  template <class Body>
  void Run(const Body& body) {
    if (thrown_.load(std::memory_order_relaxed)) return;
    try {
      body();
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (exception_ == nullptr) exception_ = std::current_exception();
      thrown_ = true;
    }
  }

  bool thrown() const { return thrown_; }

  // The next two are to be called when the threads are done.
  void Clear() {
    exception_ = nullptr;
    thrown_ = false;
  }

  // Throws what was thrown, once.
  void Rethrow() {
    if (!thrown_) return;
    const std::exception_ptr exception = exception_;
    Clear();
    std::rethrow_exception(exception);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> thrown_{false};
  std::exception_ptr exception_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PARALLEL_H_
