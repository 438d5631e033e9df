// CHECK for tests without a framework: says what failed, and where.
#ifndef TFXCLASS_TESTS_CC_CHECK_H_
#define TFXCLASS_TESTS_CC_CHECK_H_

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

#endif  // TFXCLASS_TESTS_CC_CHECK_H_
