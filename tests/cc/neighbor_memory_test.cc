// The memory of neighbours: what random searches leave in it.
#include "core/neighbor_memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "check.h"
#include "core/philox.h"

namespace tfxclass {
namespace {

constexpr int64_t kClasses = 40, kDim = 5, kWidth = 3, kRows = 6;

std::vector<float> Random(int64_t count, uint64_t seed) {
  Philox random(seed);
  std::vector<float> values(count);
  for (auto& x : values) x = random.Uniform() - 0.5;
  return values;
}

// Searches that find a class at random for each row: what is kept is the best
// of all that was found for a label, as the memory has a place for each. The
// last of them may have given way to a label whose neighbour it is, and what
// came later was compared with that.
void KeepsTheBestOfAll() {
  const std::vector<float> kernel = Random(kClasses * kDim, 1);
  const std::vector<float> queries = Random(kClasses * kDim, 2);
  std::vector<int64_t> rows(kClasses * (2 + kWidth), -1);
  const NeighborMemory memory{rows.data(), kClasses, kWidth};
  NeighborRanker ranker({kernel.data(), kClasses, kDim}, false);
  std::map<int64_t, std::set<int64_t>> seen, near;
  Philox random(3);
  for (int64_t step = 0; step < 200; ++step) {
    std::vector<int64_t> labels(kRows), known(kRows * 2 * kWidth);
    for (auto& label : labels) label = random.Below(kClasses + 1) - 1;
    RecallNeighbors(memory, labels.data(), kRows, step, known.data(),
                    2 * kWidth);
    std::vector<int64_t> ids(kRows * kWidth);
    std::vector<float> shares(kRows * kWidth);
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t label = labels[r];
      const int64_t found = random.Below(kClasses);
      const int64_t* const own = known.data() + r * 2 * kWidth;
      ranker.Rank({queries.data() + std::max<int64_t>(label, 0) * kDim, &label,
                   1, own, 2 * kWidth, &found, 1},
                  kWidth, ids.data() + r * kWidth, shares.data() + r * kWidth);
      for (int64_t i = 0; i < 2 * kWidth; ++i) seen[label].insert(own[i]);
      // The first row of a label is kept.
      const auto first = std::find(labels.begin(), labels.end(), label);
      if (first - labels.begin() == r) seen[label].insert(found);
    }
    KeepNeighbors(memory, labels.data(), kRows, std::vector<bool>(kRows, true),
                  step, ids.data(), kWidth);
    for (int64_t r = 0; r < kRows; ++r) {
      near[ids[r * kWidth + step % kWidth]].insert(labels[r]);
    }
  }
  for (int64_t label = 0; label < kClasses; ++label) {
    const int64_t* const kept = memory.Find(label);
    CHECK(kept != nullptr && kept[1] >= 0);
    std::set<int64_t>& all = seen[label];
    all.erase(-1);
    all.erase(label);
    std::vector<int64_t> order(all.begin(), all.end());
    const auto logit = [&](int64_t id) {
      return Dot(queries.data() + label * kDim, kernel.data() + id * kDim,
                 kDim);
    };
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
    for (int64_t i = 0; i < kWidth - 1; ++i) CHECK(kept[2 + i] == order[i]);
    const int64_t last = kept[1 + kWidth];
    CHECK(all.count(last) || near[label].count(last));
  }
}

// Anything may stand in the memory: nothing beyond it is read.
void ReadsAnything() {
  Philox random(4);
  std::vector<int64_t> rows(7 * (2 + kWidth));
  const NeighborMemory memory{rows.data(), 7, kWidth};
  for (int i = 0; i < 100; ++i) {
    for (auto& x : rows) {
      x = random.Below(3) ? random.Below(20) : INT64_MAX - random.Below(2);
      if (random.Below(5) == 0) x = INT64_MIN;
    }
    const std::vector<int64_t> labels{0, -1, INT64_MAX, 9, 3, INT64_MIN};
    std::vector<int64_t> known(labels.size() * 2 * kWidth), asked(3);
    RecallNeighbors(memory, labels.data(), labels.size(), INT64_MIN,
                    known.data(), 2 * kWidth);
    OldestSearches(memory, labels.data(), labels.size(), 3, asked.data());
    CHECK(std::set<int64_t>(asked.begin(), asked.end()).size() == 3);
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::KeepsTheBestOfAll();
  tfxclass::ReadsAnything();
}
