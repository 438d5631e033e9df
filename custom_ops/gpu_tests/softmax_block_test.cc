// Passes over blocks of logits against core/softmax_block.h, and in double.
#include "core/softmax_block.h"

#include <cmath>
#include <limits>

#include "core/bf16.h"
#include "core/tile_dispatch.h"
#include "gpu_tests/harness.h"
#include "kernels/softmax_block.cu.h"

namespace gpu_tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// NaN equals NaN.
template <class T>
void ExpectClose(const std::vector<T>& found, const std::vector<T>& expected,
                 double tolerance, const std::string& what) {
  Expect(found.size() == expected.size(), what + ": sizes");
  for (size_t i = 0; i < found.size(); ++i) {
    const T a = found[i], b = expected[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double bound = tolerance * std::max(T{1}, std::abs(b));
    Expect(std::abs(a - b) <= bound, what + " at " + std::to_string(i) + ": " +
                                         std::to_string(a) + ", expected " +
                                         std::to_string(b));
  }
}

struct Targets {
  std::vector<int64_t> ids;
  std::vector<float> values;
  int64_t width;
};

// Distinct in a row; some before, some past the block, some -1, some zeros.
Targets SomeTargets(Random* random, int64_t batch, int64_t block,
                    int64_t offset, int64_t width) {
  Targets targets = {{}, random->Normal(batch * width), width};
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t first = random->Below(block + 2);
    for (int64_t t = 0; t < width; ++t) {
      const int64_t c = first + t * 7;
      targets.ids.push_back(c % 5 == 4 ? -1 : offset - 1 + c);
      if (c % 6 == 0) targets.values[i * width + t] = 0;
    }
  }
  return targets;
}

struct Case {
  int64_t batch, block, offset, width;
};

const Case kCases[] = {{3, 1, 0, 1},     {5, 7, 10, 2},     {2, 1023, 5, 40},
                       {3, 4100, 99, 3}, {2, 9000, 0, 300}, {2, 64, 3, 0},
                       {0, 5, 0, 1},     {3, 0, 0, 1}};

GPU_TEST(SoftmaxBlockStatsTest) {
  Random random(1);
  for (const Case& c : kCases) {
    auto logits = random.Normal(c.batch * c.block, 3.0f);
    const Targets targets =
        SomeTargets(&random, c.batch, c.block, c.offset, c.width);
    auto max = random.Normal(c.batch);
    std::vector<double> sum(c.batch, 2.5);
    if (c.batch > 1) max[1] = -kInfinity, sum[1] = 0;
    Buffer<float> logit_buffer(logits), values(targets.values);
    Buffer<float> max_buffer(max);
    Buffer<double> sum_buffer(sum);
    Buffer<int64_t> ids(targets.ids);
    const tfxclass::GpuTargets delta = {ids.data(), values.data(), c.width};
    Done(tfxclass::SoftmaxBlockStats(logit_buffer.data(), c.batch, c.block,
                                     c.offset, delta, max_buffer.data(),
                                     sum_buffer.data(), max_buffer.data(),
                                     sum_buffer.data(), nullptr));
    std::vector<double> exact;
    std::vector<float> found;
    const auto found_max = max_buffer.Read();
    const auto found_sum = sum_buffer.Read();
    for (int64_t i = 0; i < c.batch; ++i) {
      double total = sum[i] * std::exp(double{max[i]});
      for (int64_t j = 0; j < c.block; ++j) {
        double x = logits[i * c.block + j];
        for (int64_t t = 0; t < c.width; ++t) {
          const int64_t at = i * c.width + t;
          if (targets.ids[at] == c.offset + j) x += targets.values[at];
        }
        total += std::exp(x);
      }
      if (total > 0) {
        exact.push_back(std::log(total));
        found.push_back(found_max[i] + std::log(found_sum[i]));
      }
      tfxclass::SoftmaxStatsRow(tfxclass::BestTiles(), &logits[i * c.block],
                                c.block, c.offset, &targets.ids[i * c.width],
                                &targets.values[i * c.width], c.width, &max[i],
                                &sum[i]);
    }
    ExpectNear(found, exact, 1e-6, "logsumexp");
    ExpectClose(found_max, max, 0, "max");
    ExpectClose(found_sum, sum, 1e-6, "sum");
  }
}

// Rows of -infinity, NaN, +infinity; running values that are so; great logits.
GPU_TEST(SoftmaxBlockStatsOfOddRows) {
  const int64_t batch = 9, block = 600;
  Random random(2);
  auto logits = random.Normal(batch * block);
  const auto fill = [&](int64_t row, float value) {
    std::fill_n(&logits[row * block], block, value);
  };
  fill(0, -kInfinity);
  fill(1, -kInfinity);
  logits[1 * block + 599] = kNan;
  logits[2 * block + 3] = kNan;
  logits[3 * block + 599] = kInfinity;
  for (int64_t c = 0; c < block; ++c) logits[4 * block + c] *= 1e4f;
  std::fill_n(&logits[5 * block], 500, -kInfinity);
  fill(6, -kInfinity);
  fill(7, kNan);
  std::vector<float> max(batch, 0.5f);
  std::vector<double> sum(batch, 3.0);
  max[1] = max[5] = max[6] = -kInfinity, sum[1] = sum[5] = sum[6] = 0;
  max[8] = kNan;
  std::vector<int64_t> ids(batch, 17);
  std::vector<float> values(batch, 2.0f);
  values[4] = -kInfinity;
  Buffer<float> logit_buffer(logits), max_buffer(max), new_max(batch);
  Buffer<float> value_buffer(values);
  Buffer<double> sum_buffer(sum), new_sum(batch);
  Buffer<int64_t> id_buffer(ids);
  Done(tfxclass::SoftmaxBlockStats(logit_buffer.data(), batch, block, 0,
                                   {id_buffer.data(), value_buffer.data(), 1},
                                   max_buffer.data(), sum_buffer.data(),
                                   new_max.data(), new_sum.data(), nullptr));
  for (int64_t i = 0; i < batch; ++i) {
    tfxclass::SoftmaxStatsRow(tfxclass::BestTiles(), &logits[i * block], block,
                              0, &ids[i], &values[i], 1, &max[i], &sum[i]);
  }
  ExpectClose(new_max.Read(), max, 0, "max");
  ExpectClose(new_sum.Read(), sum, 1e-6, "sum");
}

GPU_TEST(SoftmaxBlockGradTest) {
  Random random(3);
  for (const Case& c : kCases) {
    for (const bool in_place : {false, true}) {
      auto logits = random.Normal(c.batch * c.block, 3.0f);
      if (logits.size() > 4) logits[3] = kNan, logits[4] = -kInfinity;
      const Targets targets =
          SomeTargets(&random, c.batch, c.block, c.offset, c.width);
      const auto lse = random.Normal(c.batch), up = random.Normal(c.batch);
      Buffer<float> logit_buffer(logits), lse_buffer(lse), up_buffer(up);
      Buffer<float> grad(logits.size()), values(targets.values);
      Buffer<int64_t> ids(targets.ids);
      float* to = in_place ? logit_buffer.data() : grad.data();
      Done(tfxclass::SoftmaxBlockGrad(
          logit_buffer.data(), c.batch, c.block, c.offset,
          {ids.data(), values.data(), c.width}, lse_buffer.data(),
          up_buffer.data(), to, nullptr));
      std::vector<float> expected(logits.size());
      for (int64_t i = 0; i < c.batch; ++i) {
        tfxclass::SoftmaxGradRow(tfxclass::BestTiles(), &logits[i * c.block],
                                 c.block, c.offset, &targets.ids[i * c.width],
                                 &targets.values[i * c.width], c.width, lse[i],
                                 up[i], &expected[i * c.block]);
      }
      ExpectClose((in_place ? logit_buffer : grad).Read(), expected, 1e-5f,
                  "gradient");
    }
  }
}

// The float32 gradient, rounded.
GPU_TEST(SoftmaxBlockGradInBfloat16) {
  Random random(3);
  for (const Case& c : kCases) {
    auto logits = random.Normal(c.batch * c.block, 3.0f);
    if (logits.size() > 4) logits[3] = kNan, logits[4] = -kInfinity;
    const Targets targets =
        SomeTargets(&random, c.batch, c.block, c.offset, c.width);
    Buffer<float> logit_buffer(logits), values(targets.values);
    Buffer<float> lse(random.Normal(c.batch)), up(random.Normal(c.batch));
    Buffer<float> wide(logits.size());
    Buffer<uint16_t> narrow(logits.size());
    Buffer<int64_t> ids(targets.ids);
    const auto compute = [&](auto* to) {
      Done(tfxclass::SoftmaxBlockGrad(logit_buffer.data(), c.batch, c.block,
                                      c.offset,
                                      {ids.data(), values.data(), c.width},
                                      lse.data(), up.data(), to, nullptr));
    };
    compute(wide.data());
    compute(narrow.data());
    std::vector<uint16_t> expected;
    for (const float x : wide.Read()) {
      expected.push_back(tfxclass::ToBf16(x).bits);
    }
    ExpectEqual(narrow.Read(), expected, "gradient");
  }
}

// Blocks one after the other, the list of one the start of the next.
void CheckTopK(std::vector<float> logits, int64_t batch, int64_t block,
               int64_t num_blocks, int64_t k) {
  const int64_t row_length = block * num_blocks;
  std::vector<float> scores(batch * k, -kInfinity);
  std::vector<int64_t> ids(batch * k, -1);
  std::vector<float> expected_scores = scores;
  std::vector<int64_t> expected_ids = ids;
  for (int64_t b = 0; b < num_blocks; ++b) {
    std::vector<float> of_block;
    for (int64_t i = 0; i < batch; ++i) {
      const float* row = &logits[i * row_length + b * block];
      of_block.insert(of_block.end(), row, row + block);
      tfxclass::TopKBlockRow(row, block, b * block, k, &expected_scores[i * k],
                             &expected_ids[i * k]);
    }
    Buffer<float> logit_buffer(of_block), score_buffer(scores);
    Buffer<float> new_scores(batch * k);
    Buffer<int64_t> id_buffer(ids), new_ids(batch * k);
    TestScratch scratch;
    Done(tfxclass::TopKBlock(logit_buffer.data(), batch, block, b * block, k,
                             score_buffer.data(), id_buffer.data(),
                             new_scores.data(), new_ids.data(), &scratch,
                             nullptr));
    scores = new_scores.Read();
    ids = new_ids.Read();
  }
  const std::string what =
      "k=" + std::to_string(k) + ", block " + std::to_string(block) + ": ";
  ExpectEqual(ids, expected_ids, what + "ids");
  ExpectEqual(scores, expected_scores, what + "scores");
}

std::vector<float> Rounded(std::vector<float> values) {
  for (float& value : values) value = std::round(value * 2);  // -0 too
  return values;
}

GPU_TEST(TopKBlockTest) {
  Random random(4);
  for (const int64_t k : {1, 5, 64, 100, 128, 200}) {
    CheckTopK(random.Normal(2 * 3 * 2051), 2, 2051, 3, k);
    CheckTopK(Rounded(random.Normal(2 * 2 * 1500)), 2, 1500, 2, k);
    CheckTopK(random.Normal(3 * 4 * 33), 3, 33, 4, k);
  }
  CheckTopK({}, 0, 8, 1, 3);
  CheckTopK(random.Normal(5), 5, 1, 1, 1);
  // More than 4,096 take a second pass, or 2,048 where a block has little
  // memory; a list that is not full then.
  CheckTopK(random.Normal(2 * 2 * 6000), 2, 6000, 2, 5000);
  CheckTopK(Rounded(random.Normal(2 * 3000)), 1, 3000, 2, 4200);
  CheckTopK(random.Normal(2 * 4000), 2, 4000, 1, 2049);
}

GPU_TEST(TopKBlockOfOddRows) {
  const int64_t block = 3000;
  Random random(5);
  std::vector<float> logits;
  for (int64_t c = 0; c < block; ++c) logits.push_back(c);  // all enter
  for (int64_t c = 0; c < block; ++c) logits.push_back(-c);
  logits.insert(logits.end(), block, kNan);
  logits.insert(logits.end(), block, -kInfinity);
  logits.insert(logits.end(), block, 1.0f);
  auto mixed = random.Normal(block);
  for (int64_t c = 0; c < block; c += 3) {
    mixed[c] = c % 2 ? kNan : c % 4 ? kInfinity : -kInfinity;
  }
  logits.insert(logits.end(), mixed.begin(), mixed.end());
  for (const int64_t k : {1, 7, 128, 400, 2900}) {
    CheckTopK(logits, 6, block, 1, k);
    CheckTopK(logits, 3, block, 2, k);
  }
}

// Blocks need not come in the order of their offsets.
GPU_TEST(TopKBlockBackwards) {
  Buffer<float> logits(std::vector<float>{2, 3, 3, 1}), scores(3);
  Buffer<float> old(std::vector<float>{3, 2, 1});
  Buffer<int64_t> old_ids(std::vector<int64_t>{12, 20, 21}), ids(3);
  TestScratch scratch;
  Done(tfxclass::TopKBlock(logits.data(), 1, 4, 10, 3, old.data(),
                           old_ids.data(), scores.data(), ids.data(), &scratch,
                           nullptr));
  // Class 12 was there before: it is not asked whether it comes twice.
  ExpectEqual(ids.Read(), {11, 12, 12}, "ids");
  ExpectEqual(scores.Read(), {3.0f, 3.0f, 3.0f}, "scores");
}

GPU_TEST(WriteRowsTest) {
  const std::vector<float> rows = {1, 2, 3, 4};
  Buffer<float> buffer(std::vector<float>(10, 9.0f)), row_buffer(rows);
  Buffer<float> result(10);
  Done(tfxclass::WriteRows(buffer.data(), 5, 2, row_buffer.data(), 2, 3,
                           result.data(), nullptr));
  ExpectEqual(result.Read(), {9, 9, 9, 9, 9, 9, 1, 2, 3, 4}, "result");
  Done(tfxclass::WriteRows(buffer.data(), 5, 2, row_buffer.data(), 2, 0,
                           buffer.data(), nullptr));
  ExpectEqual(buffer.Read(), {1, 2, 3, 4, 9, 9, 9, 9, 9, 9}, "in place");
  for (const int64_t start : {-1, 4}) {
    Expect(tfxclass::WriteRows(buffer.data(), 5, 2, row_buffer.data(), 2, start,
                               buffer.data(), nullptr) != nullptr,
           "rows that do not fit");
  }
}

GPU_BENCHMARK(SoftmaxBlockBenchmarks) {
  const int64_t batch = 4096, block = 65536, k = 128;
  Random random(7);
  Buffer<float> logits(batch * block);
  const auto row = random.Normal(block + batch);
  for (int64_t i = 0; i < batch; ++i) {
    CopyIn(logits.data() + i * block, &row[i], block * sizeof(float));
  }
  Buffer<float> max(std::vector<float>(batch, -kInfinity));
  Buffer<float> new_max(batch), delta(random.Normal(batch));
  Buffer<double> sum(std::vector<double>(batch, 0)), new_sum(batch);
  Buffer<int64_t> ids(random.Ids(batch, block));
  const double bytes = 4.0 * batch * block;
  const tfxclass::GpuTargets targets = {ids.data(), delta.data(), 1};
  Report("stats of 4,096 x 65,536 logits", MedianMs([&] {
           Done(tfxclass::SoftmaxBlockStats(
               logits.data(), batch, block, 0, targets, max.data(), sum.data(),
               new_max.data(), new_sum.data(), nullptr));
         }),
         bytes, 0);
  Buffer<float> scores(std::vector<float>(batch * k, -kInfinity));
  Buffer<float> new_scores(batch * k), last_scores(batch * k);
  Buffer<int64_t> best(std::vector<int64_t>(batch * k, -1)),
      new_best(batch * k);
  Buffer<int64_t> last_best(batch * k);
  TestScratch scratch;
  Report("top 128 of 4,096 x 65,536 logits, the first block", MedianMs([&] {
           Done(tfxclass::TopKBlock(
               logits.data(), batch, block, 0, k, scores.data(), best.data(),
               new_scores.data(), new_best.data(), &scratch, nullptr));
         }),
         bytes, 0);
  Report("top 128 of 4,096 x 65,536 logits, a later block", MedianMs([&] {
           Done(tfxclass::TopKBlock(logits.data(), batch, block, block, k,
                                    new_scores.data(), new_best.data(),
                                    last_scores.data(), last_best.data(),
                                    &scratch, nullptr));
         }),
         bytes, 0);
  Report("gradient of 4,096 x 65,536 logits, in place", MedianMs([&] {
           Done(tfxclass::SoftmaxBlockGrad(
               logits.data(), batch, block, 0, targets, new_max.data(),
               delta.data(), logits.data(), nullptr));
         }),
         2 * bytes, 0);
  Buffer<uint16_t> narrow(batch * block);
  Report("gradient of 4,096 x 65,536 logits, to bfloat16", MedianMs([&] {
           Done(tfxclass::SoftmaxBlockGrad(
               logits.data(), batch, block, 0, targets, new_max.data(),
               delta.data(), narrow.data(), nullptr));
         }),
         1.5 * bytes, 0);
}

}  // namespace
}  // namespace gpu_tests
