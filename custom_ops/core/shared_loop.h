// A loop that several threads share, where starting them may fail.
//
// Blocks of the range are claimed one by one by whoever comes, the caller
// included. It returns when all blocks are done, and waits for no task that has
// not begun: one that comes later finds no block, in memory that it has a share
// of. So a thread pool that cannot take a task, for want of memory, costs time
// alone. (Eigen's parallelFor keeps what its tasks read on the caller's stack:
// where scheduling one throws, those scheduled before read a dead frame.)
#ifndef TFXCLASS_CORE_SHARED_LOOP_H_
#define TFXCLASS_CORE_SHARED_LOOP_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "core/parallel.h"

namespace tfxclass {

// How a loop is cut: by what Eigen's cost model takes for the price of a task.
struct LoopPlan {
  int64_t threads = 1, block;

  // cost: nanoseconds of an element.
  LoopPlan(int64_t total, int64_t cost, int64_t most_threads) : block(total) {
    constexpr double kBlock = 13000, kSeveral = 70000;
    const double of_one = static_cast<double>(std::max<int64_t>(cost, 1));
    if (most_threads <= 1 || total <= 1 || of_one * total < kSeveral) return;
    const int64_t fewest = (total - 1) / (4 * most_threads) + 1;
    block = std::max<int64_t>(fewest, kBlock / of_one);
    threads = std::min(most_threads, (total - 1) / block + 1);
  }
};

class SharedLoop {
 public:
  // total and block >= 1. `body` must last until Wait has returned.
  SharedLoop(int64_t total, int64_t block, const RangeBody& body)
      : total_(total),
        block_(block),
        num_blocks_((total - 1) / block + 1),
        body_(&body),
        left_(num_blocks_) {}

  // Does blocks until there is none to claim.
  void Work() {
    for (int64_t b = next_++; b < num_blocks_; b = next_++) {
      const int64_t begin = b * block_;
      const int64_t end = begin + std::min(block_, total_ - begin);
      exception_.Run([&] { (*body_)(begin, end); });
      if (--left_ > 0) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      done_.notify_all();
    }
  }

  // Until all blocks are done; throws what one of them threw.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0; });
    exception_.Rethrow();
  }

 private:
  const int64_t total_, block_, num_blocks_;
  const RangeBody* const body_;
  std::atomic<int64_t> next_{0}, left_;
  FirstException exception_;
  std::mutex mutex_;
  std::condition_variable done_;
};

// body(begin, end) over [0, total), by this thread and others. schedule(task)
// has another thread call `task` at some time, or throws.
template <class Schedule>
void RunShared(int64_t total, const LoopPlan& plan, const RangeBody& body,
               const Schedule& schedule) {
  if (plan.threads <= 1) return SerialFor(total, 0, body);
  const auto loop = std::make_shared<SharedLoop>(total, plan.block, body);
  try {
    for (int64_t i = 1; i < plan.threads; ++i) {
      schedule(std::function<void()>([loop] { loop->Work(); }));
    }
  } catch (...) {
    // Fewer threads then: the blocks are done all the same.
  }
  loop->Work();
  loop->Wait();
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_SHARED_LOOP_H_
