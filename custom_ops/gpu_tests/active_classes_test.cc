// The active classes: their order and counts exactly, the fill by its law.
#include <algorithm>
#include <cmath>
#include <set>

#include "gpu_tests/harness.h"
#include "kernels/active_classes.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::FillLaw;
using tfxclass::GpuActiveOptions;

struct Selected {
  std::vector<int64_t> ids, positions, counts;
  std::vector<float> log_counts, target_log_counts;
};

Selected Select(GpuActiveOptions options, const std::vector<int64_t>& targets,
                const std::vector<int64_t>& candidates,
                const std::vector<float>& scores,
                const std::vector<double>& cumulative = {}) {
  Buffer<int64_t> t(targets), c(candidates), ids(options.num_sampled);
  Buffer<int64_t> positions(targets.size()), counts(3);
  Buffer<float> s(scores), log_counts(options.num_sampled);
  Buffer<float> target_counts(targets.size());
  Buffer<double> sums(cumulative);
  options.cumulative = sums.data();
  TestScratch scratch;
  Done(tfxclass::SelectActiveClasses(
      options, {t.data(), t.size(), c.data(), s.data(), c.size()},
      {ids.data(), log_counts.data(), positions.data(), target_counts.data(),
       counts.data()},
      &scratch, nullptr));
  return {ids.Read(), positions.Read(), counts.Read(), log_counts.Read(),
          target_counts.Read()};
}

GpuActiveOptions Options(int64_t num_classes, int64_t num_sampled) {
  GpuActiveOptions options;
  options.num_classes = num_classes;
  options.num_sampled = num_sampled;
  options.seed = 5;
  return options;
}

void ExpectSound(const GpuActiveOptions& options, const Selected& found) {
  const std::set<int64_t> distinct(found.ids.begin(), found.ids.end());
  Expect(static_cast<int64_t>(distinct.size()) == options.num_sampled,
         "ids must be distinct");
  Expect(*distinct.begin() >= 0 && *distinct.rbegin() < options.num_classes,
         "ids must be classes");
  Expect(found.counts[2] == options.num_sampled, "counts[2]");
}

GPU_TEST(ActiveTargetsAndCandidates) {
  const GpuActiveOptions options = Options(1000, 12);
  const auto found = Select(options, {7, -1, 500, 7, 3, 2000},
                            {8, 3, -1, 900, 8, 10}, {1, 9, 9, 2, 3, 0});
  ExpectSound(options, found);
  ExpectEqual(found.positions, {0, -1, 1, 0, 2, -1}, "positions");
  ExpectEqual({found.ids.begin(), found.ids.begin() + 6},
              std::vector<int64_t>{7, 500, 3, 8, 900, 10}, "chosen");
  ExpectEqual(found.counts, {3, 3, 12}, "counts");
  const float filled = std::log(6.0 / 994), target = std::log(7.0 / 995);
  for (int64_t i = 0; i < 12; ++i) {
    const float expected = i < 6 ? 0.0f : filled;
    Expect(std::abs(found.log_counts[i] - expected) < 1e-6, "log count");
  }
  for (const int64_t i : {0, 1, 3, 5}) {
    Expect(found.target_log_counts[i] == 0, "padding, or there twice");
  }
  for (const int64_t i : {2, 4}) {
    Expect(std::abs(found.target_log_counts[i] - target) < 1e-6, "target");
  }
}

GPU_TEST(ActiveBestCandidates) {
  GpuActiveOptions options = Options(50, 6);
  options.sample_overflow = false;
  options.candidate_share = 0.6f;  // of 5
  // 4 and 9 score alike: the lower id comes first.
  const auto found = Select(options, {1}, {30, 9, 4, 20, 30, 1},
                            {-5.0f, 2.0f, 2.0f, -7.0f, 8.0f, 99.0f});
  ExpectSound(options, found);
  ExpectEqual({found.ids.begin(), found.ids.begin() + 4},
              std::vector<int64_t>{1, 30, 4, 9}, "the best three");
  ExpectEqual(found.counts, {1, 3, 6}, "counts");
}

GPU_TEST(ActiveTooManyTargets) {
  const auto found = Select(Options(50, 2), {1, 2, 3, 4, 4}, {5}, {1});
  ExpectEqual(found.counts, {4, 0, 2}, "counts");
}

GPU_TEST(ActiveAllClasses) {
  const GpuActiveOptions options = Options(9, 9);
  ExpectSound(options, Select(options, {3}, {}, {}));
  const GpuActiveOptions one = Options(1, 1);
  ExpectSound(one, Select(one, {}, {}, {}));
}

// By how many standard deviations each class's frequency is off.
void ExpectFrequencies(const std::vector<int64_t>& times,
                       const std::vector<double>& expected, int64_t rounds) {
  for (size_t c = 0; c < times.size(); ++c) {
    const double p = expected[c];
    const double deviation = std::sqrt(rounds * p * (1 - p)) + 1e-9;
    Expect(std::abs(times[c] - rounds * p) < 5 * deviation,
           "class " + std::to_string(c) + ": " + std::to_string(times[c]) +
               " times, expected " + std::to_string(rounds * p));
  }
}

// The fill is uniform over what is left, drawn or listed.
GPU_TEST(ActiveUniformFill) {
  for (const int64_t num_sampled : {6, 14}) {
    const int64_t num_classes = 20, rounds = 150;
    std::vector<int64_t> times(num_classes, 0);
    GpuActiveOptions options = Options(num_classes, num_sampled);
    for (int64_t r = 0; r < rounds; ++r) {
      options.stream = r;
      const auto found = Select(options, {4}, {}, {});
      ExpectSound(options, found);
      for (const int64_t id : found.ids) ++times[id];
    }
    std::vector<double> expected(num_classes, (num_sampled - 1) / 19.0);
    expected[4] = 1;
    ExpectFrequencies(times, expected, rounds);
  }
}

// Sums over the fill, divided by the expected counts, are right on average.
GPU_TEST(ActiveLaws) {
  const int64_t num_classes = 12, num_sampled = 5, rounds = 400;
  std::vector<double> cumulative;
  for (int64_t c = 0; c < num_classes; ++c) {
    const double weight = c == 6 ? 0.0 : c + 1.0;
    cumulative.push_back((c ? cumulative.back() : 0.0) + weight);
  }
  for (const auto fill : {FillLaw::kLogUniform, FillLaw::kFrequency}) {
    GpuActiveOptions options = Options(num_classes, num_sampled);
    options.fill = fill;
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < rounds; ++r) {
      options.stream = r;
      const auto found = Select(options, {2}, {}, {}, cumulative);
      ExpectSound(options, found);
      double round = 0;
      for (int64_t i = 1; i < num_sampled; ++i) {
        round += (found.ids[i] + 1) / std::exp(found.log_counts[i]);
      }
      sum += round;
      squares += round * round;
    }
    // All classes but the target and, by frequency, the one without weight.
    const bool by_frequency = fill == FillLaw::kFrequency;
    const double expected = 78 - 3 - (by_frequency ? 7 : 0);
    const double mean = sum / rounds;
    const double deviation =
        std::sqrt((squares / rounds - mean * mean) / rounds);
    Expect(std::abs(mean - expected) < 4.5 * deviation,
           "mean " + std::to_string(mean) + ", expected " +
               std::to_string(expected) + " +- " + std::to_string(deviation));
  }
}

// More wanted than classes with weight: the rest comes uniformly.
GPU_TEST(ActiveLawRunsOut) {
  GpuActiveOptions options = Options(6, 5);
  options.fill = FillLaw::kFrequency;
  const auto found = Select(options, {0}, {}, {}, {1, 2, 2, 3, 3, 3});
  ExpectSound(options, found);
  // Of 2, 4 and 5, without weight, two are in.
  ExpectEqual({std::min(found.ids[1], found.ids[2]),
               std::max(found.ids[1], found.ids[2])},
              std::vector<int64_t>{1, 3}, "classes with weight");
  Expect(found.log_counts[1] == 0 && found.log_counts[2] == 0, "certain");
  for (const int64_t i : {3, 4}) {
    Expect(std::abs(found.log_counts[i] - std::log(2.0 / 3)) < 1e-6, "rest");
  }
}

GPU_TEST(ActiveGumbelOverflow) {
  // Scores log 1 and log 3, room for one: 3 times as often the second.
  GpuActiveOptions options = Options(100, 2);
  std::vector<int64_t> times(2, 0);
  const int64_t rounds = 300;
  for (int64_t r = 0; r < rounds; ++r) {
    options.stream = r;
    ++times[Select(options, {1}, {10, 11}, {0, std::log(3.0f)}).ids[1] - 10];
  }
  ExpectFrequencies(times, {0.25, 0.75}, rounds);
}

GPU_BENCHMARK(ActiveBenchmarks) {
  Random random(1);
  const int64_t batch = 4096, num_sampled = 16384, num_candidates = 409600;
  Buffer<int64_t> targets(random.Ids(batch, 1000000));
  Buffer<int64_t> candidates(random.Ids(num_candidates, 1000000));
  Buffer<float> scores(random.Normal(num_candidates));
  Buffer<int64_t> ids(num_sampled), positions(batch), counts(3);
  Buffer<float> log_counts(num_sampled), target_counts(batch);
  GpuActiveOptions options = Options(1000000, num_sampled);
  TestScratch scratch;
  for (const int64_t n : {int64_t{0}, num_candidates}) {
    Report("16,384 of 1M classes, 4,096 targets, " + std::to_string(n) +
               " candidates",
           MedianMs([&] {
             scratch.Reuse();
             Done(tfxclass::SelectActiveClasses(
                 options,
                 {targets.data(), batch, candidates.data(), scores.data(), n},
                 {ids.data(), log_counts.data(), positions.data(),
                  target_counts.data(), counts.data()},
                 &scratch, nullptr));
           }),
           12.0 * (n + batch + 5 * num_sampled), 0);
  }
}

}  // namespace
}  // namespace gpu_tests
