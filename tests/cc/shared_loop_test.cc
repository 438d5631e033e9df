// Loops that threads share, where the pool takes none, some or all tasks.
#include "core/shared_loop.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

// A pool that takes `room` tasks and throws at the next one.
class SmallPool {
 public:
  explicit SmallPool(int room) : room_(room) {}

  void Schedule(std::function<void()> task) {
    if (room_-- == 0) throw std::bad_alloc();
    tasks_.push_back(std::move(task));
  }

  void StartAll() {
    for (auto& task : tasks_) threads_.emplace_back(std::move(task));
    tasks_.clear();
  }

  // Late ones: the loop has returned.
  void RunAll() {
    for (auto& task : tasks_) task();
  }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  int room_;
  std::vector<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

constexpr int64_t kTotal = 1000, kCost = 10000;

std::vector<int> Covered(SmallPool* pool, bool at_once) {
  std::vector<int> covered(kTotal);
  const RangeBody body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++covered[i];
  };
  RunShared(kTotal, LoopPlan(kTotal, kCost, 8), body,
            [&](std::function<void()> task) {
              pool->Schedule(std::move(task));
              if (at_once) pool->StartAll();
            });
  return covered;
}

void AllIsDoneOnceHoweverManyCome() {
  for (const bool at_once : {false, true}) {
    for (int room = 0; room < 9; ++room) {
      SmallPool pool(room);
      const std::vector<int> covered = Covered(&pool, at_once);
      CHECK(std::count(covered.begin(), covered.end(), 1) == kTotal);
      pool.RunAll();
      pool.Join();
    }
  }
}

void WhatABodyThrowsIsThrownOnceAllAreDone() {
  SmallPool pool(3);
  std::atomic<int> running{0};
  bool thrown = false;
  try {
    const RangeBody body = [&](int64_t begin, int64_t) {
      ++running;
      std::this_thread::yield();
      --running;
      if (begin == 0) throw std::length_error("first");
    };
    RunShared(kTotal, LoopPlan(kTotal, kCost, 8), body,
              [&](std::function<void()> task) {
                pool.Schedule(std::move(task));
                pool.StartAll();
              });
  } catch (const std::length_error&) {
    thrown = true;
  }
  CHECK(thrown && running == 0);
  pool.Join();
}

void PlansFitTheWork() {
  CHECK(LoopPlan(0, 1, 8).threads == 1);
  CHECK(LoopPlan(1, INT64_MAX, 8).threads == 1);
  CHECK(LoopPlan(1000, 10, 8).threads == 1);
  CHECK(LoopPlan(1000, 10000, 1).threads == 1);
  for (const int64_t total :
       {int64_t{2}, int64_t{33}, int64_t{12345}, INT64_MAX / 2, INT64_MAX}) {
    for (const int64_t cost : {int64_t{0}, int64_t{100}, INT64_MAX}) {
      const LoopPlan plan(total, cost, 8);
      CHECK(plan.threads >= 1 && plan.threads <= 8);
      CHECK(plan.block >= 1 && plan.block <= total);
      CHECK((total - 1) / plan.block < 32);
    }
  }
}

void NothingIsDoneForNothing() {
  SmallPool pool(0);
  int calls = 0;
  const RangeBody body = [&](int64_t, int64_t) { ++calls; };
  RunShared(0, LoopPlan(0, kCost, 8), body,
            [&](std::function<void()> task) { pool.Schedule(task); });
  CHECK(calls == 0);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::AllIsDoneOnceHoweverManyCome();
  tfxclass::WhatABodyThrowsIsThrownOnceAllAreDone();
  tfxclass::PlansFitTheWork();
  tfxclass::NothingIsDoneForNothing();
}
