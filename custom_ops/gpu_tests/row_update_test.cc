// Row updates against the same formulas in double, row by row.
#include "core/row_update.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "core/half.h"
#include "gpu_tests/harness.h"
#include "kernels/row_update.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::Bf16;
using tfxclass::GpuRows;
using tfxclass::Half;
using tfxclass::RowRule;
using tfxclass::RowRuleOptions;
using tfxclass::RowScalars;
using tfxclass::RowType;

struct Case {
  const char* name;
  RowRuleOptions options;
  int num_slots;
  float learning_rate = 0.1f, decay = 0.01f;
  double beta_1 = 0.9, beta_2 = 0.999, offset = 1e-3;
};

std::vector<Case> Cases() {
  RowRuleOptions sgd, momentum, nesterov, adagrad, adam;
  momentum.momentum = 0.9f;
  nesterov = momentum;
  nesterov.nesterov = true;
  adagrad.rule = RowRule::kAdagrad;
  adam.rule = RowRule::kAdam;
  adam.epsilon = 1e-7f;
  return {{"sgd", sgd, 0},           {"momentum", momentum, 1},
          {"nesterov", nesterov, 1}, {"adagrad", adagrad, 1},
          {"adam", adam, 2},         {"amsgrad", adam, 3}};
}

// The numbers of a case on the device.
struct Scalars {
  explicit Scalars(const Case& c)
      : doubles({c.learning_rate, c.decay, c.beta_1, c.beta_2, c.offset}) {
    on_device = {doubles.data(), doubles.data() + 1, doubles.data() + 2,
                 doubles.data() + 3, doubles.data() + 4};
  }

  Buffer<double> doubles;
  RowScalars on_device;
};

struct Matrices {
  std::vector<double> rows, slots[3];
};

// The rules of core/row_rules.h, told apart from them.
void StepElement(const Case& c, double grad, double* w, double* a, double* b,
                 double* v_hat) {
  const RowRuleOptions& o = c.options;
  const int num_slots = c.num_slots;
  const double decay = c.decay, rate = c.learning_rate;
  if (o.rule == RowRule::kAdagrad) {
    *a += grad * grad;
    *w += -*w * decay - rate * grad / std::sqrt(*a + c.offset);
  } else if (o.rule == RowRule::kAdam) {
    *a += (grad - *a) * (1 - c.beta_1);
    *b += (grad * grad - *b) * (1 - c.beta_2);
    if (num_slots == 3) *v_hat = std::max(*v_hat, *b);
    const double v = num_slots == 3 ? *v_hat : *b;
    *w += -*w * decay - *a * rate / (std::sqrt(v) + o.epsilon);
  } else if (num_slots == 0) {
    *w += -*w * decay - grad * rate;
  } else {
    *a = *a * o.momentum - grad * rate;
    const double move = o.nesterov ? *a * o.momentum - grad * rate : *a;
    *w += -*w * decay + move;
  }
}

void StepRows(const Case& c, const std::vector<int64_t>& ids,
              const std::vector<float>& grads, int64_t num_rows, int64_t dim,
              Matrices* m) {
  std::map<int64_t, std::vector<double>> sums;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) continue;
    auto& sum = sums[ids[i]];
    sum.resize(dim);
    for (int64_t d = 0; d < dim; ++d) sum[d] += grads[i * dim + d];
  }
  for (const auto& [row, sum] : sums) {
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t at = row * dim + d;
      StepElement(c, sum[d], &m->rows[at], &m->slots[0][at], &m->slots[1][at],
                  &m->slots[2][at]);
    }
  }
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::vector<float> Positive(std::vector<float> values) {
  for (float& value : values) value = std::abs(value);
  return values;
}

void Narrow(float x, float* to) { *to = x; }
void Narrow(float x, Bf16* to) { *to = tfxclass::ToBf16(x); }
void Narrow(float x, Half* to) { *to = tfxclass::ToHalf(x); }

template <class T>
std::vector<T> NarrowAll(const std::vector<float>& values) {
  std::vector<T> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) Narrow(values[i], &narrow[i]);
  return narrow;
}

template <class T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T& value : values) floats.push_back(tfxclass::ToFloat(value));
  return floats;
}

// Rows, slots and gradients are stored as T, and computed in float.
template <class T = float>
void CheckUpdate(
    const Case& c, int64_t num_rows, int64_t dim, int64_t n,
    RowType type = RowType::kFloat,
    // 1 - beta_2 in float is off by 1e-5 of it, halved by the root.
    double tolerance = 4e-6) {
  Random random(dim * 1000 + n);
  const auto kept_rows = NarrowAll<T>(random.Normal(num_rows * dim));
  const auto kept_grads = NarrowAll<T>(random.Normal(n * dim));
  const auto rows = Floats(kept_rows), grads = Floats(kept_grads);
  auto ids = random.Ids(n, num_rows);
  if (n > 3) ids[1] = -1, ids[2] = num_rows;
  Matrices expected;
  expected.rows = Wide(rows);
  Buffer<T> row_buffer(kept_rows), grad_buffer(kept_grads);
  Buffer<int64_t> id_buffer(ids);
  GpuRows on_device;
  on_device.type = type;
  on_device.num_rows = num_rows;
  on_device.dim = dim;
  on_device.rows = row_buffer.data();
  std::vector<std::unique_ptr<Buffer<T>>> slots;
  for (int s = 0; s < 3; ++s) {
    const auto kept = NarrowAll<T>(Positive(random.Normal(num_rows * dim)));
    expected.slots[s] = Wide(Floats(kept));
    slots.push_back(std::make_unique<Buffer<T>>(kept));
    if (s < c.num_slots) on_device.slots[s] = slots[s]->data();
  }
  TestScratch scratch;
  const Scalars scalars(c);
  Done(tfxclass::UpdateRows(c.options, scalars.on_device, on_device,
                            id_buffer.data(), grad_buffer.data(), n, &scratch,
                            nullptr));
  StepRows(c, ids, grads, num_rows, dim, &expected);
  ExpectNear(Floats(row_buffer.Read()), expected.rows, tolerance, c.name);
  for (int s = 0; s < c.num_slots; ++s) {
    ExpectNear(Floats(slots[s]->Read()), expected.slots[s], tolerance, c.name);
  }
}

GPU_TEST(RowUpdateRules) {
  for (const Case& c : Cases()) {
    CheckUpdate(c, 40, 128, 100);
    CheckUpdate(c, 7, 5, 33);
    CheckUpdate(c, 3, 260, 9);
    CheckUpdate(c, 1, 1, 1);
    CheckUpdate(c, 5, 8, 0);
  }
}

// What is stored is off by half of its last bit at most.
GPU_TEST(RowUpdateOf16Bits) {
  for (const Case& c : Cases()) {
    for (const int64_t dim : {5, 132}) {
      CheckUpdate<Bf16>(c, 9, dim, 30, RowType::kBf16, 1.0 / 256);
      CheckUpdate<Half>(c, 9, dim, 30, RowType::kHalf, 1.0 / 2048);
    }
  }
}

float FloatOf(uint16_t bits) { return tfxclass::ToFloat(Bf16{bits}); }

// What kept a number by chance may be the neighbour of what the processor kept,
// where the two sums differ in the last bit of a float.
void ExpectMostly(const std::vector<uint16_t>& found,
                  const std::vector<Bf16>& expected, const std::string& what) {
  size_t others = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const int off = static_cast<int>(found[i]) - expected[i].bits;
    Expect(std::abs(off) <= 1,
           what + ": " + std::to_string(off) + " at " + std::to_string(i));
    others += off != 0;
  }
  Expect(others * 500 <= found.size(), what + ": others than the processor's");
}

// Two steps of rows of type V with first moments of type M, as on the CPU.
template <class V, class M, bool kRowMoments>
void CheckKept(const Case& c, int64_t dim) {
  using Rows = tfxclass::SlottedRows<V, M, kRowMoments>;
  constexpr bool kIsHalf = std::is_same_v<V, Bf16>;
  constexpr bool kHasBf16Moments = std::is_same_v<M, Bf16>;
  const int64_t num_rows = 9, n = 14, size = num_rows * dim;
  Random random(dim);
  const auto start = random.Normal(size), grads = random.Normal(n * dim);
  std::vector<int64_t> ids = random.Ids(n, num_rows);
  std::vector<Bf16> half, moments(size, Bf16{0});
  for (const float w : start) half.push_back(tfxclass::ToBf16(w));
  std::vector<float> wide = start, slots[3], of_rows[3];
  for (auto& slot : slots) slot.assign(size, 0.5f);
  for (auto& slot : of_rows) slot.assign(num_rows, 0.5f);

  Rows rows;
  void* const kept = kIsHalf ? static_cast<void*>(half.data()) : wide.data();
  rows.var = static_cast<V*>(kept);
  rows.dim = dim;
  const int num_moments = c.options.rule == RowRule::kAdagrad ? 0 : 1;
  std::vector<std::unique_ptr<Buffer<char>>> buffers;
  const auto copy = [&](const void* data, size_t bytes) {
    buffers.push_back(std::make_unique<Buffer<char>>(bytes));
    CopyIn(buffers.back()->data(), data, bytes);
    return buffers.back()->data();
  };
  GpuRows on_device;
  on_device.num_rows = num_rows;
  on_device.dim = dim;
  on_device.has_row_moments = kRowMoments;
  on_device.has_bf16_moments = kHasBf16Moments;
  on_device.seed = 77;
  for (int s = 0; s < c.num_slots; ++s) {
    size_t bytes = size * sizeof(float);
    rows.slots[s] = slots[s].data();
    if (kHasBf16Moments && s < num_moments) {
      rows.slots[s] = moments.data();
      bytes = size * sizeof(Bf16);
    } else if (kRowMoments && s >= num_moments) {
      rows.slots[s] = of_rows[s].data();
      bytes = num_rows * sizeof(float);
    }
    on_device.slots[s] = copy(rows.slots[s], bytes);
  }
  char* const device_rows = copy(kept, size * sizeof(V));
  if (kIsHalf) on_device.type = RowType::kRandomBf16;
  on_device.rows = device_rows;
  Buffer<float> grad_buffer(grads);
  Buffer<int64_t> id_buffer(ids);
  const Scalars scalars(c);
  const tfxclass::RuleNumbers numbers = {c.learning_rate, c.decay, c.beta_1,
                                         c.beta_2, c.offset};
  const auto groups = tfxclass::GroupRows(ids.data(), n, num_rows);
  tfxclass::WithElement<float>(c.options.rule, c.num_slots, [&](auto type) {
    const typename decltype(type)::type rule(c.options, numbers);
    for (const int64_t step : {5, 6}) {
      rows.random = {2 * 77, static_cast<uint64_t>(step)};
      tfxclass::UpdateRows(groups, grads.data(), rule, rows,
                           tfxclass::SerialFor);
      Buffer<int64_t> of_step(std::vector<int64_t>{step});
      on_device.step = of_step.data();
      TestScratch scratch;
      Done(tfxclass::UpdateRows(c.options, scalars.on_device, on_device,
                                id_buffer.data(), grad_buffer.data(), n,
                                &scratch, nullptr));
    }
  });
  const std::string what =
      std::string(c.name) + (kRowMoments ? ", row moments" : "");
  if (kIsHalf) {
    std::vector<uint16_t> found(size);
    CopyOut(found.data(), device_rows, size * sizeof(uint16_t));
    ExpectMostly(found, half, what);
  } else {
    std::vector<float> found(size);
    CopyOut(found.data(), device_rows, size * sizeof(float));
    // A moment that was rounded the other way moves its number.
    ExpectNear(found, Wide(wide), 1e-4, what);
  }
  if (kRowMoments && c.num_slots > num_moments) {
    std::vector<float> found(num_rows);
    CopyOut(found.data(), on_device.slots[num_moments],
            num_rows * sizeof(float));
    ExpectNear(found, Wide(of_rows[num_moments]), 1e-5, what + ": of rows");
  }
  if (kHasBf16Moments && num_moments > 0 && c.num_slots > 0) {
    std::vector<uint16_t> found(size);
    CopyOut(found.data(), on_device.slots[0], size * sizeof(uint16_t));
    ExpectMostly(found, moments, what + ": moments");
  }
}

GPU_TEST(RowUpdateKept) {
  for (const Case& c : Cases()) {
    for (const int64_t dim : {5, 132}) {
      CheckKept<Bf16, float, false>(c, dim);
      CheckKept<Bf16, Bf16, true>(c, dim);
      CheckKept<float, Bf16, true>(c, dim);
      CheckKept<float, float, true>(c, dim);
    }
  }
}

// Steps far below a row's last bit add up.
GPU_TEST(RowUpdateBf16) {
  const int64_t num_rows = 5, dim = 12, steps = 400;
  Buffer<uint16_t> rows(std::vector<uint16_t>(num_rows * dim, 0x3f80));  // 1
  Buffer<float> grads(std::vector<float>(dim, 1.0f));
  Buffer<int64_t> ids(std::vector<int64_t>{3});
  GpuRows on_device;
  on_device.num_rows = num_rows;
  on_device.dim = dim;
  on_device.type = RowType::kRandomBf16;
  on_device.rows = rows.data();
  Case c = {"sgd", RowRuleOptions(), 0};
  c.learning_rate = 1e-3f;  // the last bit of 1 is 2^-7
  c.decay = 0;
  const Scalars scalars(c);
  for (int64_t i = 0; i < steps; ++i) {
    Buffer<int64_t> step(std::vector<int64_t>{i});
    on_device.step = step.data();
    TestScratch scratch;
    Done(tfxclass::UpdateRows(c.options, scalars.on_device, on_device,
                              ids.data(), grads.data(), 1, &scratch, nullptr));
  }
  // Five deviations: a step is off by a random bit, with a variance of at most
  // 1e-3 * 2^-8.
  const double most = 5 * std::sqrt(steps * 1e-3 / 256);
  const auto found = rows.Read();
  for (int64_t i = 0; i < num_rows * dim; ++i) {
    const bool is_moved = i / dim == 3;
    const double off = FloatOf(found[i]) - (is_moved ? 1.0 - steps * 1e-3 : 1);
    Expect(std::abs(off) < (is_moved ? most : 1e-9),
           "row " + std::to_string(i / dim) + ": " + std::to_string(off));
  }
}

// A matrix of more than 2^31 elements, of which a few pages are touched.
GPU_TEST(RowFarOffsets) {
  const int64_t dim = 128, num_rows = (int64_t{1} << 31) / dim + 5;
  Buffer<float> rows(num_rows * dim);
  const int64_t last = num_rows - 1;
  const std::vector<float> ones(dim, 1.0f);
  CopyIn(rows.data() + last * dim, ones.data(), dim * sizeof(float));
  Buffer<int64_t> ids(std::vector<int64_t>{last});
  Buffer<float> grads(ones);
  GpuRows on_device;
  on_device.num_rows = num_rows;
  on_device.dim = dim;
  on_device.rows = rows.data();
  Case c = {"sgd", RowRuleOptions(), 0};
  c.learning_rate = 0.25f;
  c.decay = 0;
  const Scalars scalars(c);
  TestScratch scratch;
  Done(tfxclass::UpdateRows(c.options, scalars.on_device, on_device, ids.data(),
                            grads.data(), 1, &scratch, nullptr));
  std::vector<float> moved(dim);
  CopyOut(moved.data(), rows.data() + last * dim, dim * sizeof(float));
  ExpectEqual(moved, std::vector<float>(dim, 0.75f), "the last row");
}

GPU_TEST(RowSumDuplicates) {
  Random random(4);
  for (const int64_t n : {0, 1, 77, 1000}) {
    const int64_t dim = 6, bound = 40;
    auto ids = random.Ids(n, bound);
    if (n > 2) ids[2] = -1;
    const auto grads = random.Normal(n * dim);
    std::map<int64_t, std::vector<double>> sums;
    for (int64_t i = 0; i < n; ++i) {
      if (ids[i] < 0) continue;
      sums[ids[i]].resize(dim);
      for (int64_t d = 0; d < dim; ++d) {
        sums[ids[i]][d] += grads[i * dim + d];
      }
    }
    Buffer<int64_t> id_buffer(ids), unique(n), count(1);
    Buffer<float> grad_buffer(grads), sum_buffer(n * dim);
    TestScratch scratch;
    Done(tfxclass::SumDuplicateRows(
        id_buffer.data(), grad_buffer.data(), n, bound, dim, unique.data(),
        sum_buffer.data(), count.data(), &scratch, nullptr));
    Expect(count.Read()[0] == static_cast<int64_t>(sums.size()), "number");
    std::vector<int64_t> expected_ids;
    std::vector<double> expected;
    for (const auto& [id, sum] : sums) {
      expected_ids.push_back(id);
      expected.insert(expected.end(), sum.begin(), sum.end());
    }
    auto found_ids = unique.Read();
    auto found = sum_buffer.Read();
    found_ids.resize(sums.size());
    found.resize(sums.size() * dim);
    ExpectEqual(found_ids, expected_ids, "ids");
    ExpectNear(found, expected, 1e-6, "sums");
  }
}

GPU_BENCHMARK(RowBenchmarks) {
  const int64_t num_rows = 1000000, dim = 128, n = 65536;
  Random random(5);
  Buffer<float> rows(num_rows * dim), m(num_rows * dim), v(num_rows * dim);
  Buffer<float> grads(random.Normal(n * dim));
  Buffer<int64_t> ids(random.Ids(n, num_rows));
  GpuRows on_device;
  on_device.num_rows = num_rows;
  on_device.dim = dim;
  on_device.rows = rows.data();
  on_device.slots[0] = m.data();
  on_device.slots[1] = v.data();
  const Case adam = Cases()[4];
  const Scalars scalars(adam);
  TestScratch scratch;
  const auto time = [&](const std::string& what, double bytes) {
    Report("Adam on 65,536 of 1M x 128" + what, MedianMs([&] {
             scratch.Reuse();
             Done(tfxclass::UpdateRows(adam.options, scalars.on_device,
                                       on_device, ids.data(), grads.data(), n,
                                       &scratch, nullptr));
           }),
           bytes * n * dim, 0);
  };
  // Rows and both slots are read and written, gradients read.
  time("", 7 * 4);
  Buffer<uint16_t> half(num_rows * dim);
  Buffer<int64_t> step(std::vector<int64_t>{1});
  on_device.type = RowType::kRandomBf16;
  on_device.rows = half.data();
  on_device.step = step.data();
  time(", bf16 rows", 2 * 2 + 5 * 4);
  on_device.has_row_moments = on_device.has_bf16_moments = true;
  time(", bf16 rows, moments of 2 bytes", 2 * 2 + 2 * 2 + 4);
}

}  // namespace
}  // namespace gpu_tests
