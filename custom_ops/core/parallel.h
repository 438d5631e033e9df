// How core algorithms ask for threads without knowing who owns them.
//
// A ParallelFor runs body(begin, end) over disjoint ranges that cover
// [0, total) exactly once, and returns when all are done. Results must not
// depend on how the range was cut. What a body throws (memory that is not to be
// had) the ParallelFor throws, once all ranges are done or left out. One whose
// threads may not start, for want of memory, is made by shared_loop.h.
//
// A long build in the background takes one that can be cancelled: it looks at a
// flag about every millisecond, and throws Cancelled where that is set.
#ifndef TFXCLASS_CORE_PARALLEL_H_
#define TFXCLASS_CORE_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <type_traits>
#include <utility>

namespace tfxclass {

using RangeBody = std::function<void(int64_t begin, int64_t end)>;

struct Cancelled : std::exception {};

class ParallelFor {
 public:
  using Loop =
      std::function<void(int64_t total, int64_t cost, const RangeBody& body)>;

  // Of a function or lambda that is a Loop.
  template <class F, class = std::enable_if_t<
                         !std::is_same_v<std::decay_t<F>, ParallelFor>>>
  ParallelFor(F&& loop) : loop_(std::forward<F>(loop)) {}

  // cost: nanoseconds one element takes, roughly.
  void operator()(int64_t total, int64_t cost, const RangeBody& body) const {
    if (cancelled_ == nullptr) return loop_(total, cost, body);
    loop_(total, cost, [&](int64_t begin, int64_t end) {
      InPieces(begin, end, cost, body);
    });
  }

  // The same by this thread, one range after the other.
  void InOrder(int64_t total, int64_t cost, const RangeBody& body) const {
    InPieces(0, total, cost, body);
  }

  // Throws Cancelled if the flag is set.
  void Check() const {
    if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
      throw Cancelled();
    }
  }

  // This one with a flag, which may be null.
  ParallelFor Until(const std::atomic<bool>* cancelled) const {
    ParallelFor copy = *this;
    copy.cancelled_ = cancelled;
    return copy;
  }

  // One that starts no threads, cancelled as this one.
  ParallelFor Serial() const;

 private:
  void InPieces(int64_t begin, int64_t end, int64_t cost,
                const RangeBody& body) const {
    constexpr int64_t kPiece = 1000000;  // nanoseconds
    const int64_t size =
        std::max<int64_t>(kPiece / std::max<int64_t>(cost, 1), 1);
    for (int64_t first = begin; first < end; first += size) {
      Check();
      body(first, std::min(first + size, end));
    }
  }

  Loop loop_;
  const std::atomic<bool>* cancelled_ = nullptr;
};

inline void SerialFor(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  if (total > 0) body(0, total);
}

inline ParallelFor ParallelFor::Serial() const {
  return ParallelFor(SerialFor).Until(cancelled_);
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
