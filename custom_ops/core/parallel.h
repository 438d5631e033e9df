// How core algorithms ask for threads without knowing who owns them.
//
// A ParallelFor runs body(begin, end) over disjoint ranges that cover
// [0, total) exactly once, and returns when all are done. Results must not
// depend on how the range was cut.
#ifndef TFXCLASS_CORE_PARALLEL_H_
#define TFXCLASS_CORE_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace tfxclass {

using RangeBody = std::function<void(int64_t begin, int64_t end)>;
// cost: nanoseconds one element takes, roughly.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost, const RangeBody& body)>;

inline void SerialFor(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  if (total > 0) body(0, total);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PARALLEL_H_
