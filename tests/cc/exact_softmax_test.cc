// The exact softmax in two passes, on every instruction set that runs here.
#include "core/exact_softmax.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
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
  double Logit(int64_t b, int64_t c) const {
    double logit = 0;
    for (int64_t d = 0; d < dim; ++d) {
      logit += static_cast<double>(queries[b * dim + d]) * rows[c * dim + d];
    }
    return logit;
  }
};

std::vector<SoftmaxSums> Forward(const TileKernels& tiles, const Case& x,
                                 const ParallelFor& parallel) {
  const QueryPanels panels(x.queries.data(), x.batch, x.dim, false);
  return ForwardSoftmax(tiles, x.Matrix(), panels, x.Values(), true, parallel);
}

std::vector<float> Backward(const TileKernels& tiles, const Case& x,
                            const ParallelFor& parallel) {
  std::vector<float> grads(x.classes * x.dim, NAN);
  const QueryPanels panels(x.queries.data(), x.batch, x.dim, true);
  const SoftmaxGradInput input(x.logsumexp.data(), x.factor.data(), 0.125f,
                               x.batch);
  BackwardSoftmax(tiles, x.Matrix(), panels, x.Values(), input, parallel, [&] {
    return [&](const ChunkGradients<float>& found) {
      for (int64_t i = 0; i < found.count(); ++i) {
        std::copy_n(found.grads() + i * found.stride(), x.dim,
                    grads.data() + (found.first() + i) * x.dim);
      }
    };
  });
  return grads;
}

// Of float sums of `terms` numbers of the size `size` each.
double Bound(int64_t terms, double size) { return 1.2e-7 * terms * size; }

void CheckSums(const Case& x, const std::vector<SoftmaxSums>& found) {
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
      CHECK(std::abs(got - mean[d]) <= error + Bound(x.classes, total));
    }
  }
}

void CheckGrads(const Case& x, const std::vector<float>& found) {
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
            Bound(x.batch + x.dim + 24, size));
    }
  }
}

void BothPassesAreRightHoweverTheyAreCut() {
  const TileKernels* tiles[2];
  const int count = RunnableTiles(tiles);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Philox random(seed);
    const Case x(&random);
    for (int i = 0; i < count; ++i) {
      const auto sums = Forward(*tiles[i], x, SerialFor);
      CheckSums(x, sums);
      const auto other = Forward(*tiles[i], x, BackwardFor);
      for (size_t g = 0; g < sums.size(); ++g) {
        CHECK(sums[g].top == other[g].top && sums[g].sum == other[g].sum);
        CHECK(sums[g].rows == other[g].rows);
      }
      const auto grads = Backward(*tiles[i], x, SerialFor);
      CheckGrads(x, grads);
      CHECK(grads == Backward(*tiles[i], x, BackwardFor));
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

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::BothPassesAreRightHoweverTheyAreCut();
  tfxclass::TileExpIsWithinItsError();
}
