// The exact softmax of bfloat16 rows against the formulas in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/bf16.h"
#include "gpu_tests/harness.h"
#include "kernels/exact_softmax.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::SoftmaxClasses;

uint16_t ToBits(float x) { return tfxclass::ToBf16(x).bits; }
float Rounded(float x) { return tfxclass::ToFloat(tfxclass::ToBf16(x)); }

// Queries that bfloat16 holds: then the logits are those of double, and only
// what they weigh is rounded.
struct Example {
  int64_t batch, num_classes, dim, width;
  float epsilon = 0, uniform = 0.25f;
  std::vector<float> queries, rows, bias, values, factor;
  std::vector<int64_t> targets;

  bool IsTarget(int64_t b, int64_t c, double* value) const {
    for (int64_t k = b * width; k < (b + 1) * width; ++k) {
      if (targets[k] != c) continue;
      *value = values[k];
      return true;
    }
    return false;
  }
};

Example MakeExample(int64_t batch, int64_t num_classes, int64_t dim,
                    int64_t width, float epsilon = 0) {
  Random random(batch * 7 + num_classes * 3 + dim);
  const float scale = 1.5f / std::sqrt(std::sqrt(static_cast<float>(dim)));
  Example e = {batch, num_classes, dim, width, epsilon};
  e.queries = random.Normal(batch * dim, scale);
  e.rows = random.Normal(num_classes * dim, scale);
  e.bias = random.Normal(num_classes);
  e.values = random.Normal(batch * width);
  e.factor = random.Normal(batch);
  for (float& x : e.queries) x = Rounded(x);
  for (float& x : e.rows) x = Rounded(x);
  // At the edges of tiles and ranges; some are padding, some no class.
  const int64_t edges[] = {0, 63, 64, 255, 256, num_classes - 1};
  for (int64_t i = 0; i < batch * width; ++i) {
    const int64_t b = i / width, first = edges[b % 6] + 3 * (i % width);
    e.targets.push_back(i % 5 == 3   ? -1
                        : i % 7 == 6 ? num_classes + 40
                                     : first);
  }
  if (epsilon > 0) {
    // Shorter than the least norm.
    std::fill_n(&e.rows[(num_classes - 1) * dim], dim, Rounded(1e-3f));
  }
  return e;
}

struct Outcome {
  std::vector<double> logsumexp, rows, rows_grad, bias_grad;
};

double InverseNorm(const Example& e, int64_t c, bool* is_long) {
  double squares = 0;
  for (int64_t d = 0; d < e.dim; ++d) {
    squares += std::pow(e.rows[c * e.dim + d], 2);
  }
  *is_long = squares > e.epsilon;
  return e.epsilon > 0 ? 1 / std::sqrt(std::max<double>(squares, e.epsilon))
                       : 1;
}

struct Found {
  std::vector<float> top;
  std::vector<double> total;
  std::vector<float> logsumexp;  // of both
  std::vector<float> rows, rows_grad, bias_grad;
};

// What is relative to `found`.
Outcome InDouble(const Example& e, bool has_bias, const Found& found) {
  Outcome o = {std::vector<double>(e.batch),
               std::vector<double>(e.batch * e.dim),
               std::vector<double>(e.num_classes * e.dim),
               std::vector<double>(e.num_classes)};
  std::vector<double> sums(e.batch), logits(e.batch * e.num_classes);
  for (int64_t c = 0; c < e.num_classes; ++c) {
    bool is_long;
    const double inverse = InverseNorm(e, c, &is_long);
    const float* row = &e.rows[c * e.dim];
    for (int64_t b = 0; b < e.batch; ++b) {
      const float* query = &e.queries[b * e.dim];
      double logit = has_bias ? e.bias[c] : 0, value = 0;
      for (int64_t d = 0; d < e.dim; ++d) {
        logit += double{query[d]} * row[d] * inverse;
      }
      const bool is_target = e.IsTarget(b, c, &value);
      const double weight = std::exp(logit + value - found.top[b]);
      sums[b] += weight;
      const double p = std::exp(logit - found.logsumexp[b]);
      const double g =
          (is_target ? value : e.factor[b] * p) - e.factor[b] * e.uniform;
      o.bias_grad[c] += g;
      for (int64_t d = 0; d < e.dim; ++d) {
        if (!is_target) o.rows[b * e.dim + d] += weight * row[d] * inverse;
        o.rows_grad[c * e.dim + d] += g * query[d];
      }
    }
    if (e.epsilon == 0) continue;
    double along = 0;
    double* const grad = &o.rows_grad[c * e.dim];
    for (int64_t d = 0; d < e.dim; ++d) along += grad[d] * row[d];
    along *= is_long ? inverse * inverse : 0;
    for (int64_t d = 0; d < e.dim; ++d) {
      grad[d] = (grad[d] - along * row[d]) * inverse;
    }
  }
  for (int64_t b = 0; b < e.batch; ++b) {
    o.logsumexp[b] = found.top[b] + std::log(sums[b]);
  }
  return o;
}

// `shift` moves the class rows off their alignment.
Found Compute(const Example& e, bool has_bias, int64_t shift = 0) {
  std::vector<uint16_t> bits(shift, 0xffff);
  for (const float w : e.rows) bits.push_back(ToBits(w));
  Buffer<uint16_t> rows(bits);
  Buffer<float> queries(e.queries), bias(e.bias), values(e.values);
  Buffer<float> factor(e.factor);
  Buffer<int64_t> targets(e.targets);
  Buffer<float> top(e.batch), row_sums(e.batch * e.dim);
  Buffer<double> total(e.batch);
  Buffer<float> rows_grad(e.num_classes * e.dim), bias_grad(e.num_classes);
  SoftmaxClasses classes;
  classes.batch = e.batch;
  classes.num_classes = e.num_classes;
  classes.dim = e.dim;
  classes.queries = queries.data();
  classes.rows = rows.data() + shift;
  classes.bias = has_bias ? bias.data() : nullptr;
  classes.epsilon = e.epsilon;
  classes.targets = targets.data();
  classes.values = values.data();
  classes.width = e.width;
  TestScratch scratch;
  Done(tfxclass::ExactSoftmax(classes, top.data(), total.data(),
                              row_sums.data(), &scratch, nullptr));
  Found found = {top.Read(), total.Read()};
  for (int64_t b = 0; b < e.batch; ++b) {
    found.logsumexp.push_back(found.top[b] + std::log(found.total[b]));
  }
  Buffer<float> logsumexp(found.logsumexp);
  Done(tfxclass::ExactSoftmaxGrad(
      classes, logsumexp.data(), factor.data(), e.uniform, rows_grad.data(),
      has_bias ? bias_grad.data() : nullptr, &scratch, nullptr));
  found.rows = row_sums.Read();
  found.rows_grad = rows_grad.Read();
  found.bias_grad = bias_grad.Read();
  return found;
}

// Weights and gradients are rounded: half a last bit of 8 each.
void Check(const Example& e, bool has_bias, int64_t shift = 0,
           double of_bias = 1e-5) {
  const Found found = Compute(e, has_bias, shift);
  const Outcome exact = InDouble(e, has_bias, found);
  const std::string what = std::to_string(e.batch) + " x " +
                           std::to_string(e.num_classes) + " x " +
                           std::to_string(e.dim) + ": ";
  ExpectNear(found.logsumexp, exact.logsumexp, 2e-6, what + "log-sum-exp");
  ExpectNear(found.rows, exact.rows, 4e-3, what + "sum of rows");
  ExpectNear(found.rows_grad, exact.rows_grad, 4e-3, what + "gradient");
  if (!has_bias) return;
  ExpectNear(found.bias_grad, exact.bias_grad, of_bias, what + "of the bias");
}

GPU_TEST(ExactSoftmaxSizes) {
  Check(MakeExample(1, 1, 1, 1), true);
  Check(MakeExample(5, 1, 3, 2), false);
  Check(MakeExample(40, 200, 20, 3), true);
  Check(MakeExample(9, 700, 16, 1), false);
  Check(MakeExample(300, 70, 8, 1), true);
  Check(MakeExample(3, 65, 300, 2), true);
  Check(MakeExample(7, 70, 9, 0), true);
}

GPU_TEST(ExactSoftmaxOfNormalisedRows) {
  Check(MakeExample(33, 90, 20, 2, 1e-2f), true);
  Check(MakeExample(3, 65, 140, 1, 1e-2f), false);
}

// Rows that begin anywhere.
GPU_TEST(ExactSoftmaxUnaligned) { Check(MakeExample(5, 70, 16, 1), true, 1); }

GPU_TEST(ExactSoftmaxSameTwice) {
  const Example e = MakeExample(33, 300, 17, 2);
  const Found a = Compute(e, true), b = Compute(e, true);
  ExpectEqual(a.total, b.total, "total");
  ExpectEqual(a.rows, b.rows, "sum of rows");
  ExpectEqual(a.rows_grad, b.rows_grad, "gradient");
}

// One class that is everybody's target.
GPU_TEST(ExactSoftmaxOneTarget) {
  Example e = MakeExample(270, 66, 4, 1);
  for (int64_t& target : e.targets) target = 65;
  Check(e, true);
}

// Logits up to 1e4 apart, each off by as much as float32 is of 1e4.
GPU_TEST(ExactSoftmaxGreatLogits) {
  Example e = MakeExample(8, 130, 16, 1);
  for (float& x : e.queries) x *= 4096;
  for (float& x : e.values) x = -std::abs(x);
  Check(e, true, 0, 1e-3);
}

// Past the last example of a tile, exp(bias) is more than 1.
GPU_TEST(ExactSoftmaxGreatBias) {
  Example e = MakeExample(5, 100, 8, 1);
  e.bias[7] = 266.75f;
  Check(e, true);
}

GPU_TEST(ExactSoftmaxEmpty) {
  const Found found = Compute(MakeExample(0, 70, 5, 1), true);
  ExpectEqual(found.rows_grad, std::vector<float>(70 * 5, 0.0f), "rows");
  ExpectEqual(found.bias_grad, std::vector<float>(70, 0.0f), "bias");
  const Found none = Compute(MakeExample(3, 0, 5, 1), true);
  ExpectEqual(none.total, std::vector<double>(3, 0.0), "total");
  ExpectEqual(none.rows, std::vector<float>(3 * 5, 0.0f), "sum of rows");
}

// NaN stays in its row; classes masked by -infinity, or all of them.
GPU_TEST(ExactSoftmaxOddValues) {
  Example e = MakeExample(3, 100, 8, 1);
  const float lowest = -std::numeric_limits<float>::infinity();
  std::fill_n(&e.bias[0], 65, lowest);
  e.queries[8] = NAN;
  Found found = Compute(e, true);
  Expect(std::isfinite(found.total[0]), "a row without NaN");
  Expect(std::isnan(found.total[1]), "a row with NaN");
  for (int64_t d = 0; d < 8; ++d) {
    Expect(std::isfinite(found.rows[d]), "its sum of rows");
    Expect(std::isnan(found.rows[8 + d]), "that of NaN");
  }
  e.queries[8] = 0;
  std::fill_n(&e.bias[0], 100, lowest);
  found = Compute(e, true);
  Expect(found.top[2] == lowest && found.total[2] == 0, "all are masked");
  Expect(found.rows[16] == 0, "no sum of rows");
}

// Class rows of more than 2^31 elements on a GPU; all but the last are zeros.
GPU_TEST(ExactSoftmaxFarOffsets) {
  const int64_t dim = 128, batch = 3, piece = 1 << 20;
  const int64_t num_classes = kIsEmulated ? 65 : (int64_t{1} << 31) / dim + 9;
  Buffer<uint16_t> rows(num_classes * dim);
  Buffer<float> rows_grad(num_classes * dim);
  const std::vector<uint16_t> zeros(piece, 0);
  for (int64_t at = 0; at < rows.size(); at += piece) {
    const int64_t count = std::min(piece, rows.size() - at);
    CopyIn(rows.data() + at, zeros.data(), count * sizeof(uint16_t));
  }
  const std::vector<uint16_t> last(dim, ToBits(0.0625f));
  CopyIn(rows.data() + (num_classes - 1) * dim, last.data(),
         dim * sizeof(uint16_t));
  Buffer<float> queries(std::vector<float>(batch * dim, 0.5f));
  Buffer<float> values(std::vector<float>(batch, 0.0f));
  Buffer<float> factor(std::vector<float>(batch, 1.0f));
  Buffer<int64_t> targets(std::vector<int64_t>(batch, num_classes - 1));
  Buffer<float> top(batch), row_sums(batch * dim);
  Buffer<double> total(batch);
  SoftmaxClasses classes;
  classes.batch = batch;
  classes.num_classes = num_classes;
  classes.dim = dim;
  classes.queries = queries.data();
  classes.rows = rows.data();
  classes.targets = targets.data();
  classes.values = values.data();
  classes.width = 1;
  TestScratch scratch;
  Done(tfxclass::ExactSoftmax(classes, top.data(), total.data(),
                              row_sums.data(), &scratch, nullptr));
  ExpectEqual(top.Read(), std::vector<float>(batch, 4.0f), "top");
  const double others = (num_classes - 1.0) * std::exp(-4.0);
  Expect(std::abs(total.Read()[0] / (1 + others) - 1) < 1e-4, "total");
  ExpectEqual(row_sums.Read(), std::vector<float>(batch * dim, 0.0f), "rows");
  Done(tfxclass::ExactSoftmaxGrad(classes, top.data(), factor.data(), 0.5f,
                                  rows_grad.data(), nullptr, &scratch,
                                  nullptr));
  std::vector<float> of_last(dim);
  CopyOut(of_last.data(), rows_grad.data() + (num_classes - 1) * dim,
          dim * sizeof(float));
  ExpectNear(of_last, std::vector<double>(dim, -0.5 * 0.5 * batch), 1e-6,
             "gradient");
}

// The floors count the five products, and the rows read once in each pass.
void ReportSoftmax(int64_t batch) {
  const int64_t num_classes = 1000000, dim = 128, piece = dim * 1000;
  Random random(9);
  const auto values = random.Normal(piece);
  std::vector<uint16_t> bits;
  for (const float w : values) bits.push_back(ToBits(w));
  Buffer<uint16_t> rows(num_classes * dim);
  for (int64_t at = 0; at < num_classes * dim; at += piece) {
    CopyIn(rows.data() + at, bits.data(), piece * sizeof(uint16_t));
  }
  Buffer<float> queries(random.Normal(batch * dim, 0.1f)), top(batch);
  Buffer<float> factor(std::vector<float>(batch, 1.0f / batch));
  Buffer<float> of_targets(std::vector<float>(batch, 0.0f));
  Buffer<float> sums(batch * dim), rows_grad(num_classes * dim);
  Buffer<double> total(batch);
  Buffer<int64_t> targets(random.Ids(batch, num_classes));
  SoftmaxClasses classes;
  classes.batch = batch;
  classes.num_classes = num_classes;
  classes.dim = dim;
  classes.queries = queries.data();
  classes.rows = rows.data();
  classes.targets = targets.data();
  classes.values = of_targets.data();
  classes.width = 1;
  const double flops = 2.0 * batch * num_classes * dim;
  const double row_bytes = 2.0 * num_classes * dim;
  const double grad_bytes = 4.0 * num_classes * dim;
  const std::string size = ", " + std::to_string(batch) + " x 1M x 128";
  TestScratch scratch;
  const auto forward = [&](float* of_rows) {
    Done(tfxclass::ExactSoftmax(classes, top.data(), total.data(), of_rows,
                                &scratch, nullptr));
  };
  const auto backward = [&] {
    Done(tfxclass::ExactSoftmaxGrad(classes, top.data(), factor.data(), 0,
                                    rows_grad.data(), nullptr, &scratch,
                                    nullptr));
  };
  const auto time = [&](const std::string& what, int products, double bytes,
                        const std::function<void()>& launch) {
    Report("exact softmax, " + what + size, MedianMs([&] {
             scratch.Reuse();
             launch();
           }),
           bytes, products * flops);
  };
  time("sums", 1, row_bytes, [&] { forward(nullptr); });
  time("sums and rows", 3, 2 * row_bytes, [&] { forward(sums.data()); });
  time("gradient", 2, row_bytes + grad_bytes, backward);
  time("all", 5, 3 * row_bytes + grad_bytes, [&] {
    forward(sums.data());
    backward();
  });
}

GPU_BENCHMARK(ExactSoftmaxBenchmarks) {
  ReportSoftmax(4096);
  ReportSoftmax(256);
}

}  // namespace
}  // namespace gpu_tests
