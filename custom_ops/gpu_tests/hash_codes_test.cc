// Hash codes against core/hash_functions.h.
#include <cmath>
#include <memory>

#include "core/hash_functions.h"
#include "gpu_tests/harness.h"
#include "kernels/hash_codes.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::HashedVectors;
using tfxclass::HashFamily;
using tfxclass::HashFunctions;
using tfxclass::HashOptions;

HashOptions Options(HashFamily family, int64_t num_hashes, int64_t num_tables) {
  HashOptions options;
  options.family = family;
  options.num_hashes = num_hashes;
  options.num_tables = num_tables;
  options.seed = 17;
  return options;
}

// Codes [num_tables, count] by the processor.
std::vector<int32_t> CodesOf(const HashFunctions& functions,
                             const std::vector<float>& vectors, int64_t count) {
  using tfxclass::kBlockRows;
  const int64_t dim = functions.dim();
  const int64_t num_tables = functions.options().num_tables;
  tfxclass::LaneRows rows;
  rows.Resize(count, dim);
  for (int64_t i = 0; i < count; ++i) rows.Set(i, &vectors[i * dim], dim);
  std::vector<int32_t> codes(num_tables * count);
  std::vector<uint32_t> block(num_tables * kBlockRows);
  for (int64_t b = 0; b < rows.blocks(); ++b) {
    functions.Codes(rows.block(b), 0, num_tables, block.data(), kBlockRows);
    for (int64_t t = 0; t < num_tables; ++t) {
      for (int64_t i = 0; i < kBlockRows; ++i) {
        const int64_t row = b * kBlockRows + i;
        if (row < count) codes[t * count + row] = block[t * kBlockRows + i];
      }
    }
  }
  return codes;
}

// Splits off the last coordinate as `extra`.
struct Vectors {
  explicit Vectors(const std::vector<float>& all, int64_t count, int64_t width,
                   bool has_extra) {
    const int64_t dim = width - has_extra;
    std::vector<float> first, last;
    for (int64_t i = 0; i < count; ++i) {
      first.insert(first.end(), &all[i * width], &all[i * width] + dim);
      if (has_extra) last.push_back(all[i * width + dim]);
    }
    values = std::make_unique<Buffer<float>>(first);
    extra = std::make_unique<Buffer<float>>(last);
    on_device = {values->data(), has_extra ? extra->data() : nullptr, count,
                 dim};
  }

  std::unique_ptr<Buffer<float>> values, extra;
  HashedVectors on_device;
};

double Product(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d) sum += static_cast<double>(a[d]) * b[d];
  return sum;
}

// A bit may differ where the product is 0 but for rounding.
void CheckSimHash(int64_t count, int64_t width, int64_t num_hashes,
                  int64_t num_tables, bool has_extra) {
  const HashOptions options =
      Options(HashFamily::kSimHash, num_hashes, num_tables);
  const HashFunctions functions(options, width);
  Random random(width);
  const auto all = random.Normal(count * width);
  Vectors vectors(all, count, width, has_extra);
  Buffer<float> planes(functions.planes());
  Buffer<int32_t> codes(num_tables * count);
  Done(tfxclass::SimHashCodes(vectors.on_device, planes.data(), num_hashes,
                              num_tables, codes.data(), nullptr));
  const auto found = codes.Read();
  const auto expected = CodesOf(functions, all, count);
  for (int64_t i = 0; i < num_tables * count; ++i) {
    for (int64_t h = 0; h < num_hashes; ++h) {
      const int bit = num_hashes - 1 - h;
      if ((found[i] >> bit & 1) == (expected[i] >> bit & 1)) continue;
      const float* plane =
          &functions.planes()[(i / count * num_hashes + h) * width];
      const double product = Product(plane, &all[i % count * width], width);
      Expect(std::abs(product) < 1e-4,
             "bit of product " + std::to_string(product));
    }
    Expect(found[i] >> num_hashes == 0, "bits above the code");
  }
}

GPU_TEST(HashSim) {
  CheckSimHash(130, 37, 9, 7, false);
  CheckSimHash(40, 64, 30, 2, true);
  CheckSimHash(1, 1, 1, 1, false);
  CheckSimHash(5, 3, 16, 3, false);
  CheckSimHash(0, 8, 4, 2, false);
}

void CheckDwta(std::vector<float> all, int64_t count, int64_t width,
               bool has_extra) {
  const HashOptions options = Options(HashFamily::kDwta, 3, 11);
  const HashFunctions functions(options, width);
  Vectors vectors(all, count, width, has_extra);
  Buffer<int32_t> coordinates(functions.bins().coordinates());
  Buffer<int32_t> codes(options.num_tables * count);
  Done(tfxclass::DwtaCodes(vectors.on_device, coordinates.data(),
                           functions.bins().bin_size(), options.function_bits(),
                           options.seed, options.num_hashes, options.num_tables,
                           codes.data(), nullptr));
  ExpectEqual(codes.Read(), CodesOf(functions, all, count), "codes");
}

GPU_TEST(HashDwta) {
  Random random(2);
  for (const int64_t width : {1, 7, 40, 700}) {
    const int64_t count = 45;
    auto all = random.Normal(count * width);
    CheckDwta(all, count, width, false);
    // Mostly zeros: empty bins borrow, and row 3 is the zero vector.
    for (float& x : all) x = random.Below(10) ? 0.0f : x;
    for (int64_t d = 0; d < width; ++d) all[3 * width + d] = 0.0f;
    CheckDwta(all, count, width, width > 1);
  }
  CheckDwta({}, 0, 5, false);
}

GPU_BENCHMARK(HashBenchmarks) {
  const int64_t count = 1000000, dim = 128, num_tables = 50;
  Random random(4);
  Buffer<float> rows(random.Normal(count * dim));
  Buffer<int32_t> codes(num_tables * count);
  const HashedVectors vectors = {rows.data(), nullptr, count, dim};
  const double bytes = 4.0 * count * (dim + num_tables);
  const HashOptions sim = Options(HashFamily::kSimHash, 9, num_tables);
  const HashFunctions planes(sim, dim);
  Buffer<float> on_device(planes.planes());
  Report("SimHash, 450 planes, 1M x 128", MedianMs([&] {
           Done(tfxclass::SimHashCodes(vectors, on_device.data(), 9, num_tables,
                                       codes.data(), nullptr));
         }),
         bytes, 0);
  const HashOptions dwta = Options(HashFamily::kDwta, 6, num_tables);
  const HashFunctions functions(dwta, dim);
  Buffer<int32_t> coordinates(functions.bins().coordinates());
  Report("DWTA, 300 bins of 8, 1M x 128", MedianMs([&] {
           Done(tfxclass::DwtaCodes(vectors, coordinates.data(), 8,
                                    dwta.function_bits(), dwta.seed, 6,
                                    num_tables, codes.data(), nullptr));
         }),
         bytes, 0);
}

}  // namespace
}  // namespace gpu_tests
