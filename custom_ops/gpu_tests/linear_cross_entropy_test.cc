// Fused linear cross-entropy against the formulas in double.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>

#include "gpu_tests/harness.h"
#include "kernels/linear_cross_entropy.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::LinearClasses;

uint16_t ToBits(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, sizeof(wide));
  return static_cast<uint16_t>((wide + 0x7fffu + (wide >> 16 & 1)) >> 16);
}

float Bf16(float x) {
  const uint32_t wide = uint32_t{ToBits(x)} << 16;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

struct Example {
  int64_t batch, num_classes, dim;
  std::vector<float> features, rows, bias, upstream;
  std::vector<int64_t> labels;
};

Example MakeExample(int64_t batch, int64_t num_classes, int64_t dim,
                    bool is_bf16) {
  Random random(batch * 7 + num_classes * 3 + dim);
  const float scale = 1.5f / std::sqrt(std::sqrt(static_cast<float>(dim)));
  Example e = {batch,
               num_classes,
               dim,
               random.Normal(batch * dim, scale),
               random.Normal(num_classes * dim, scale),
               random.Normal(num_classes),
               random.Normal(batch),
               random.Ids(batch, num_classes)};
  if (is_bf16) {
    for (float& w : e.rows) w = Bf16(w);
  }
  // At the edges of tiles and ranges, where there are such classes.
  const int64_t edges[] = {0, 63, 64, 255, 256, num_classes - 1};
  for (int64_t i = 0; i < 6 && i < batch; ++i) {
    e.labels[i] = std::min(edges[i], num_classes - 1);
  }
  for (int64_t i = 3; i < batch; i += 5) e.labels[i] = -1;
  return e;
}

struct Outcome {
  std::vector<double> loss, logsumexp, features_grad, rows_grad, bias_grad;
};

Outcome InDouble(const Example& e, bool has_bias) {
  Outcome o = {std::vector<double>(e.batch), std::vector<double>(e.batch),
               std::vector<double>(e.batch * e.dim),
               std::vector<double>(e.num_classes * e.dim),
               std::vector<double>(e.num_classes)};
  for (int64_t i = 0; i < e.batch; ++i) {
    if (e.labels[i] < 0) continue;
    std::vector<double> logits(e.num_classes);
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t c = 0; c < e.num_classes; ++c) {
      if (has_bias) logits[c] = e.bias[c];
      for (int64_t d = 0; d < e.dim; ++d) {
        logits[c] += double{e.features[i * e.dim + d]} * e.rows[c * e.dim + d];
      }
      max = std::max(max, logits[c]);
    }
    for (const double z : logits) sum += std::exp(z - max);
    o.logsumexp[i] = max + std::log(sum);
    o.loss[i] = o.logsumexp[i] - logits[e.labels[i]];
    for (int64_t c = 0; c < e.num_classes; ++c) {
      const double p = std::exp(logits[c] - o.logsumexp[i]);
      const double g = e.upstream[i] * (p - (c == e.labels[i]));
      o.bias_grad[c] += g;
      for (int64_t d = 0; d < e.dim; ++d) {
        o.features_grad[i * e.dim + d] += g * e.rows[c * e.dim + d];
        o.rows_grad[c * e.dim + d] += g * e.features[i * e.dim + d];
      }
    }
  }
  return o;
}

struct Found {
  std::vector<float> loss, logsumexp, features_grad, rows_grad, bias_grad;
};

// `shift` moves the class rows off their alignment.
Found Compute(const Example& e, bool is_bf16, bool has_bias,
              int64_t shift = 0) {
  std::vector<float> rows(shift, NAN);
  rows.insert(rows.end(), e.rows.begin(), e.rows.end());
  std::vector<uint16_t> bits;
  for (const float w : rows) bits.push_back(ToBits(w));
  Buffer<float> features(e.features), row_buffer(rows), bias(e.bias);
  Buffer<uint16_t> bf16_buffer(bits);
  Buffer<float> upstream(e.upstream), loss(e.batch), logsumexp(e.batch);
  Buffer<float> features_grad(e.batch * e.dim), bias_grad(e.num_classes);
  Buffer<float> rows_grad(e.num_classes * e.dim);
  Buffer<int64_t> labels(e.labels);
  LinearClasses classes;
  classes.batch = e.batch;
  classes.num_classes = e.num_classes;
  classes.dim = e.dim;
  classes.features = features.data();
  if (is_bf16) {
    classes.bf16_rows = bf16_buffer.data() + shift;
  } else {
    classes.rows = row_buffer.data() + shift;
  }
  classes.bias = has_bias ? bias.data() : nullptr;
  classes.labels = labels.data();
  TestScratch scratch;
  Done(tfxclass::LinearCrossEntropy(classes, loss.data(), logsumexp.data(),
                                    &scratch, nullptr));
  Done(tfxclass::LinearCrossEntropyGrad(
      classes, logsumexp.data(), upstream.data(), features_grad.data(),
      rows_grad.data(), has_bias ? bias_grad.data() : nullptr, &scratch,
      nullptr));
  return {loss.Read(), logsumexp.Read(), features_grad.Read(), rows_grad.Read(),
          bias_grad.Read()};
}

void CheckNear(const Found& found, const Outcome& exact, bool has_bias,
               double of_loss, double of_grad, const std::string& what) {
  ExpectNear(found.loss, exact.loss, of_loss, what + "loss");
  ExpectNear(found.logsumexp, exact.logsumexp, of_loss, what + "logsumexp");
  ExpectNear(found.features_grad, exact.features_grad, of_grad,
             what + "features' gradient");
  ExpectNear(found.rows_grad, exact.rows_grad, of_grad,
             what + "rows' gradient");
  if (!has_bias) return;
  ExpectNear(found.bias_grad, exact.bias_grad, of_grad,
             what + "bias' gradient");
}

std::string NameOf(const Example& e) {
  return std::to_string(e.batch) + " x " + std::to_string(e.num_classes) +
         " x " + std::to_string(e.dim) + ": ";
}

GPU_TEST(LinearCrossEntropyFloat) {
  const int64_t sizes[][3] = {{1, 1, 1},    {5, 1, 3},     {70, 200, 20},
                              {9, 1000, 8}, {130, 70, 33}, {3, 65, 300}};
  for (const auto& [batch, num_classes, dim] : sizes) {
    const Example e = MakeExample(batch, num_classes, dim, false);
    for (const bool has_bias : {false, true}) {
      CheckNear(Compute(e, false, has_bias), InDouble(e, has_bias), has_bias,
                1e-6, 2e-6, NameOf(e));
    }
  }
}

// Features that bf16 holds: then the logits are those of double, and only the
// logits' gradients are rounded.
GPU_TEST(LinearCrossEntropyBf16) {
  const int64_t sizes[][3] = {{1, 1, 1},     {5, 1, 3},    {40, 200, 20},
                              {9, 1000, 16}, {300, 70, 8}, {3, 65, 300}};
  for (const auto& [batch, num_classes, dim] : sizes) {
    const bool has_bias = dim != 20;
    Example e = MakeExample(batch, num_classes, dim, true);
    const Found rounding = Compute(e, true, has_bias);
    CheckNear(rounding, InDouble(e, has_bias), has_bias, 1e-2, 1e-2, NameOf(e));
    for (float& x : e.features) x = Bf16(x);
    CheckNear(Compute(e, true, has_bias), InDouble(e, has_bias), has_bias, 1e-6,
              4e-3, NameOf(e));
  }
}

// Rows that begin anywhere.
GPU_TEST(LinearCrossEntropyUnaligned) {
  for (const bool is_bf16 : {false, true}) {
    const Example e = MakeExample(5, 70, 16, is_bf16);
    CheckNear(Compute(e, is_bf16, true, 1), InDouble(e, true), true, 1e-2, 1e-2,
              NameOf(e));
  }
}

GPU_TEST(LinearCrossEntropySameTwice) {
  for (const bool is_bf16 : {false, true}) {
    const Example e = MakeExample(33, 300, 17, is_bf16);
    const Found a = Compute(e, is_bf16, true), b = Compute(e, is_bf16, true);
    ExpectEqual(a.loss, b.loss, "loss");
    ExpectEqual(a.features_grad, b.features_grad, "features' gradient");
    ExpectEqual(a.rows_grad, b.rows_grad, "rows' gradient");
    ExpectEqual(a.bias_grad, b.bias_grad, "bias' gradient");
  }
}

// Logits up to 1e4 apart; what is left out may hold anything.
GPU_TEST(LinearCrossEntropyGreatLogits) {
  for (const bool is_bf16 : {false, true}) {
    Example e = MakeExample(8, 130, 16, is_bf16);
    for (float& x : e.features) x = Bf16(x) * 4096;
    const int64_t left_out = 3;
    const Outcome exact = InDouble(e, true);
    std::fill_n(&e.features[left_out * e.dim], e.dim, NAN);
    CheckNear(Compute(e, is_bf16, true), exact, true, 1e-6,
              is_bf16 ? 4e-3 : 2e-3, NameOf(e));
  }
}

GPU_TEST(LinearCrossEntropyEmptyBatch) {
  for (const bool is_bf16 : {false, true}) {
    const Example e = MakeExample(0, 70, 5, is_bf16);
    const Found found = Compute(e, is_bf16, true);
    ExpectEqual(found.rows_grad, std::vector<float>(70 * 5, 0.0f), "rows");
    ExpectEqual(found.bias_grad, std::vector<float>(70, 0.0f), "bias");
  }
}

// NaN stays in its row; a label that is no class; classes masked by -infinity.
GPU_TEST(LinearCrossEntropyOddValues) {
  for (const bool is_bf16 : {false, true}) {
    Example e = MakeExample(4, 100, 8, is_bf16);
    e.labels = {70, 71, -1, 100};
    std::fill_n(&e.bias[0], 65, -std::numeric_limits<float>::infinity());
    e.features[8] = NAN;
    const Found found = Compute(e, is_bf16, true);
    Expect(std::isfinite(found.loss[0]), "a row without NaN");
    Expect(std::isnan(found.loss[1]), "a row with NaN");
    Expect(found.loss[2] == 0 && found.logsumexp[2] == 0, "left out");
    Expect(std::isnan(found.loss[3]), "a label past the last class");
    Expect(std::isfinite(found.logsumexp[3]), "its logsumexp");
    const auto& grad = found.features_grad;
    for (int64_t d = 0; d < 8; ++d) {
      Expect(std::isfinite(grad[d]) && std::isnan(grad[8 + d]), "gradients");
      Expect(grad[16 + d] == 0, "gradient of what is left out");
    }
  }
}

// Class rows of more than 2^31 elements on a GPU; all but the last are zeros.
GPU_TEST(LinearCrossEntropyFarOffsets) {
  const int64_t dim = 128;
  const int64_t num_classes = kIsEmulated ? 65 : (int64_t{1} << 31) / dim + 9;
  const int64_t batch = 3, piece = 1 << 20;
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
  Buffer<float> features(std::vector<float>(batch * dim, 0.5f));
  Buffer<float> upstream(std::vector<float>(batch, 1.0f)), loss(batch);
  Buffer<float> logsumexp(batch), features_grad(batch * dim);
  Buffer<int64_t> labels(std::vector<int64_t>(batch, num_classes - 1));
  LinearClasses classes;
  classes.batch = batch;
  classes.num_classes = num_classes;
  classes.dim = dim;
  classes.features = features.data();
  classes.bf16_rows = rows.data();
  classes.labels = labels.data();
  TestScratch scratch;
  Done(tfxclass::LinearCrossEntropy(classes, loss.data(), logsumexp.data(),
                                    &scratch, nullptr));
  Done(tfxclass::LinearCrossEntropyGrad(
      classes, logsumexp.data(), upstream.data(), features_grad.data(),
      rows_grad.data(), nullptr, &scratch, nullptr));
  const double total = num_classes - 1.0 + std::exp(4.0);
  const double p = std::exp(4.0) / total;
  ExpectNear(loss.Read(), std::vector<double>(batch, -std::log(p)), 1e-4,
             "loss");
  ExpectNear(features_grad.Read(),
             std::vector<double>(batch * dim, 0.0625 * (p - 1)), 1e-2,
             "features' gradient");
  std::vector<float> of_last(dim);
  CopyOut(of_last.data(), rows_grad.data() + (num_classes - 1) * dim,
          dim * sizeof(float));
  ExpectNear(of_last, std::vector<double>(dim, 0.5 * batch * (p - 1)), 1e-2,
             "rows' gradient");
}

class CountedScratch : public TestScratch {
 public:
  int64_t bytes() const { return bytes_; }

 protected:
  void* GetBytes(size_t bytes) override {
    bytes_ += bytes;
    return TestScratch::GetBytes(bytes);
  }

 private:
  int64_t bytes_ = 0;
};

// The floors count the five products, and the rows and features read as often
// as their gradients need at least: forward, and for each gradient.
void ReportLinear(bool is_bf16, int64_t batch) {
  const int64_t num_classes = 1000000, dim = 128, piece = dim * 1000;
  Random random(9);
  const auto values = random.Normal(piece);
  std::vector<uint16_t> bits;
  for (const float w : values) bits.push_back(ToBits(w));
  Buffer<float> rows(is_bf16 ? 0 : num_classes * dim);
  Buffer<uint16_t> bf16_rows(is_bf16 ? num_classes * dim : 0);
  for (int64_t at = 0; at < num_classes * dim; at += piece) {
    if (is_bf16) {
      CopyIn(bf16_rows.data() + at, bits.data(), piece * sizeof(uint16_t));
    } else {
      CopyIn(rows.data() + at, values.data(), piece * sizeof(float));
    }
  }
  Buffer<float> features(random.Normal(batch * dim, 0.1f)), loss(batch);
  Buffer<float> upstream(std::vector<float>(batch, 1.0f / batch));
  Buffer<float> logsumexp(batch), features_grad(batch * dim);
  Buffer<float> rows_grad(num_classes * dim);
  Buffer<int64_t> labels(random.Ids(batch, num_classes));
  LinearClasses classes;
  classes.batch = batch;
  classes.num_classes = num_classes;
  classes.dim = dim;
  classes.features = features.data();
  classes.rows = is_bf16 ? nullptr : rows.data();
  classes.bf16_rows = is_bf16 ? bf16_rows.data() : nullptr;
  classes.labels = labels.data();
  const double flops = 2.0 * batch * num_classes * dim;
  const double row_bytes = num_classes * dim * (is_bf16 ? 2.0 : 4.0);
  const double grad_bytes = 4.0 * num_classes * dim;
  const std::string what = std::string(is_bf16 ? "bf16" : "float32") + ", " +
                           std::to_string(batch) + " x 1M x 128";
  const auto forward = [&](TestScratch* scratch) {
    Done(tfxclass::LinearCrossEntropy(classes, loss.data(), logsumexp.data(),
                                      scratch, nullptr));
  };
  const auto backward = [&](TestScratch* scratch, float* of_features,
                            float* of_rows) {
    Done(tfxclass::LinearCrossEntropyGrad(classes, logsumexp.data(),
                                          upstream.data(), of_features, of_rows,
                                          nullptr, scratch, nullptr));
  };
  CountedScratch counted;
  forward(&counted);
  std::printf("scratch, %s: forward %.1f MB", what.c_str(),
              counted.bytes() / 1e6);
  CountedScratch of_backward;
  backward(&of_backward, features_grad.data(), rows_grad.data());
  std::printf(", backward %.1f MB\n", of_backward.bytes() / 1e6);
  TestScratch scratch;
  const auto time = [&](const char* part, int products, double bytes,
                        const std::function<void()>& launch) {
    Report("linear cross-entropy, " + what + ", " + part, MedianMs([&] {
             scratch.Reuse();
             launch();
           }),
           bytes, products * flops);
  };
  time("forward", 1, row_bytes, [&] { forward(&scratch); });
  time("features' gradient", 2, row_bytes,
       [&] { backward(&scratch, features_grad.data(), nullptr); });
  time("rows' gradient", 2, row_bytes + grad_bytes,
       [&] { backward(&scratch, nullptr, rows_grad.data()); });
  time("forward and backward", 5, 3 * row_bytes + grad_bytes, [&] {
    forward(&scratch);
    backward(&scratch, features_grad.data(), rows_grad.data());
  });
}

GPU_BENCHMARK(LinearCrossEntropyBenchmarks) {
  ReportLinear(true, 4096);
  ReportLinear(true, 256);
  ReportLinear(false, 512);
}

}  // namespace
}  // namespace gpu_tests
