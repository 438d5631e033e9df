// Row products, k-means, principal axes, groups, and bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/group_indexers.h"

namespace tfxclass {
namespace {

std::vector<float> RandomRows(int64_t count, int64_t dim, uint64_t seed) {
  Philox random(seed);
  std::vector<float> rows(count * dim);
  for (auto& x : rows) x = random.Uniform() + random.Uniform() - 1.0;
  return rows;
}

PaddedRows Prepare(const std::vector<float>& kernel, int64_t dim,
                   bool normalize = true) {
  PaddedRows rows;
  const int64_t count = kernel.size() / dim;
  CHECK(CopyRows({kernel.data(), count, dim}, nullptr, count, normalize,
                 SerialFor, &rows));
  return rows;
}

// Cuts the range in three, in threads.
void ThreeThreads(int64_t total, int64_t /*cost*/, const RangeBody& body) {
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 3; ++t) {
    const int64_t begin = total * t / 3, end = total * (t + 1) / 3;
    if (begin < end) threads.emplace_back([=, &body] { body(begin, end); });
  }
  for (auto& thread : threads) thread.join();
}

void ProductsOfAllSizes() {
  for (const int64_t dim : {1, 8, 13, 40}) {
    for (const int64_t num_a : {0, 1, 3, 4, 5, 9}) {
      for (const int64_t num_b : {1, 2, 7, 8, 11}) {
        const PaddedRows a = Prepare(RandomRows(num_a, dim, num_a), dim);
        const PaddedRows b = Prepare(RandomRows(num_b, dim, 99), dim);
        std::vector<float> out(num_a * num_b + 1, -7.0f);
        RowProducts(a.values.data(), num_a, b.values.data(), num_b, a.padded,
                    out.data());
        for (int64_t i = 0; i < num_a * num_b; ++i) {
          double exact = 0;
          for (int64_t d = 0; d < dim; ++d) {
            exact += a.row(i / num_b)[d] * b.row(i % num_b)[d];
          }
          CHECK(std::abs(out[i] - exact) < 1e-5);
        }
        CHECK(out.back() == -7.0f);
      }
    }
  }
}

void CheckGroups(const RowGroups& groups, int64_t count) {
  CHECK(groups.count() == count && groups.offsets.back() == count);
  std::vector<int> seen(count, 0);
  for (int64_t g = 0; g < groups.num_groups(); ++g) {
    for (int32_t i = 0; i < groups.size(g); ++i) {
      const int32_t row = groups.begin(g)[i];
      CHECK(groups.group_of[row] == g);
      CHECK(i == 0 || groups.begin(g)[i - 1] < row);
      ++seen[row];
    }
  }
  for (const int times : seen) CHECK(times == 1);
}

void GroupsOfAllKindsAreSound() {
  struct Case {
    int64_t count, dim, groups;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{2, 3, 5}, Case{300, 5, 7},
                        Case{50, 4, 50}, Case{900, 17, 200}}) {
    for (int kind = 0; kind < 3; ++kind) {  // random, equal, zero
      auto kernel = RandomRows(c.count, c.dim, c.count);
      if (kind > 0) std::fill(kernel.begin(), kernel.end(), kind == 1);
      const PaddedRows rows = Prepare(kernel, c.dim);
      const RowGroups groups =
          ClusterBuilder(rows, c.groups, 3, SerialFor).Build();
      CheckGroups(groups, c.count);
      CHECK(groups.num_groups() == std::min(c.groups, c.count));
      const RowGroups codes = PrincipalGroups(rows, 6, 3, SerialFor);
      CheckGroups(codes, c.count);
      CHECK(kind == 0 || codes.num_groups() == 1);
      for (int64_t g = 0; g < codes.num_groups(); ++g) CHECK(codes.size(g) > 0);
    }
  }
}

// As many clusters as there are directions: each has its own centre.
void KMeansSplitsGroupsUntilNoCentreIsEmpty() {
  const int64_t dim = 6, copies = 40;
  std::vector<float> kernel;
  const auto directions = RandomRows(12, dim, 4);
  for (int64_t i = 0; i < 12 * copies; ++i) {
    const float length = 1 + i % 5;
    for (int64_t d = 0; d < dim; ++d) {
      kernel.push_back(length * directions[i % 12 * dim + d]);
    }
  }
  const PaddedRows rows = Prepare(kernel, dim);
  Philox random(1);
  const Centres centres = KMeans(rows, 12, 30, &random, SerialFor);
  RowGroups groups;
  AssignRows(centres, rows, SerialFor, &groups);
  double worst = 1;
  for (int64_t i = 0; i < rows.count; ++i) {
    worst = std::min<double>(
        worst,
        DotPadded(rows.row(i), centres.row(groups.group_of[i]), rows.padded));
  }
  int empty = 0;
  for (int64_t g = 0; g < 12; ++g) empty += groups.size(g) == 0;
  CHECK(empty == 0);
  CHECK(worst > 0.8);
}

void TheSameInThreads() {
  const int64_t dim = 19, count = 3000;
  const PaddedRows rows = Prepare(RandomRows(count, dim, 5), dim);
  const GroupIndex one{dim, ClusterBuilder(rows, 150, 7, SerialFor).Build()};
  const GroupIndex three{dim,
                         ClusterBuilder(rows, 150, 7, ThreeThreads).Build()};
  CHECK(ClusterIndexer::Write(one) == ClusterIndexer::Write(three));
  const GroupIndex a{dim, PrincipalGroups(rows, 7, 3, SerialFor)};
  const GroupIndex b{dim, PrincipalGroups(rows, 7, 3, ThreeThreads)};
  CHECK(PrincipalIndexer::Write(a) == PrincipalIndexer::Write(b));
}

void AxesAreEigenvectorsInTheirOrder() {
  const int64_t dim = 7, num_axes = 3;
  auto kernel = RandomRows(2000, dim, 8);
  for (size_t i = 0; i < kernel.size(); ++i) {
    kernel[i] = kernel[i] / (1 + i % dim) + 3;  // variances apart, a far mean
  }
  const PaddedRows rows = Prepare(kernel, dim, /*normalize=*/false);
  const Moments moments = MomentsOf(rows, SerialFor);
  Philox random(2);
  const auto axes =
      PrincipalAxes(moments.covariance, dim, num_axes, &random, SerialFor);
  double before = 1e9;
  for (int64_t a = 0; a < num_axes; ++a) {
    std::vector<double> image(dim, 0.0);
    double value = 0, error = 0;
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t e = 0; e < dim; ++e) {
        image[d] += moments.covariance[d * dim + e] * axes[a * dim + e];
      }
      value += image[d] * axes[a * dim + d];
    }
    for (int64_t d = 0; d < dim; ++d) {
      error = std::max(error, std::abs(image[d] - value * axes[a * dim + d]));
    }
    CHECK(error < 1e-5 * value);
    CHECK(value < before);
    before = value;
  }
}

void MembersAreDistinctAndOfTheGroups() {
  RowGroups groups;
  groups.group_of = {0, 1, 2, 1, 1, 0, 4, 1, 2};
  groups.Sort(5, SerialFor);
  const std::vector<int64_t> targets = {3, -1, 6, 4};
  const std::set<int64_t> all = {1, 3, 4, 7, 6};
  std::set<int64_t> drawn;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const int64_t limit : {1, 2, 4, 5, 9}) {
      Philox random(seed);
      const auto members =
          MembersOfGroups(groups, targets.data(), 4, limit, &random);
      const std::set<int64_t> distinct(members.begin(), members.end());
      CHECK(distinct.size() == members.size());
      CHECK(static_cast<int64_t>(members.size()) ==
            std::min<int64_t>(limit, 5));
      for (const int64_t id : members) CHECK(all.count(id) == 1);
      if (limit == 1) drawn.insert(members[0]);
    }
  }
  CHECK(drawn == all);
  Philox random(0);
  CHECK(MembersOfGroups(groups, nullptr, 0, 3, &random).empty());
}

template <typename Indexer>
void FlippedBytesNeverLeaveTheirArrays(const typename Indexer::Index& index) {
  const std::string bytes = Indexer::Write(index);
  typename Indexer::Index again;
  CHECK(Indexer::Read(bytes.data(), bytes.size(), &again));
  CHECK(Indexer::Write(again) == bytes);
  for (size_t length = 0; length < bytes.size(); length += 5) {
    typename Indexer::Index none;
    CHECK(!Indexer::Read(bytes.data(), length, &none));
  }
  Philox random(3);
  for (int trial = 0; trial < 4000; ++trial) {
    std::string flipped = bytes;
    flipped[random.Below(bytes.size())] ^= 1 + random.Below(255);
    typename Indexer::Index read;
    if (!Indexer::Read(flipped.data(), flipped.size(), &read)) continue;
    CheckGroups(read.groups, read.groups.count());
  }
}

void Bytes() {
  const PaddedRows rows = Prepare(RandomRows(60, 5, 2), 5);
  FlippedBytesNeverLeaveTheirArrays<ClusterIndexer>(
      {5, ClusterBuilder(rows, 9, 1, SerialFor).Build()});
  FlippedBytesNeverLeaveTheirArrays<PrincipalIndexer>(
      {5, PrincipalGroups(rows, 3, 1, SerialFor)});
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::ProductsOfAllSizes();
  tfxclass::GroupsOfAllKindsAreSound();
  tfxclass::KMeansSplitsGroupsUntilNoCentreIsEmpty();
  tfxclass::TheSameInThreads();
  tfxclass::AxesAreEigenvectorsInTheirOrder();
  tfxclass::MembersAreDistinctAndOfTheGroups();
  tfxclass::Bytes();
}
