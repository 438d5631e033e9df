// Arrays keep their numbers when they move into huge pages.
#include "core/huge_pages.h"

#include <cstdint>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

void NumbersStay() {
  constexpr int64_t kSize = 20 << 20;  // 80 MB, with odd ends
  std::vector<int32_t> numbers(kSize + 3);
  for (int64_t i = 0; i < kSize + 3; ++i) numbers[i] = i;
  HugePages huge_pages;
  for (int time = 0; time < 2; ++time) {
    huge_pages.Use(numbers.data() + 1, kSize * sizeof(int32_t));
    for (int64_t i = 0; i < kSize + 3; ++i) CHECK(numbers[i] == i);
  }
}

void NothingIsDoneWithLittleOrNone() {
  int32_t number = 7;
  HugePages huge_pages;
  huge_pages.Use(&number, sizeof(number));
  huge_pages.Use(nullptr, 0);
  CHECK(number == 7);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::NumbersStay();
  tfxclass::NothingIsDoneWithLittleOrNone();
}
