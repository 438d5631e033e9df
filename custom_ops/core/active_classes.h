// The classes a training step computes: exactly num_sampled distinct ids.
//
// Targets first, in order of appearance; then the candidates, and where they
// do not all fit, a sample of them without replacement with probabilities
// proportional to exp(score) (Gumbel top-k), or the best of them; then a
// random fill. Time O(targets + candidates + num_sampled) expected, whatever
// num_classes is (O(num_classes) only when over half of them are sampled).
// Serial: it is far cheaper than the product that follows. Thread-safe.
#ifndef TFXCLASS_CORE_ACTIVE_CLASSES_H_
#define TFXCLASS_CORE_ACTIVE_CLASSES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/id_set.h"
#include "core/philox.h"

namespace tfxclass {

enum class Fill { kUniform, kLogUniform };

struct ActiveClassesOptions {
  int64_t num_classes = 0;
  int64_t num_sampled = 0;
  int64_t max_candidates = INT64_MAX;
  Fill fill = Fill::kUniform;
  bool sample_overflow = true;
  uint64_t seed = 0;
  uint64_t stream = 0;
};

struct ActiveClasses {
  std::vector<int64_t> ids;               // [num_sampled]
  std::vector<float> log_expected_count;  // 0 for targets and candidates
  int64_t num_targets = 0;
  int64_t num_candidates = 0;  // of them in ids
};

namespace internal {

inline std::vector<std::pair<float, int64_t>> UniqueCandidates(
    const int64_t* candidates, const float* scores, int64_t count,
    IdSet* active) {
  IdSet seen(count);
  std::vector<std::pair<float, int64_t>> unique;
  for (int64_t i = 0; i < count; ++i) {
    if (candidates[i] < 0 || active->Contains(candidates[i])) continue;
    const size_t position = seen.Insert(candidates[i]);
    if (position == unique.size()) {
      unique.emplace_back(scores[i], candidates[i]);
    } else {
      unique[position].first = std::max(unique[position].first, scores[i]);
    }
  }
  return unique;
}

inline void KeepBest(std::vector<std::pair<float, int64_t>>* keyed,
                     int64_t room, bool sample, Philox* random) {
  if (static_cast<int64_t>(keyed->size()) <= room) return;
  if (sample) {
    for (auto& entry : *keyed) {
      entry.first -= static_cast<float>(std::log(-std::log(random->Uniform())));
    }
  }
  const auto better = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::nth_element(keyed->begin(), keyed->begin() + room, keyed->end(), better);
  keyed->resize(room);
  std::sort(keyed->begin(), keyed->end(), better);
}

// Fills from the complement of `active`, listed: for dense sampling.
inline void FillListed(int64_t num_classes, int64_t wanted, IdSet* active,
                       Philox* random) {
  std::vector<int64_t> rest;
  for (int64_t id = 0; id < num_classes; ++id) {
    if (!active->Contains(id)) rest.push_back(id);
  }
  for (int64_t i = 0; active->size() < wanted; ++i) {
    std::swap(rest[i], rest[i + random->Below(rest.size() - i)]);
    active->Insert(rest[i]);
  }
}

inline void FillUniform(int64_t num_classes, int64_t wanted, IdSet* active,
                        Philox* random) {
  if (wanted > num_classes / 2) {
    FillListed(num_classes, wanted, active, random);
  }
  while (active->size() < wanted) active->Insert(random->Below(num_classes));
}

// P(c) = log((c + 2) / (c + 1)) / log(num_classes + 1); returns the tries.
inline int64_t FillLogUniform(int64_t num_classes, int64_t wanted,
                              IdSet* active, Philox* random) {
  const double range = std::log(num_classes + 1.0);
  const int64_t most = 64 * wanted + 1024;
  int64_t tries = 0;
  for (; active->size() < wanted && tries < most; ++tries) {
    const double draw = std::exp(random->Uniform() * range);
    active->Insert(std::min(static_cast<int64_t>(draw) - 1, num_classes - 1));
  }
  FillUniform(num_classes, wanted, active, random);
  return tries;
}

}  // namespace internal

// Ids < 0 in targets and candidates are padding. Requires num_sampled <=
// num_classes. Returns false, with num_targets set, if the distinct targets
// alone are more than num_sampled.
inline bool SelectActiveClasses(const ActiveClassesOptions& options,
                                const int64_t* targets, int64_t num_targets,
                                const int64_t* candidates, const float* scores,
                                int64_t num_candidates, int64_t* positions,
                                ActiveClasses* result) {
  IdSet active(std::max(options.num_sampled, num_targets));
  Philox random(options.seed, options.stream);
  for (int64_t i = 0; i < num_targets; ++i) {
    positions[i] = targets[i] < 0 ? -1 : active.Insert(targets[i]);
  }
  result->num_targets = active.size();
  if (active.size() > options.num_sampled) return false;
  auto unique =
      internal::UniqueCandidates(candidates, scores, num_candidates, &active);
  const int64_t room = options.num_sampled - active.size();
  internal::KeepBest(&unique, std::min(room, options.max_candidates),
                     options.sample_overflow, &random);
  for (const auto& entry : unique) active.Insert(entry.second);
  result->num_candidates = unique.size();

  const int64_t chosen = active.size();
  const int64_t rest = options.num_classes - chosen;
  const int64_t filled = options.num_sampled - chosen;
  result->log_expected_count.assign(options.num_sampled, 0.0f);
  if (options.fill == Fill::kUniform) {
    internal::FillUniform(options.num_classes, options.num_sampled, &active,
                          &random);
    // Horvitz-Thompson: each of the rest is in with this probability.
    const float log_count =
        filled > 0 ? std::log(static_cast<double>(filled) / rest) : 0.0;
    std::fill(result->log_expected_count.begin() + chosen,
              result->log_expected_count.end(), log_count);
  } else {
    const int64_t tries = internal::FillLogUniform(
        options.num_classes, options.num_sampled, &active, &random);
    const double range = std::log(options.num_classes + 1.0);
    for (int64_t i = chosen; i < options.num_sampled; ++i) {
      const double p = std::log1p(1.0 / (active.ids()[i] + 1.0)) / range;
      result->log_expected_count[i] =
          std::log(-std::expm1(tries * std::log1p(-p)));
    }
  }
  result->ids = active.ids();
  return true;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ACTIVE_CLASSES_H_
