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

// With a sanitizer each case takes a hundred times as long.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// How many of `count` random cases of a test of numbers are tried. The program
// without a sanitizer tries all.
constexpr int64_t NumberCases(int64_t count) {
  return kIsSanitized ? count / 5 : count;
}

}  // namespace tfxclass

#endif  // TFXCLASS_TESTS_CC_CHECK_H_
