// A pool has as many arrays as are lent at once, and all of them are zero.
#include "core/mark_pool.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

using Pool = MarkPool<uint8_t>;

bool IsZero(Pool::Loan* loan, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (loan->data()[i] != 0) return false;
  }
  return true;
}

void AnArrayIsLentAgain() {
  Pool pool;
  const uint8_t* first;
  {
    Pool::Loan loan(&pool, 100);
    first = loan.data();
    CHECK(IsZero(&loan, 100) && pool.num_idle() == 0);
  }
  CHECK(pool.num_idle() == 1);
  Pool::Loan one(&pool, 100), another(&pool, 100);
  CHECK(one.data() == first && another.data() != first);
  CHECK(pool.num_idle() == 0);
}

void AnArrayHasTheSizeThatIsAskedFor() {
  Pool pool;
  for (const size_t count : {10, 70000, 3, 70000}) {
    {
      Pool::Loan loan(&pool, count);
      CHECK(IsZero(&loan, count));
      loan.data()[count - 1] = 0;
    }
    CHECK(pool.num_idle() == 1);
  }
}

// What has marks is not lent again.
void AnExceptionFreesItsArrays() {
  Pool pool;
  {
    Pool::Loan one(&pool, 5), other(&pool, 5);
  }
  CHECK(pool.num_idle() == 2);
  try {
    Pool::Loan loan(&pool, 5);
    loan.data()[3] = 1;
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  CHECK(pool.num_idle() == 1);
  Pool::Loan one(&pool, 5), other(&pool, 5);
  CHECK(IsZero(&one, 5) && IsZero(&other, 5));
}

// Where an exception is being handled, a loan that ends well is kept.
void ALoanWhileAnExceptionIsHandledIsKept() {
  Pool pool;
  struct Queries {
    ~Queries() { Pool::Loan loan(pool, 5); }
    Pool* pool;
  };
  try {
    Queries queries{&pool};
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  CHECK(pool.num_idle() == 1);
}

void NoMoreArraysThanThreadsAtOnce() {
  constexpr int kThreads = 4;
  Pool pool;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&pool] {
        for (int i = 0; i < 200; ++i) {
          Pool::Loan loan(&pool, 1000);
          CHECK(loan.data()[i] == 0);
          loan.data()[i] = 1;
          loan.data()[i] = 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(pool.num_idle() >= 1 && pool.num_idle() <= kThreads);
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::AnArrayIsLentAgain();
  tfxclass::AnArrayHasTheSizeThatIsAskedFor();
  tfxclass::AnExceptionFreesItsArrays();
  tfxclass::ALoanWhileAnExceptionIsHandledIsKept();
  tfxclass::NoMoreArraysThanThreadsAtOnce();
}
