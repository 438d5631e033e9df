// The classes a training step computes: num_sampled distinct ids, or all
// targets where these are more.
//
// Targets first, in order of appearance; then the candidates, and where they
// do not all fit, a sample of them without replacement with probabilities
// proportional to exp(score) (Gumbel top-k), or the best of them; then a
// random fill. Time O(targets + candidates + num_sampled) expected, whatever
// num_classes is; O(num_classes) only when over half of them are sampled, or
// more than the frequent ones of a law.
// Serial: it is far cheaper than the product that follows. Thread-safe.
#ifndef TFXCLASS_CORE_ACTIVE_CLASSES_H_
#define TFXCLASS_CORE_ACTIVE_CLASSES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/candidate_room.h"
#include "core/fill_law.h"
#include "core/id_set.h"
#include "core/philox.h"

namespace tfxclass {

struct ActiveClassesOptions {
  int64_t num_classes = 0;
  int64_t num_sampled = 0;
  // Most candidates, of the places that the targets leave (CandidateRoom).
  float candidate_share = 1.0f;
  FillLaw fill = FillLaw::kUniform;
  // Running sums of the classes' weights, for kFrequency; the last one > 0.
  const double* cumulative = nullptr;
  bool sample_overflow = true;
  uint64_t seed = 0;
  uint64_t stream = 0;
};

struct ActiveClasses {
  std::vector<int64_t> ids;               // [max(num_sampled, num_targets)]
  std::vector<float> log_expected_count;  // 0 for targets and candidates
  // For each target, what the fill would make of it were it no target: the
  // log chance that it is in, given the other classes. 0 for targets that
  // occur more than once and for padding: they are in anyway.
  std::vector<float> target_log_expected_count;
  int64_t num_targets = 0;
  int64_t num_candidates = 0;  // of them in ids
  float places_used = 0;       // the part of the candidates' places
};

namespace internal {

using Scored = std::vector<std::pair<float, int64_t>>;

// The last, if it is NaN: an order with NaN is none.
inline float Ordered(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

// The distinct candidates that are not active and have a score of `least` at
// least, each with the best of its scores.
inline Scored UniqueCandidates(const int64_t* candidates, const float* scores,
                               int64_t count, const IdSet& active,
                               float least) {
  IdSet seen(count);
  Scored unique;
  for (int64_t i = 0; i < count; ++i) {
    const float score = Ordered(scores[i]);
    if (score < least || candidates[i] < 0) continue;
    if (active.Contains(candidates[i])) continue;
    const size_t position = seen.Insert(candidates[i]);
    if (position == unique.size()) {
      unique.emplace_back(score, candidates[i]);
    } else {
      unique[position].first = std::max(unique[position].first, score);
    }
  }
  return unique;
}

// Those of the best, `room` at least, of candidates of which so many are
// kept: most need not be looked at.
inline Scored BestCandidates(const int64_t* candidates, const float* scores,
                             int64_t count, const IdSet& active, int64_t room) {
  const float lowest = -std::numeric_limits<float>::infinity();
  // A candidate comes up several times, or is active: twice the room.
  if (const int64_t first = 2 * room; first < count / 2) {
    std::vector<float> order(count);
    std::transform(scores, scores + count, order.begin(), Ordered);
    std::nth_element(order.begin(), order.begin() + first, order.end(),
                     std::greater<float>());
    Scored best =
        UniqueCandidates(candidates, scores, count, active, order[first]);
    if (static_cast<int64_t>(best.size()) >= room) return best;
  }
  return UniqueCandidates(candidates, scores, count, active, lowest);
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

// Each class rings at the first event of a Poisson process with rate P(c);
// draws are the events of all. The classes that ring first are in, until
// `wanted` are; the next new one rings at the returned time, infinity if there
// is none. Given the others, a class is in if it rings before that time, with
// probability 1 - exp(-P(c) time), so dividing by it gives unbiased sums
// (Cohen & Kaplan, Summarizing Data using Bottom-k Sketches, 2007).
template <class Law>
double FillByLaw(const Law& law, int64_t num_classes, int64_t wanted,
                 IdSet* active, Philox* random) {
  double time = 0;
  for (int64_t left = 64 * wanted + 1024; left > 0; --left) {
    const int64_t id = law.Draw(random);
    time -= std::log(random->UniformDouble());
    if (active->Contains(id)) continue;
    if (active->size() == wanted) return time;
    active->Insert(id);
  }
  // What is left is rare: one ring for each of the classes, as time has no
  // memory.
  std::vector<std::pair<double, int64_t>> rings;
  for (int64_t id = 0; id < num_classes; ++id) {
    const double p = law.Probability(id);
    if (!(p > 0) || active->Contains(id)) continue;
    rings.emplace_back(time + RingAfter(p, random), id);
  }
  std::sort(rings.begin(), rings.end());
  for (const auto& [at, id] : rings) {
    if (active->size() == wanted) return at;
    active->Insert(id);
  }
  return std::numeric_limits<double>::infinity();
}

// Appends log_expected_count of what a law fills, and returns that of the
// distinct targets, -infinity where the law never draws them.
template <class Law>
std::vector<double> Fill(const Law& law, const ActiveClassesOptions& options,
                         IdSet* active, Philox* random, ActiveClasses* result) {
  const int64_t chosen = active->size();
  const double time =
      FillByLaw(law, options.num_classes, options.num_sampled, active, random);
  const auto log_count = [&](int64_t i) {
    const double p = law.Probability(active->ids()[i]);
    return p > 0 ? LogRung(p, time) : -std::numeric_limits<double>::infinity();
  };
  for (int64_t i = chosen; i < active->size(); ++i) {
    result->log_expected_count.push_back(log_count(i));
  }
  std::vector<double> of_targets(result->num_targets);
  for (int64_t i = 0; i < result->num_targets; ++i)
    of_targets[i] = log_count(i);
  return of_targets;
}

// Uniformly, what is missing. Horvitz-Thompson: each of the rest is in with
// the same probability. Returns it for a target, were it one of the rest; log.
inline double FillRest(const ActiveClassesOptions& options, IdSet* active,
                       Philox* random, ActiveClasses* result) {
  const int64_t filled = options.num_sampled - active->size();
  const int64_t rest = options.num_classes - active->size();
  const double log_count = LogFilled(filled, rest);
  FillUniform(options.num_classes, options.num_sampled, active, random);
  result->log_expected_count.resize(options.num_sampled, log_count);
  return LogFilledOneMore(filled, rest);
}

// Spreads the counts of the distinct targets over their occurrences.
inline void CountTargets(const std::vector<double>& of_targets, double rest,
                         const int64_t* positions, int64_t num_targets,
                         ActiveClasses* result) {
  std::vector<int64_t> occurrences(result->num_targets);
  for (int64_t i = 0; i < num_targets; ++i) {
    if (positions[i] >= 0) ++occurrences[positions[i]];
  }
  result->target_log_expected_count.assign(num_targets, 0.0f);
  for (int64_t i = 0; i < num_targets; ++i) {
    const int64_t p = positions[i];
    if (p < 0 || occurrences[p] > 1) continue;
    const bool by_law = !of_targets.empty() && std::isfinite(of_targets[p]);
    result->target_log_expected_count[i] = by_law ? of_targets[p] : rest;
  }
}

}  // namespace internal

// Ids < 0 in targets and candidates are padding. Requires num_sampled <=
// num_classes. More distinct targets than num_sampled are all chosen, and
// nothing else: a batch with many labels must not end a training.
inline void SelectActiveClasses(ActiveClassesOptions options,
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
  options.num_sampled = std::max(options.num_sampled, active.size());
  const int64_t left = options.num_sampled - active.size();
  const float share = options.candidate_share;
  const int64_t room = CandidateRoom(left, share);
  // To sample them, all are wanted.
  auto unique =
      internal::BestCandidates(candidates, scores, num_candidates, active,
                               options.sample_overflow ? num_candidates : room);
  internal::KeepBest(&unique, room, options.sample_overflow, &random);
  for (const auto& entry : unique) active.Insert(entry.second);
  result->num_candidates = unique.size();
  result->places_used = PlacesUsed(result->num_candidates, left, share);

  result->log_expected_count.assign(active.size(), 0.0f);
  std::vector<double> of_targets;
  if (options.fill == FillLaw::kLogUniform) {
    of_targets = internal::Fill(LogUniformLaw(options.num_classes), options,
                                &active, &random, result);
  } else if (options.fill == FillLaw::kFrequency) {
    of_targets =
        internal::Fill(FrequencyLaw(options.cumulative, options.num_classes),
                       options, &active, &random, result);
  }
  const double rest = internal::FillRest(options, &active, &random, result);
  internal::CountTargets(of_targets, rest, positions, num_targets, result);
  result->ids = active.ids();
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ACTIVE_CLASSES_H_
