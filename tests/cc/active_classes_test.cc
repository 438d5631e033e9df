// IdSet and the choice of the active classes, against std containers.
#include "core/active_classes.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "check.h"
#include "core/id_set.h"

namespace tfxclass {
namespace {

void IdSetFollowsAMap() {
  for (const int64_t capacity : {1, 7, 8, 9, 1000}) {
    Philox random(capacity);
    IdSet set(capacity);
    std::unordered_map<int64_t, int64_t> map;
    // Multiples of a power of two, near and far: bad for a weak hash.
    for (int64_t i = 0; i < 20 * capacity; ++i) {
      const int64_t id = random.Below(2 * capacity) << (i % 2 ? 0 : 40);
      CHECK(set.Contains(id) == (map.count(id) > 0));
      if (map.size() == static_cast<size_t>(capacity)) continue;
      const auto [entry, is_new] = map.emplace(id, map.size());
      CHECK(set.Insert(id) == entry->second);
      CHECK(set.ids()[entry->second] == id);
    }
    CHECK(set.size() == static_cast<int64_t>(map.size()));
    // Emptied it is as new, whatever collided.
    set.Clear();
    CHECK(set.size() == 0 && set.capacity() >= capacity);
    int64_t next = 0;
    for (const auto& [id, _] : map) {
      CHECK(!set.Contains(id));
      CHECK(set.Insert(id) == next++);
    }
  }
}

void EmptyIdSet() {
  IdSet set(0);
  CHECK(set.size() == 0 && !set.Contains(0));
}

void SelectsExactlyAsMany() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Philox random(seed);
    ActiveClassesOptions options;
    options.num_classes = 1 + random.Below(50);
    options.num_sampled = 1 + random.Below(options.num_classes);
    options.candidate_share = random.Below(5) / 4.0f;
    options.fill = static_cast<FillLaw>(seed % 3);
    std::vector<double> cumulative;
    for (int64_t c = 0; c < options.num_classes; ++c) {
      const double weight = c % 2 ? random.Uniform() : c == 0;
      cumulative.push_back(weight + (c ? cumulative.back() : 0));
    }
    options.cumulative = cumulative.data();
    options.sample_overflow = seed % 3;
    options.seed = seed;
    std::vector<int64_t> targets(random.Below(10)), ids(random.Below(30));
    std::vector<float> scores;
    for (auto& id : targets) id = random.Below(options.num_classes + 1) - 1;
    for (auto& id : ids) {
      id = random.Below(options.num_classes + 1) - 1;
      scores.push_back(random.Uniform());
    }
    std::set<int64_t> distinct(targets.begin(), targets.end());
    distinct.erase(-1);
    std::vector<int64_t> positions(targets.size());
    ActiveClasses active;
    SelectActiveClasses(options, targets.data(), targets.size(), ids.data(),
                        scores.data(), ids.size(), positions.data(), &active);
    CHECK(active.num_targets == static_cast<int64_t>(distinct.size()));
    // More targets than num_sampled are all chosen.
    options.num_sampled = std::max(options.num_sampled, active.num_targets);
    CHECK(static_cast<int64_t>(active.ids.size()) == options.num_sampled);
    const std::set<int64_t> chosen(active.ids.begin(), active.ids.end());
    CHECK(chosen.size() == active.ids.size());
    CHECK(*chosen.begin() >= 0 && *chosen.rbegin() < options.num_classes);
    const int64_t left = options.num_sampled - active.num_targets;
    const double share = options.candidate_share;
    const int64_t room = std::min<int64_t>(
        std::ceil(share * left), std::max<int64_t>(left - (share < 1), 0));
    CHECK(active.num_candidates <= room);
    CHECK(active.places_used ==
          (room > 0 ? static_cast<float>(active.num_candidates) / room : 0));
    CHECK(active.log_expected_count.size() == active.ids.size());
    CHECK(active.target_log_expected_count.size() == targets.size());
    for (const float count : active.target_log_expected_count) {
      CHECK(std::isfinite(count) && count <= 0);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      CHECK(targets[i] < 0 ? positions[i] == -1
                           : active.ids[positions[i]] == targets[i]);
    }
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::IdSetFollowsAMap();
  tfxclass::EmptyIdSet();
  tfxclass::SelectsExactlyAsMany();
}
