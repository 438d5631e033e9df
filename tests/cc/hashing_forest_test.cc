// Rounded products, the forest's build and query, and its bytes.
#include "core/hashing_forest.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/forest_indexer.h"
#include "core/forest_query.h"

namespace tfxclass {
namespace {

std::vector<float> RandomRows(int64_t count, int64_t dim, uint64_t seed) {
  Philox random(seed);
  std::vector<float> rows(count * dim);
  for (auto& x : rows) x = random.Uniform() + random.Uniform() - 1.0;
  return rows;
}

// Against double, also where one coordinate dwarfs the rest.
void RoundedDotIsWithinItsBound() {
  for (const int64_t dim : {1, 2, 15, 16, 17, 100, 1000}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      auto a = RandomRows(4, dim, 2 * seed),
           b = RandomRows(3, dim, 2 * seed + 1);
      for (int64_t d = 0; d < dim; ++d) a[d] = 1.0f;  // all at the top
      for (int64_t d = 0; d < dim; ++d) b[d] = d % 2 ? 1 : -1;
      for (int64_t d = 0; d < dim; ++d) a[dim + d] = 0.0f;  // zero
      b[dim] = 1e6f;
      RoundedRows of_a, of_b;
      of_a.Assign(a.data(), 4, dim);
      of_b.Assign(b.data(), 3, dim);
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
          double exact = 0;
          for (int64_t d = 0; d < dim; ++d) {
            exact += static_cast<double>(a[i * dim + d]) * b[j * dim + d];
          }
          float error;
          const float dot = RoundedDot(of_a, i, of_b, j, &error);
          CHECK(std::abs(dot - exact) <= error);
        }
      }
    }
  }
}

ClassRows RowsOf(const std::vector<float>& kernel, int64_t dim) {
  return {kernel.data(), static_cast<int64_t>(kernel.size()) / dim, dim};
}

ForestRows Prepare(const std::vector<float>& kernel, int64_t dim,
                   int64_t sketch = 0) {
  ForestRows rows;
  CHECK(TakeDirections(RowsOf(kernel, dim), sketch, SerialFor, &rows));
  return rows;
}

void CheckTree(const HashingTree& tree, int64_t count, int64_t leaf_size) {
  std::vector<int> seen(count, 0);
  for (const int32_t id : tree.ids) ++seen[id];
  for (const int times : seen) CHECK(times == 1);
  CHECK(tree.nodes[0].begin == 0 && tree.nodes[0].end == count);
  for (const ForestNode& node : tree.nodes) {
    if (node.child < 0) {
      CHECK(node.end - node.begin <= leaf_size);
      continue;
    }
    const ForestNode& left = tree.nodes[node.child];
    const ForestNode& right = tree.nodes[node.child + 1];
    CHECK(left.begin == node.begin && left.end == right.begin);
    CHECK(right.end == node.end);
  }
}

void EveryRowIsInOneLeaf() {
  struct Case {
    int64_t count, dim, leaf_size;
  };
  // The last is past 4 cells of 2^18 bytes: upper levels come from a sample.
  for (const Case& c : {Case{1, 1, 1}, Case{2, 3, 1}, Case{500, 5, 7},
                        Case{300, 17, 1000}, Case{9000, 120, 30}}) {
    const auto kernel = RandomRows(c.count, c.dim, c.count);
    const ForestRows rows = Prepare(kernel, c.dim);
    const HashingForest forest =
        BuildForest(rows, {3, c.leaf_size, 5}, SerialFor);
    CHECK(forest.trees.size() == 3);
    for (const auto& shared : forest.trees) {
      const auto& tree = *shared;
      CheckTree(tree, c.count, c.leaf_size);
    }
  }
}

void RowsThatCoincideAreHalved() {
  for (const float value : {0.0f, 1.0f}) {
    const ForestRows rows = Prepare(std::vector<float>(4 * 1000, value), 4);
    const HashingForest forest = BuildForest(rows, {1, 10, 5}, SerialFor);
    CheckTree(*forest.trees[0], 1000, 10);
    CHECK(forest.trees[0]->normals.count() == 0);
  }
}

void QueriesInThreadsEqualOneAfterTheOther() {
  const int64_t dim = 11, count = 700, queries = 64, neighbors = 9;
  const auto kernel = RandomRows(count, dim, 1);
  const auto features = RandomRows(queries, dim, 2);
  const ForestRows rows = Prepare(kernel, dim);
  const HashingForest forest = BuildForest(rows, {5, 20, 3}, SerialFor);
  QueryOptions options;
  options.num_neighbors = neighbors;
  ForestVotes votes;
  const auto search = [&](int64_t begin, int64_t end, int64_t* ids) {
    std::vector<float> scores(neighbors);
    ForestSearcher searcher(forest, RowsOf(kernel, dim), options, &votes);
    for (int64_t i = begin; i < end; ++i) {
      searcher.Search(&features[i * dim], ids + i * neighbors, scores.data());
    }
  };
  std::vector<int64_t> serial(queries * neighbors), parallel(serial.size());
  search(0, queries, serial.data());
  std::thread first(search, 0, 20, parallel.data());
  std::thread second(search, 20, queries, parallel.data());
  first.join();
  second.join();
  CHECK(serial == parallel);
  CHECK(votes.num_idle() >= 1 && votes.num_idle() <= 2);
  for (const int64_t id : serial) CHECK(id >= -1 && id < count);
}

std::vector<int64_t> Found(const HashingForest& forest, const ClassRows& rows,
                           const std::vector<float>& queries) {
  QueryOptions options;
  options.num_neighbors = 5;
  ForestVotes votes;
  ForestSearcher searcher(forest, rows, options, &votes);
  std::vector<float> scores(5);
  std::vector<int64_t> ids(queries.size() / forest.dim * 5);
  for (size_t i = 0; i < ids.size() / 5; ++i) {
    searcher.Search(&queries[i * forest.dim], &ids[i * 5], scores.data());
  }
  return ids;
}

void HalfRowsAreReadAsTheFloatsThatTheyAre() {
  const int64_t dim = 21, count = 500;
  const auto queries = RandomRows(30, dim, 2);
  std::vector<float> kernel = RandomRows(count, dim, 1);
  std::vector<Bf16> half;
  for (float& x : kernel) {
    half.push_back(ToBf16(x));
    x = ToFloat(half.back());
  }
  const ClassRows narrow = {nullptr, count, dim, half.data()};
  for (const int64_t sketch : {0, 16}) {
    const ForestRows wide = Prepare(kernel, dim, sketch);
    ForestRows rows;
    CHECK(TakeDirections(narrow, sketch, SerialFor, &rows));
    CHECK(rows.values == wide.values);
    const HashingForest forest = BuildForest(rows, {4, 10, 3}, SerialFor);
    CHECK(Found(forest, narrow, queries) ==
          Found(forest, RowsOf(kernel, dim), queries));
  }
  half[7].bits = 0x7f80;
  ForestRows rows;
  CHECK(!TakeDirections(narrow, 0, SerialFor, &rows));
}

// 100 groups of 20 rows: of the five nearest, those of a query's own group.
void ASketchKeepsNearRowsTogether() {
  const int64_t dim = 128, groups = 100, each = 20;
  const auto centres = RandomRows(groups, dim, 1);
  std::vector<float> kernel = RandomRows(groups * each, dim, 2);
  for (size_t i = 0; i < kernel.size(); ++i) {
    kernel[i] = 0.3f * kernel[i] + centres[i / each / dim * dim + i % dim];
  }
  const ForestRows rows = Prepare(kernel, dim, 32);
  CHECK(rows.padded == 32);
  const HashingForest built = BuildForest(rows, {10, 20, 3}, SerialFor);
  HashingForest forest;
  const std::string bytes = ForestBytes::Write(built);
  CHECK(ForestBytes::Read(bytes.data(), bytes.size(), &forest));
  CHECK(forest.sketch->size() == 32 && ForestBytes::Write(forest) == bytes);
  const auto ids = Found(forest, RowsOf(kernel, dim), centres);
  CHECK(ids == Found(built, RowsOf(kernel, dim), centres));
  int64_t hits = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    hits += ids[i] / each == static_cast<int64_t>(i) / 5;
  }
  CHECK(hits >= 0.98 * ids.size());
}

bool ReadsAndSearches(const std::string& bytes,
                      const std::vector<float>& kernel, int64_t dim) {
  HashingForest forest;
  // A copy of just that size: reading past the end is seen.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  if (!ForestBytes::Read(copy.data(), copy.size(), &forest)) return false;
  const int64_t count = kernel.size() / dim;
  if (forest.count != count || forest.dim != dim) return true;
  QueryOptions options;
  options.num_neighbors = 3;
  ForestVotes votes;
  ForestSearcher searcher(forest, RowsOf(kernel, dim), options, &votes);
  int64_t ids[3];
  float scores[3];
  for (int64_t i = 0; i < 5; ++i) {
    searcher.Search(&kernel[i * dim], ids, scores);
    for (const int64_t id : ids) CHECK(id >= -1 && id < count);
  }
  return true;
}

void GarbageIsRefusedOrHarmless(int64_t sketch) {
  const int64_t dim = 3, count = 40;
  const auto kernel = RandomRows(count, dim, 1);
  const ForestRows rows = Prepare(kernel, dim, sketch);
  const std::string bytes =
      ForestBytes::Write(BuildForest(rows, {2, 5, 3}, SerialFor));
  CHECK(ReadsAndSearches(bytes, kernel, dim));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!ReadsAndSearches(bytes.substr(0, size), kernel, dim));
  }
  CHECK(!ReadsAndSearches(bytes + "x", kernel, dim));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string flipped = bytes;
      flipped[i] ^= mask;
      ReadsAndSearches(flipped, kernel, dim);
    }
  }
  Philox random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string garbage(random.Below(200), 0);
    for (auto& c : garbage) c = random.Below(trial % 2 ? 256 : 3);
    ReadsAndSearches(garbage, kernel, dim);
  }
}

bool SameTree(const HashingTree& a, const HashingTree& b) {
  return a.ids == b.ids && a.normals.values == b.normals.values;
}

struct Refreshed {
  static constexpr int64_t kDim = 4, kCount = 60;
  std::vector<float> kernel = RandomRows(kCount, kDim, 1);
  RefreshingForest forest;

  ClassRows rows() const { return {kernel.data(), kCount, kDim}; }
  bool Advance(int64_t step, const ForestOptions& options) {
    return forest.Advance({step, 4, 4}, rows(), options, SerialFor);
  }
};

// The first forest is there at once; those begun at 4, 8, ... take the place of
// the one before over the next four steps, two trees at a time.
void TreesAreReplacedOneByOne() {
  Refreshed refreshed;
  const ForestRows normal = Prepare(refreshed.kernel, Refreshed::kDim);
  ForestOptions options{8, 5, 0};
  std::vector<std::shared_ptr<const HashingForest>> seen;
  for (int64_t step = 0; step < 13; ++step) {
    options.seed = step;
    CHECK(refreshed.Advance(step, options));
    seen.push_back(refreshed.forest.ready());
    CHECK(seen.back()->trees.size() == 8);
    for (int64_t t = 0; t < 8; ++t) {
      // By now 2 a step of those begun at the last multiple of 4 from 4 on.
      const int64_t done = step < 5 ? 0 : 2 * ((step - 1) % 4 + 1);
      const int64_t begun = step < 5 ? 0 : (step - 1) / 4 * 4;
      const int64_t before = begun <= 4 ? 0 : begun - 4;
      options.seed = t < done ? begun : before;
      CHECK(SameTree(*BuildTree(normal, options, t, SerialFor),
                     *seen.back()->trees[t]));
    }
  }
  CHECK(seen[0]->trees[7] == seen[6]->trees[7]);  // shared, not copied
  refreshed.kernel[7] = NAN;
  CHECK(refreshed.Advance(16, options) && refreshed.forest.ready() != nullptr);
}

void AllTreesAtOnceWhereThatIsAsked() {
  Refreshed refreshed;
  ForestOptions options{8, 5, 0, false};
  std::vector<const void*> seen;
  for (int64_t step = 0; step < 13; ++step) {
    CHECK(refreshed.Advance(step, options));
    seen.push_back(refreshed.forest.ready().get());
    const bool swaps = step >= 8 && step % 4 == 0;
    if (step > 0) CHECK((seen[step] != seen[step - 1]) == swaps);
  }
}

// Saved in the middle, the other trees come at the same steps.
void HalfReplacedIsSaved() {
  for (int64_t saved_at = 4; saved_at < 9; ++saved_at) {
    Refreshed first, second;
    for (int64_t step = 0; step < 13; ++step) {
      ForestOptions options{8, 5, static_cast<uint64_t>(step)};
      CHECK(first.Advance(step, options));
      if (step > saved_at) {
        CHECK(second.Advance(step, options));
        CHECK(ForestBytes::Write(*first.forest.ready()) ==
              ForestBytes::Write(*second.forest.ready()));
      }
      if (step == saved_at) CHECK(second.forest.Restore(first.forest.Save()));
    }
  }
}

// Trees of other rows are no trees of this forest: they come all at once, also
// after a restart.
void AForestOfAnotherShapeIsReplacedAtOnce() {
  for (const bool restarted : {false, true}) {
    Refreshing<ForestIndexer> forest, other;
    const auto few = RandomRows(20, 8, 1), many = RandomRows(200, 8, 2);
    const ForestOptions options{4, 5, 3};
    CHECK(forest.Build({few.data(), 20, 8}, options, SerialFor));
    const ClassRows rows{many.data(), 200, 8};
    CHECK(forest.Advance({0, 100, 4}, rows, options, SerialFor));
    Refreshing<ForestIndexer>* const used = restarted ? &other : &forest;
    if (restarted) CHECK(other.Restore(forest.Save()));
    for (int64_t step = 1; step < 5; ++step) {
      CHECK(used->Advance({step, 100, 4}, rows, options, SerialFor));
      const auto ready = used->ready();
      CHECK(ready->count == (step < 4 ? 20 : 200));
      for (const auto& tree : ready->trees) {
        CHECK(static_cast<int64_t>(tree->ids.size()) == ready->count);
      }
    }
  }
}

// A drift begins a refresh at once, but not while one is under way.
void ADriftBeginsARefresh() {
  Refreshed refreshed;
  std::vector<std::string> seen;
  for (int64_t step = 0; step < 12; ++step) {
    const ForestOptions options{2, 5, static_cast<uint64_t>(step)};
    const bool drifted = step == 3 || step == 4 || step == 8;
    CHECK(refreshed.forest.Advance({step, 1000, 2, drifted}, refreshed.rows(),
                                   options, SerialFor));
    seen.push_back(ForestBytes::Write(*refreshed.forest.ready()));
    const bool swaps = step == 4 || step == 5 || step == 9 || step == 10;
    if (step > 0) CHECK((seen[step] != seen[step - 1]) == swaps);
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::RoundedDotIsWithinItsBound();
  tfxclass::EveryRowIsInOneLeaf();
  tfxclass::RowsThatCoincideAreHalved();
  tfxclass::QueriesInThreadsEqualOneAfterTheOther();
  tfxclass::GarbageIsRefusedOrHarmless(0);
  tfxclass::GarbageIsRefusedOrHarmless(2);
  tfxclass::HalfRowsAreReadAsTheFloatsThatTheyAre();
  tfxclass::ASketchKeepsNearRowsTogether();
  tfxclass::TreesAreReplacedOneByOne();
  tfxclass::AllTreesAtOnceWhereThatIsAsked();
  tfxclass::HalfReplacedIsSaved();
  tfxclass::AForestOfAnotherShapeIsReplacedAtOnce();
  tfxclass::ADriftBeginsARefresh();
}
