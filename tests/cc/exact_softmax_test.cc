// The exact softmax in two passes, on every instruction set that runs here.
#include "core/exact_softmax.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "check.h"
#include "core/amx_products.h"
#include "core/bf16.h"
#include "core/philox.h"
#include "core/tile_dispatch.h"

namespace tfxclass {
namespace {

// One thread for each element, from the last on.
void BackwardFor(int64_t total, int64_t, const RangeBody& body) {
  for (int64_t i = total - 1; i >= 0; --i) body(i, i + 1);
}

struct Case {
  int64_t batch, classes, dim;
  std::vector<float> queries, rows, deltas, logsumexp, factor;
  std::vector<int64_t> targets;

  explicit Case(Philox* random) {
    batch = 1 + random->Below(300);
    classes = 1 + random->Below(600);
    dim = 1 + random->Below(40);
    Fill(random, batch * dim, &queries);
    Fill(random, classes * dim, &rows);
    Fill(random, batch, &deltas);
    Fill(random, batch, &factor);
    for (int64_t b = 0; b < batch; ++b) {
      targets.push_back(static_cast<int64_t>(random->Below(classes + 1)) - 1);
      logsumexp.push_back(9.0f);
    }
  }
  static void Fill(Philox* random, int64_t size, std::vector<float>* to) {
    to->resize(size);
    for (auto& x : *to) x = 2 * random->Uniform() - 1;
  }

  ClassMatrix<float> Matrix() const {
    ClassMatrix<float> matrix;
    matrix.rows = rows.data();
    matrix.num_classes = classes;
    matrix.dim = dim;
    return matrix;
  }
  TargetValues Values() const {
    return {targets.data(), deltas.data(), batch, 1, classes};
  }
  // With queries and rows that bfloat16 holds exactly.
  Case Rounded() const {
    Case found = *this;
    for (auto& x : found.queries) x = ToFloat(ToBf16(x));
    for (auto& x : found.rows) x = ToFloat(ToBf16(x));
    return found;
  }
  double Logit(int64_t b, int64_t c) const {
    double logit = 0;
    for (int64_t d = 0; d < dim; ++d) {
      logit += static_cast<double>(queries[b * dim + d]) * rows[c * dim + d];
    }
    return logit;
  }
};

// Tiles of an instruction set, and whether products are of bfloat16 numbers.
struct Way {
  const TileKernels* tiles;
  bool is_narrow;
};

std::vector<Way> Ways() {
  const TileKernels* tiles[2];
  const int count = RunnableTiles(tiles);
  std::vector<Way> ways;
  for (int i = 0; i < count; ++i) ways.push_back({tiles[i], false});
#ifdef TFXCLASS_HAS_AMX_PRODUCTS
  if (HasAmx()) ways.push_back({tiles[count - 1], true});
#endif
  return ways;
}

std::unique_ptr<QueryPanels> Panels(const Way& way, const Case& x,
                                    bool has_gradient_side) {
#ifdef TFXCLASS_HAS_AMX_PRODUCTS
  if (way.is_narrow) {
    return std::make_unique<AmxPanels>(x.queries.data(), x.batch, x.dim,
                                       has_gradient_side);
  }
#endif
  return std::make_unique<FloatPanels>(*way.tiles, x.queries.data(), x.batch,
                                       x.dim, has_gradient_side);
}

std::vector<SoftmaxSums> Forward(const Way& way, const Case& x,
                                 const ParallelFor& parallel,
                                 const Exponentials<float>& kept = {}) {
  const auto panels = Panels(way, x, false);
  return ForwardSoftmax(*way.tiles, x.Matrix(), *panels, x.Values(), true,
                        parallel, kept);
}

std::vector<float> Backward(const Way& way, const Case& x,
                            const ParallelFor& parallel,
                            const Exponentials<const float>& kept = {}) {
  std::vector<float> grads(x.classes * x.dim, NAN);
  const auto panels = Panels(way, x, true);
  const SoftmaxGradInput input(x.logsumexp.data(), x.factor.data(), 0.125f,
                               x.batch);
  BackwardSoftmax(
      *way.tiles, x.Matrix(), *panels, x.Values(), input, parallel,
      [&] {
        return [&](const ChunkGradients<float>& found) {
          for (int64_t i = 0; i < found.count(); ++i) {
            std::copy_n(found.grads() + i * found.stride(), x.dim,
                        grads.data() + (found.first() + i) * x.dim);
          }
        };
      },
      kept);
  return grads;
}

// Of float sums of `terms` numbers of the size `size` each.
double Bound(int64_t terms, double size) { return 1.2e-7 * terms * size; }

// A weight that is rounded to bfloat16 before a product is off by half of that
// format's epsilon.
double Rounding(const Way& way) { return way.is_narrow ? 0x1p-9 : 0; }

void CheckSums(const Way& way, const Case& x,
               const std::vector<SoftmaxSums>& found) {
  constexpr int64_t kGroup = kGroupPanels * kPanel;
  for (int64_t b = 0; b < x.batch; ++b) {
    const SoftmaxSums& sums = found[b / kGroup];
    const double top = sums.top[b % kGroup];
    double total = 0;
    std::vector<double> mean(x.dim);
    for (int64_t c = 0; c < x.classes; ++c) {
      const bool is_target = c == x.targets[b];
      const double e =
          std::exp(x.Logit(b, c) + (is_target ? x.deltas[b] : 0) - top);
      total += e;
      for (int64_t d = 0; d < x.dim; ++d) {
        mean[d] += is_target ? 0 : e * x.rows[c * x.dim + d];
      }
    }
    // A logit's error is that of its terms, below 1 each.
    const double error = Bound(x.dim + 24, total);
    CHECK(std::abs(sums.sum[b % kGroup] - total) <= error);
    const int64_t place = b % kGroup / kPanel * x.dim * kPanel + b % kPanel;
    for (int64_t d = 0; d < x.dim; ++d) {
      const double got = sums.rows[place + d * kPanel];
      CHECK(std::abs(got - mean[d]) <=
            error + Bound(x.classes, total) + Rounding(way) * total);
    }
  }
}

void CheckGrads(const Way& way, const Case& x,
                const std::vector<float>& found) {
  for (int64_t c = 0; c < x.classes; ++c) {
    std::vector<double> grad(x.dim);
    double size = 0;
    for (int64_t b = 0; b < x.batch; ++b) {
      const double own = c == x.targets[b]
                             ? x.deltas[b]
                             : x.factor[b] * std::exp(x.Logit(b, c) - 9.0);
      const double g = own - 0.125 * x.factor[b];
      size += std::abs(own) + 0.125;
      for (int64_t d = 0; d < x.dim; ++d)
        grad[d] += g * x.queries[b * x.dim + d];
    }
    for (int64_t d = 0; d < x.dim; ++d) {
      CHECK(std::abs(found[c * x.dim + d] - grad[d]) <=
            Bound(x.batch + x.dim + 24, size) + Rounding(way) * size);
    }
  }
}

void BothPassesAreRightHoweverTheyAreCut() {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Philox random(seed);
    const Case drawn(&random);
    for (const Way& way : Ways()) {
      const Case x = way.is_narrow ? drawn.Rounded() : drawn;
      const auto sums = Forward(way, x, SerialFor);
      CheckSums(way, x, sums);
      const auto other = Forward(way, x, BackwardFor);
      for (size_t g = 0; g < sums.size(); ++g) {
        CHECK(sums[g].top == other[g].top && sums[g].sum == other[g].sum);
        CHECK(sums[g].rows == other[g].rows);
      }
      const auto grads = Backward(way, x, SerialFor);
      CheckGrads(way, x, grads);
      CHECK(grads == Backward(way, x, BackwardFor));
      const int64_t rows = PanelsOf(x.batch) * kPanel;
      std::vector<float> kept(rows * x.classes, NAN);
      std::vector<float> shifts(rows * CeilOf(x.classes, x.Matrix().Chunk()));
      CHECK(Forward(way, x, BackwardFor, {kept.data(), shifts.data()})[0].sum ==
            sums[0].sum);
      CheckGrads(way, x,
                 Backward(way, x, SerialFor, {kept.data(), shifts.data()}));
    }
  }
}

void TileExpIsWithinItsError() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TileKernels* tiles[2];
  const int count = RunnableTiles(tiles);
  for (int i = 0; i < count; ++i) {
    std::vector<float> x(256 * kPanel);
    for (size_t j = 0; j < x.size(); ++j) x[j] = -0.0106f * j;
    x[5] = -kInfinity;
    x[6] = -1e30f;
    x[7] = std::nanf("");
    const std::vector<float> before = x;
    const float shift[kPanel] = {};
    double sums[kPanel] = {};
    tiles[i]->exponentials(x.data(), 256, shift, sums);
    for (size_t j = 0; j < x.size(); ++j) {
      if (j == 7) {
        CHECK(std::isnan(x[j]));
        continue;
      }
      const double exact =
          before[j] < -87 ? 0 : std::exp(static_cast<double>(before[j]));
      CHECK(std::abs(x[j] - exact) <= 2.5e-7 * exact);
    }
    CHECK(sums[0] > 1 && std::isnan(sums[7]));
  }
}

void TheLimitOfOneDnnIsKept() {
  for (const char* const name : {"AVX2", "AVX", "SSE41", "AVX2_VNNI"}) {
    setenv("ONEDNN_MAX_CPU_ISA", name, 1);
    CHECK(IsLimitedToAvx2());
  }
  for (const char* const name : {"AVX512_CORE", "AVX10_1_512", "ALL"}) {
    setenv("ONEDNN_MAX_CPU_ISA", name, 1);
    CHECK(!IsLimitedToAvx2());
  }
  unsetenv("ONEDNN_MAX_CPU_ISA");
  CHECK(!IsLimitedToAvx2());
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::TheLimitOfOneDnnIsKept();
  tfxclass::BothPassesAreRightHoweverTheyAreCut();
  tfxclass::TileExpIsWithinItsError();
}
