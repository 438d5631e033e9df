// A thread for each number of a loop, where results must not depend on threads.
#ifndef TFXCLASS_TESTS_CC_THREADS_H_
#define TFXCLASS_TESTS_CC_THREADS_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace tfxclass {

inline void ThreadedFor(int64_t total, int64_t /*cost*/,
                        const RangeBody& body) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < total; ++i) {
    threads.emplace_back([&body, i] { body(i, i + 1); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tfxclass

#endif  // TFXCLASS_TESTS_CC_THREADS_H_
