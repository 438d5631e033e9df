// FastExp and the rows of the streaming softmax.
#include "core/softmax_block.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "core/philox.h"
#include "core/tile_dispatch.h"

namespace tfxclass {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void FastExpIsWithinItsError() {
  double worst = 0;
  for (int64_t i = 0; i <= 870000; ++i) {
    const float x = -1e-4f * i;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(FastExp(x) / exact - 1));
  }
  CHECK(worst < 2.5e-7);
  CHECK(FastExp(0.0f) == 1.0f);
  CHECK(FastExp(-87.5f) == 0.0f && FastExp(-1e30f) == 0.0f);
  CHECK(FastExp(-kInfinity) == 0.0f);
  CHECK(std::isnan(FastExp(std::nanf(""))));
}

void StatsSkipWhatTheMarginReplaces(const TileKernels& tiles) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Philox random(seed);
    const int64_t block = random.Below(20), offset = random.Below(3) * 100;
    std::vector<float> logits(block);
    for (auto& x : logits) x = 80 * random.Uniform() - 40;
    std::vector<int64_t> targets;
    std::vector<float> delta;
    std::vector<double> raised(logits.begin(), logits.end());
    for (int64_t c = block - 1; c >= 0; --c) {
      if (random.Below(3)) continue;
      targets.push_back(offset + c);
      delta.push_back(random.Below(2) ? -70 * random.Uniform() : 0);
      raised[c] += delta.back();
    }
    for (const int64_t other : {int64_t{-1}, offset - 1, offset + block}) {
      targets.push_back(other);
      delta.push_back(1.0f);
    }
    float max = -kInfinity;
    double sum = 0;
    SoftmaxStatsRow(tiles, logits.data(), block, offset, targets.data(),
                    delta.data(), targets.size(), &max, &sum);
    double expected = 0;
    for (const double x : raised) expected += std::exp(x);
    if (block == 0) {
      CHECK(max == -kInfinity && sum == 0);
    } else {
      CHECK(std::abs(max + std::log(sum) - std::log(expected)) < 2e-5);
    }
  }
}

void MaximumLeavesNanOut() {
  for (int64_t count = 0; count < 100; ++count) {
    std::vector<float> x(count, -2.0f);
    CHECK(MaxOf(x.data(), count) == (count ? -2.0f : -kInfinity));
    for (int64_t i = 0; i < count; ++i) {
      x[i] = -1.0f;
      CHECK(MaxOf(x.data(), count) == -1.0f);
      x[i] = std::nanf("");
      CHECK(MaxOf(x.data(), count) == (count > 1 ? -2.0f : -kInfinity));
      x[i] = -2.0f;
    }
  }
}

// Equal numbers, whose float sums err to one side at each step.
void SumsOverMillionsAreExact(const TileKernels& tiles) {
  for (const float logit : {-1e-3f, -0.3f, -2.7f}) {
    const int64_t count = NumberCases(3000000);
    std::vector<float> logits(count + 1, logit);
    logits[0] = 0;
    float max = -kInfinity;
    double sum = 0;
    SoftmaxStatsRow(tiles, logits.data(), logits.size(), 0, nullptr, nullptr, 0,
                    &max, &sum);
    const double exact = 1 + count * std::exp(static_cast<double>(logit));
    CHECK(max == 0 && std::abs(sum / exact - 1) < 1e-6);
  }
}

// Rows of any length, whose end is part of a vector; NaN stays where it is.
void RowsOfAnyLengthHaveTheirSoftmax(const TileKernels& tiles) {
  Philox random(3);
  for (int64_t count = 0; count < 300; ++count) {
    std::vector<float> logits(count);
    for (auto& x : logits) x = 20 * random.Uniform() - 18;
    const int64_t special = random.Below(3);
    if (count > 1 && special < 2) logits[count / 2] = -kInfinity;
    if (count > 1 && special == 0) logits[count - 1] = std::nanf("");
    std::vector<double> exact(count);
    double total = 0;
    for (int64_t c = 0; c < count; ++c) {
      exact[c] = -3.0 * std::exp(std::min(logits[c] - 1.0, 0.0));
      total += std::exp(logits[c] - 2.0);
    }
    const double sum = tiles.sum_of_exp(logits.data(), count, 2.0f);
    CHECK(std::isnan(total) ? std::isnan(sum)
                            : std::abs(sum - total) <= 2e-6 * total);
    std::vector<float> grad(count + 1, 7.0f);
    tiles.softmax_row(logits.data(), count, 1.0f, -3.0f, grad.data());
    CHECK(grad[count] == 7.0f);
    for (int64_t c = 0; c < count; ++c) {
      CHECK(std::isnan(logits[c])
                ? std::isnan(grad[c])
                : std::abs(grad[c] - exact[c]) <= 2e-6 * std::abs(exact[c]));
    }
  }
}

void TopKWritesNothingPastItsEnd() {
  for (const int64_t k : {1, 3, 200}) {
    std::vector<float> logits(130), scores(k, -kInfinity);
    std::vector<int64_t> ids(k, -1);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = i % 7;
    TopKBlockRow(logits.data(), logits.size(), 1000, k, scores.data(),
                 ids.data());
    CHECK(scores[0] == 6 && ids[0] == 1006);
    if (k == 200) CHECK(ids[129] == 1126 && ids[130] == -1);
  }
}

// Blocks of any length, in turn, of logits that are often equal: the definition
// by a stable sort, without NaN.
void TopKEqualsASort() {
  Philox random(7);
  for (int64_t trial = 0; trial < NumberCases(200); ++trial) {
    const int64_t most = trial % 2 ? 1000 : 20000;
    const int64_t count = 1 + random.Below(most), k = 1 + random.Below(150);
    const int64_t kinds = 1 + random.Below(300);
    std::vector<float> logits(count);
    for (auto& logit : logits) logit = random.Below(kinds) - 20.0f;
    for (int64_t i = 0; i < count; i += 97) logits[i] = std::nanf("");
    for (int64_t i = 5; i < count; i += 89) logits[i] = -kInfinity;
    for (int64_t i = 9; i < count; i += 83) logits[i] = kInfinity;
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isnan(logits[i])) expected.push_back(i);
    }
    std::stable_sort(
        expected.begin(), expected.end(),
        [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    expected.resize(k, -1);
    std::vector<float> scores(k, -kInfinity);
    std::vector<int64_t> ids(k, -1);
    for (int64_t start = 0; start < count;) {
      const int64_t block =
          std::min<int64_t>(1 + random.Below(most / 2), count - start);
      TopKBlockRow(logits.data() + start, block, start, k, scores.data(),
                   ids.data());
      start += block;
    }
    CHECK(ids == expected);
    for (int64_t i = 0; i < k; ++i) {
      CHECK(scores[i] == (ids[i] < 0 ? -kInfinity : logits[ids[i]]));
    }
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::FastExpIsWithinItsError();
  const tfxclass::TileKernels* tiles[2];
  const int count = tfxclass::RunnableTiles(tiles);
  for (int i = 0; i < count; ++i) {
    tfxclass::StatsSkipWhatTheMarginReplaces(*tiles[i]);
    tfxclass::SumsOverMillionsAreExact(*tiles[i]);
    tfxclass::RowsOfAnyLengthHaveTheirSoftmax(*tiles[i]);
  }
  tfxclass::MaximumLeavesNanOut();
  tfxclass::TopKWritesNothingPastItsEnd();
  tfxclass::TopKEqualsASort();
}
