// CHECK for tests without a framework: says what failed, and where.
#ifndef TFXCLASS_TESTS_CC_CHECK_H_
#define TFXCLASS_TESTS_CC_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, \
                   #condition);                                        \
      std::exit(1);                                                    \
    }                                                                  \
  } while (false)

namespace tfxclass {

// How many of `count` random cases of a test of numbers are tried. A sanitizer
// takes a hundred times as long for each: the program without one tries all.
constexpr int64_t NumberCases(int64_t count) {
#ifdef __SANITIZE_ADDRESS__
  return count / 5;
#else
  return count;
#endif
}

}  // namespace tfxclass

#endif  // TFXCLASS_TESTS_CC_CHECK_H_
