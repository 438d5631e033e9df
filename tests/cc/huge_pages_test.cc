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
  for (int time = 0; time < 2; ++time) {
    UseHugePages(numbers.data() + 1, kSize * sizeof(int32_t));
    for (int64_t i = 0; i < kSize + 3; ++i) CHECK(numbers[i] == i);
  }
}

void NothingIsDoneWithLittleOrNone() {
  int32_t number = 7;
  UseHugePages(&number, sizeof(number));
  UseHugePages(nullptr, 0);
  CHECK(number == 7);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::NumbersStay();
  tfxclass::NothingIsDoneWithLittleOrNone();
}
