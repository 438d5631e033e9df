// The threshold of a sparsemax, against a full sort in double.
#include "core/sparsemax.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "check.h"
#include "core/philox.h"

namespace tfxclass {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Martins & Astudillo's algorithm 1, on logits less the greatest.
double ThresholdBySort(const std::vector<float>& logits) {
  std::vector<double> falling(logits.begin(), logits.end());
  std::sort(falling.begin(), falling.end(), std::greater<double>());
  const double top = falling[0];
  double sum = 0, tau = 0;
  for (size_t k = 1; k <= falling.size(); ++k) {
    const double z = falling[k - 1] - top;
    sum += z;
    if (1 + k * z > sum) tau = (sum - 1) / k;
  }
  return tau;
}

void EqualsASort() {
  SparsemaxScratch scratch;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Philox random(seed);
    const int64_t count = 1 + random.Below(seed % 2 ? 8 : 1000);
    const double spread = std::pow(10.0, random.Below(7)) * 1e-4;
    std::vector<float> logits(count);
    // Steps, so that some are equal.
    for (auto& z : logits) z = spread * random.Below(2000) / 100;
    if (seed % 5 == 0) logits[random.Below(count)] = -kInfinity;
    if (!std::isfinite(*std::max_element(logits.begin(), logits.end()))) {
      continue;
    }
    const auto found = FindSparsemaxThreshold(logits.data(), count, &scratch);
    const double tau = ThresholdBySort(logits);
    CHECK(found.top == *std::max_element(logits.begin(), logits.end()));
    CHECK(std::abs(found.tau - tau) <= 2e-7 * (1 + spread));
    double sum = 0, squares = 0;
    for (const float z : logits) {
      const double p = std::max(double{z} - found.top - tau, 0.0);
      sum += p;
      squares += p * p;
    }
    CHECK(std::abs(sum - 1) < 1e-6);
    CHECK(std::abs(found.sum_squares - squares) < 1e-5);
  }
}

void NanAndInfinity() {
  SparsemaxScratch scratch;
  for (int64_t count = 1; count < 200; ++count) {
    for (const float bad : {std::nanf(""), kInfinity}) {
      std::vector<float> logits(count, 0.5f);
      logits[count / 2] = bad;
      const auto found = FindSparsemaxThreshold(logits.data(), count, &scratch);
      CHECK(std::isnan(found.tau) && std::isnan(found.sum_squares));
    }
    const std::vector<float> none(count, -kInfinity);
    CHECK(std::isnan(FindSparsemaxThreshold(none.data(), count, &scratch).tau));
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::EqualsASort();
  tfxclass::NanAndInfinity();
}
