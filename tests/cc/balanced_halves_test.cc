// Halves of groups of rows: the same in threads, each on its side.
#include "core/balanced_halves.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

PaddedRows RandomDirections(int64_t count, int64_t dim, uint64_t seed) {
  Philox random(seed);
  std::vector<float> values(count * dim);
  for (auto& x : values) x = random.Uniform() + random.Uniform() - 1.0;
  PaddedRows rows;
  CHECK(CopyRows({values.data(), count, dim}, nullptr, count,
                 /*normalize=*/true, SerialFor, &rows));
  return rows;
}

void ThreeThreads(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 3; ++t) {
    const int64_t begin = total * t / 3, end = total * (t + 1) / 3;
    if (begin < end) threads.emplace_back([=, &body] { body(begin, end); });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<int64_t> Halved(const PaddedRows& rows, int64_t num_groups,
                            const ParallelFor& parallel) {
  std::vector<int64_t> ids(rows.count), starts, sizes;
  for (int64_t i = 0; i < rows.count; ++i) ids[i] = i;
  for (int64_t g = 0; g < num_groups; ++g) {
    starts.push_back(rows.count * g / num_groups);
    sizes.push_back(rows.count * (g + 1) / num_groups - starts.back());
  }
  HalveGroups(rows, starts, sizes, 10, 7, parallel, ids.data());
  return ids;
}

// Of few groups, whose rows threads share, and of many.
void TheSameInThreads() {
  const PaddedRows rows = RandomDirections(9001, 13, 1);
  for (const int64_t groups : {1, 5, 300, 9001}) {
    CHECK(Halved(rows, groups, SerialFor) ==
          Halved(rows, groups, ThreeThreads));
  }
}

// The left half is nearer to its own mean direction than the right one.
void HalvesAreOnTheirSides() {
  const int64_t count = 501, dim = 6;
  const PaddedRows rows = RandomDirections(count, dim, 2);
  const std::vector<int64_t> ids = Halved(rows, 1, SerialFor);
  const int64_t half = (count + 1) / 2;
  std::vector<float> means[2];
  for (int side = 0; side < 2; ++side) {
    means[side].resize(rows.padded);
    AddRows(rows, ids.data() + side * half, side ? count - half : half,
            means[side].data());
    Normalize(Norm(means[side].data(), rows.padded), means[side].data(),
              rows.padded);
  }
  double inside = 0, across = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int side = i >= half;
    const float* row = rows.row(ids[i]);
    inside += DotPadded(row, means[side].data(), rows.padded);
    across += DotPadded(row, means[1 - side].data(), rows.padded);
  }
  CHECK(inside > 0.2 * count && across < 0.0);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::TheSameInThreads();
  tfxclass::HalvesAreOnTheirSides();
}
