// Forest queries against the processor's searcher, and against votes and scores
// counted the simple way.
#include "core/forest_query.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <thread>

#include "core/flat_forest.h"
#include "gpu_tests/harness.h"
#include "kernels/forest_query.cu.h"

namespace gpu_tests {
namespace {

using tfxclass::FlatForest;
using tfxclass::ForestNode;
using tfxclass::ForestQueryOptions;
using tfxclass::GpuForest;
using tfxclass::HashingForest;
using tfxclass::HashingTree;

struct Rows {
  int64_t count, dim;
  std::vector<float> values;
};

struct Case {
  const char* name;
  Rows rows;
  int64_t num_trees, leaf_size, batch;
  ForestQueryOptions options;
};

HashingForest Build(const Rows& rows, int64_t num_trees, int64_t leaf_size,
                    const tfxclass::ParallelFor& parallel) {
  tfxclass::ForestRows directions;
  Expect(tfxclass::TakeDirections({rows.values.data(), rows.count, rows.dim}, 0,
                                  parallel, &directions),
         "rows are finite");
  tfxclass::ForestOptions options;
  options.num_trees = num_trees;
  options.leaf_size = leaf_size;
  options.seed = 7;
  return tfxclass::BuildForest(directions, options, parallel);
}

// A forest on the device.
struct Uploaded {
  Buffer<ForestNode> nodes;
  Buffer<int16_t> planes;
  Buffer<float> scales;
  Buffer<int32_t> ids;
  Buffer<int64_t> first_node, first_plane;
  GpuForest forest;

  explicit Uploaded(const HashingForest& all)
      : Uploaded(all, tfxclass::FlattenForest(all)) {}

  Uploaded(const HashingForest& all, const FlatForest& flat)
      : nodes(flat.num_nodes),
        planes(flat.num_planes() * flat.padded),
        scales(flat.scales),
        ids(flat.num_trees() * flat.count),
        first_node(flat.first_node),
        first_plane(flat.first_plane) {
    for (int64_t t = 0; t < flat.num_trees(); ++t) {
      const HashingTree& tree = *all.trees[t];
      const auto& values = tree.normals.values;
      CopyIn(nodes.data() + flat.first_node[t], tree.nodes.data(),
             tree.nodes.size() * sizeof(ForestNode));
      CopyIn(planes.data() + flat.first_plane[t] * flat.padded, values.data(),
             values.size() * sizeof(int16_t));
      CopyIn(ids.data() + t * flat.count, tree.ids.data(),
             tree.ids.size() * sizeof(int32_t));
    }
    forest.count = flat.count;
    forest.dim = flat.dim;
    forest.padded = flat.padded;
    forest.num_trees = flat.num_trees();
    forest.levels = flat.levels;
    forest.least_scale = flat.least_scale;
    forest.largest_leaf = flat.largest_leaf;
    forest.nodes = nodes.data();
    forest.planes = planes.data();
    forest.scales = scales.data();
    forest.ids = ids.data();
    forest.first_node = first_node.data();
    forest.first_plane = first_plane.data();
  }
};

struct Found {
  std::vector<int64_t> ids;
  std::vector<float> scores;
};

Found QueryDevice(const HashingForest& forest, const Rows& rows,
                  const std::vector<float>& queries, int64_t batch,
                  const ForestQueryOptions& options) {
  Uploaded on_device(forest);
  Buffer<float> kernel(rows.values), query_buffer(queries);
  Buffer<int64_t> ids(batch * options.num_neighbors);
  Buffer<float> scores(batch * options.num_neighbors);
  TestScratch scratch;
  Done(tfxclass::QueryForest(on_device.forest, kernel.data(),
                             query_buffer.data(), batch, options, ids.data(),
                             scores.data(), &scratch, nullptr));
  return {ids.Read(), scores.Read()};
}

Found QueryProcessor(const HashingForest& forest, const Rows& rows,
                     const std::vector<float>& queries, int64_t batch,
                     const ForestQueryOptions& options) {
  const int64_t k = options.num_neighbors;
  Found found = {std::vector<int64_t>(batch * k),
                 std::vector<float>(batch * k)};
  tfxclass::ForestVotes votes;
  tfxclass::ForestSearcher searcher(
      forest, {rows.values.data(), rows.count, rows.dim},
      {k, options.num_candidates, options.normalize, options.bucket}, &votes);
  for (int64_t i = 0; i < batch; ++i) {
    searcher.Search(&queries[i * rows.dim], &found.ids[i * k],
                    &found.scores[i * k]);
  }
  return found;
}

// The rows that a walk pools get a vote each.
void VoteInTree(const HashingTree& tree, const tfxclass::RoundedRows& query,
                int64_t bucket, std::map<int64_t, int>* votes) {
  ForestNode node = tree.nodes[0], parent = node;
  while (node.child >= 0 && node.end - node.begin >= bucket) {
    float error;
    const bool is_right = node.plane < 0 || RoundedDot(query, 0, tree.normals,
                                                       node.plane, &error) >= 0;
    parent = node;
    node = tree.nodes[node.child + is_right];
  }
  if (node.end - node.begin < bucket) node = parent;
  for (int32_t i = node.begin; i < node.end; ++i) ++(*votes)[tree.ids[i]];
}

double Score(const float* query, const float* row, int64_t dim,
             bool normalize) {
  double dot = 0, squared = 0;
  for (int64_t d = 0; d < dim; ++d) {
    dot += double{query[d]} * row[d];
    squared += double{row[d]} * row[d];
  }
  if (!normalize) return dot;
  return squared > 0 ? dot / std::sqrt(squared) : 0;
}

struct Expected {
  std::vector<int64_t> ids;
  std::vector<double> scores;
  int64_t most_pooled = 0;
  // Whether the rows that are scored hang on the order of ties.
  bool has_ties = false;
};

void SearchSimply(const HashingForest& forest, const Rows& rows,
                  const float* query, const ForestQueryOptions& options,
                  Expected* expected) {
  std::vector<float> padded(forest.padded(), 0.0f);
  std::copy_n(query, rows.dim, padded.begin());
  tfxclass::RoundedRows rounded;
  rounded.Assign(padded.data(), 1, forest.padded());
  const int64_t k = options.num_neighbors;
  std::map<int64_t, int> votes;
  for (const auto& shared : forest.trees) {
    const HashingTree& tree = *shared;
    VoteInTree(tree, rounded, options.bucket ? options.bucket : k, &votes);
  }
  std::vector<std::pair<int, int64_t>> voted;  // -votes, id
  for (const auto& [id, count] : votes) voted.push_back({-count, id});
  std::sort(voted.begin(), voted.end());
  expected->most_pooled =
      std::max<int64_t>(expected->most_pooled, voted.size());
  const size_t limit = options.num_candidates;
  if (limit > 0 && voted.size() > limit) {
    expected->has_ties |= voted[limit - 1].first == voted[limit].first;
    voted.resize(limit);
  }
  std::vector<std::pair<double, int64_t>> ranked;  // -score, id
  for (const auto& [count, id] : voted) {
    ranked.push_back({-Score(query, &rows.values[id * rows.dim], rows.dim,
                             options.normalize),
                      id});
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(k, {0.0, -1});
  for (const auto& [score, id] : ranked) {
    expected->ids.push_back(id);
    expected->scores.push_back(id < 0 ? 0.0 : -score);
  }
}

Expected Check(const Case& c, const std::vector<float>& queries) {
  const HashingForest forest =
      Build(c.rows, c.num_trees, c.leaf_size, tfxclass::SerialFor);
  Expected expected;
  for (int64_t i = 0; i < c.batch; ++i) {
    SearchSimply(forest, c.rows, &queries[i * c.rows.dim], c.options,
                 &expected);
  }
  const Found found = QueryDevice(forest, c.rows, queries, c.batch, c.options);
  ExpectEqual(found.ids, expected.ids, std::string(c.name) + ": ids");
  ExpectNear(found.scores, expected.scores, 1e-6,
             std::string(c.name) + ": scores");
  if (!expected.has_ties) {
    const Found on_processor =
        QueryProcessor(forest, c.rows, queries, c.batch, c.options);
    ExpectEqual(found.ids, on_processor.ids,
                std::string(c.name) + ": ids of the processor");
  }
  return expected;
}

Rows RandomRows(int64_t count, int64_t dim, Random* random) {
  return {count, dim, random->Normal(count * dim)};
}

ForestQueryOptions Options(int64_t num_neighbors, int64_t num_candidates = 0,
                           bool normalize = false, int64_t bucket = 0,
                           int64_t table_slots = 0) {
  return {num_neighbors, num_candidates, normalize, bucket, table_slots};
}

GPU_TEST(ForestQueryOptionsAll) {
  Random random(31);
  const Rows rows = RandomRows(500, 20, &random);
  const Case cases[] = {
      {"all pooled", rows, 7, 10, 10, Options(5)},
      {"bucket", rows, 7, 10, 8, Options(5, 0, false, 60)},
      {"candidates", rows, 9, 10, 10, Options(5, 30, false, 20)},
      {"one candidate", rows, 9, 10, 4, Options(5, 1)},
      {"normalize", rows, 5, 10, 8, Options(9, 40, true, 30)},
      {"every row", rows, 2, 10, 3, Options(40, 0, true, 1000)},
      {"no trees", rows, 0, 10, 3, Options(4)},
      {"leaves above the bucket", rows, 6, 100, 4, Options(2, 12)},
  };
  for (const Case& c : cases) {
    Check(c, random.Normal(c.batch * c.rows.dim));
  }
}

// Votes tie at the cut in most of these: lower ids are kept.
GPU_TEST(ForestQueryTies) {
  Random random(32);
  bool has_ties = false;
  for (const int64_t limit : {2, 7, 40, 99}) {
    const Case c = {"ties", RandomRows(400, 6, &random), 3, 8,
                    5,      Options(6, limit, false, 30)};
    has_ties |= Check(c, random.Normal(c.batch * c.rows.dim)).has_ties;
  }
  Expect(has_ties, "some cut goes through rows with equal votes");
}

GPU_TEST(ForestQueryShapes) {
  Random random(33);
  for (const int64_t dim : {1, 3, 16, 31, 48, 130, 200}) {
    const Case c = {"dim", RandomRows(150, dim, &random),
                    4,     6,
                    3,     Options(7, dim % 2 ? 20 : 0, dim % 3 == 0, 12)};
    Check(c, random.Normal(c.batch * dim));
  }
  const Case cases[] = {
      {"one row", RandomRows(1, 5, &random), 3, 10, 2, Options(4)},
      {"fewer rows than neighbours", RandomRows(3, 5, &random), 3, 1, 2,
       Options(8)},
      {"many neighbours", RandomRows(300, 4, &random), 4, 10, 2, Options(3000)},
      {"no queries", RandomRows(30, 4, &random), 2, 5, 0, Options(3)},
      // Keys and table together are more than a block of an L4 may have.
      {"the largest table", RandomRows(300, 4, &random), 25, 10, 2,
       Options(200)},
      {"most keys and the largest table", RandomRows(300, 4, &random), 25, 10,
       2, Options(4096)},
  };
  for (const Case& c : cases) {
    Check(c, random.Normal(c.batch * c.rows.dim));
  }
}

// Cells of equal rows are halved without a plane, and their scores tie.
GPU_TEST(ForestQueryDuplicates) {
  Random random(34);
  Rows rows = RandomRows(120, 8, &random);
  for (int64_t i = 20; i < 120; ++i) {
    std::copy_n(&rows.values[i % 4 * 8], 8, &rows.values[i * 8]);
  }
  std::fill_n(&rows.values[5 * 8], 8, 0.0f);
  const Case cases[] = {
      {"duplicates", rows, 5, 4, 8, Options(10)},
      {"duplicates, normalized", rows, 5, 4, 8, Options(10, 20, true, 15)},
      {"one vector",
       {40, 8, std::vector<float>(40 * 8, 0.5f)},
       3,
       4,
       3,
       Options(6)},
  };
  for (const Case& c : cases) {
    Check(c, random.Normal(c.batch * c.rows.dim));
  }
}

GPU_TEST(ForestQueryOverflow) {
  Random random(35);
  for (const int64_t candidates : {0, 25}) {
    // Some pools fit the table, others do not.
    const Case c = {"overflow", RandomRows(400, 12, &random),          6, 10,
                    12,         Options(7, candidates, false, 25, 112)};
    const auto queries = random.Normal(c.batch * c.rows.dim);
    Expect(Check(c, queries).most_pooled > 98, "a pool does not fit");
  }
  // More queries than there are blocks for them, and hardly a table; the last
  // find what the first of their blocks found.
  const Case c = {
      "overflow of all",         RandomRows(60, 4, &random), 3, 8, 140,
      Options(3, 9, false, 0, 2)};
  auto queries = random.Normal(132 * c.rows.dim);
  queries.insert(queries.end(), queries.begin(),
                 queries.begin() + 8 * c.rows.dim);
  Check(c, queries);
}

// Queries that are perpendicular to the plane but for rounding, which decides.
GPU_TEST(ForestQueryRounding) {
  Random random(36);
  for (int turn = 0; turn < 40; ++turn) {
    const int64_t dim = 9;
    Rows rows = RandomRows(2, dim, &random);
    std::vector<float> query(dim, 0.0f);
    for (int64_t i = 0; i < 2; ++i) {
      const float* row = &rows.values[i * dim];
      const float norm = std::sqrt(Score(row, row, dim, false));
      for (int64_t d = 0; d < dim; ++d) query[d] += row[d] / norm;
    }
    Check({"rounding", rows, 1, 1, 1, Options(1)}, query);
  }
}

// Products of scales that vanish: -0 is on the right of a plane.
GPU_TEST(ForestQueryTinyQueries) {
  Random random(39);
  const int64_t dim = 6, batch = 6, k = 300;
  Rows rows = RandomRows(200, dim, &random);
  for (int64_t i = dim; i < 100 * dim; ++i) {  // half of them nearly the same
    rows.values[i] = rows.values[i % dim] + 1e-6f * rows.values[i];
  }
  const HashingForest forest = Build(rows, 5, 6, tfxclass::SerialFor);
  std::vector<float> queries = random.Normal(batch * dim, 1e-34f);
  for (int64_t i = 0; i < batch; ++i) {
    const float factor = i < 3 ? 1e-34f : 0.0f;
    for (int64_t d = 0; d < dim; ++d) {
      queries[i * dim + d] += factor * rows.values[d];
    }
  }
  std::fill_n(queries.begin(), dim, 0.0f);
  const auto options = Options(k, 0, false, 12);
  Found found = QueryDevice(forest, rows, queries, batch, options);
  Found expected = QueryProcessor(forest, rows, queries, batch, options);
  // Scores lose their digits: only which rows were pooled is compared.
  for (int64_t i = 0; i < batch; ++i) {
    std::sort(&found.ids[i * k], &found.ids[i * k] + k);
    std::sort(&expected.ids[i * k], &expected.ids[i * k] + k);
  }
  ExpectEqual(found.ids, expected.ids, "pooled rows");
}

GPU_TEST(ForestQueryDeterministic) {
  Random random(37);
  const Rows rows = RandomRows(300, 10, &random);
  const HashingForest forest = Build(rows, 6, 10, tfxclass::SerialFor);
  const auto queries = random.Normal(6 * rows.dim);
  const auto options = Options(9, 30, true, 25);
  const Found first = QueryDevice(forest, rows, queries, 6, options);
  const Found second = QueryDevice(forest, rows, queries, 6, options);
  ExpectEqual(second.ids, first.ids, "ids");
  ExpectEqual(second.scores, first.scores, "scores");
}

GPU_TEST(ForestQueryRefuses) {
  GpuForest forest;
  forest.count = 5;
  TestScratch scratch;
  const ForestQueryOptions refused[] = {Options(0),
                                        Options(tfxclass::kMostNeighbors + 1),
                                        Options(1, -1),
                                        Options(1, 0, false, -1),
                                        Options(1, 0, false, 0, -1),
                                        Options(1, 0, false, 0, 1 << 20)};
  for (const ForestQueryOptions& options : refused) {
    Expect(tfxclass::QueryForest(forest, nullptr, nullptr, 1, options, nullptr,
                                 nullptr, &scratch, nullptr) != nullptr,
           "options are refused");
  }
  forest.count = 0;
  Expect(tfxclass::QueryForest(forest, nullptr, nullptr, 1, Options(1), nullptr,
                               nullptr, &scratch, nullptr) != nullptr,
         "a forest of no rows is refused");
}

// Threads that take trees one after the other.
void OnThreads(int64_t total, int64_t, const tfxclass::RangeBody& body) {
  std::vector<std::thread> threads;
  const int64_t most = std::max(1u, std::thread::hardware_concurrency());
  for (int64_t t = 0; t < most; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; i < total; i += most) body(i, i + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

GPU_BENCHMARK(ForestQueryBenchmarks) {
  const int64_t count = 1000000, dim = 128, batch = 4096, num_trees = 50;
  Random random(38);
  // A thousand rows a cluster, and queries near rows.
  Rows rows = RandomRows(count, dim, &random);
  for (int64_t i = count / 1000 * dim; i < count * dim; ++i) {
    rows.values[i] =
        0.5f * rows.values[i] + rows.values[i % (count / 1000 * dim)];
  }
  std::vector<float> queries = random.Normal(batch * dim, 0.3f);
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t row = random.Below(count);
    for (int64_t d = 0; d < dim; ++d) {
      queries[i * dim + d] += rows.values[row * dim + d];
    }
  }
  Uploaded on_device(Build(rows, num_trees, 100, OnThreads));
  Buffer<float> kernel(rows.values), query_buffer(queries);
  const ForestQueryOptions all_options[] = {
      Options(100, 400), Options(100, 300, false, 200), Options(32, 64)};
  for (const ForestQueryOptions& o : all_options) {
    const int64_t bucket = o.bucket ? o.bucket : o.num_neighbors;
    Buffer<int64_t> ids(batch * o.num_neighbors);
    Buffer<float> scores(batch * o.num_neighbors);
    TestScratch scratch;
    const double bytes = 2.0 * on_device.planes.size() +
                         1.5 * batch * num_trees * bucket * sizeof(int32_t) +
                         1.0 * batch * o.num_candidates * dim * sizeof(float);
    Report("forest query, 4,096 in 1M x 128, 50 trees, " +
               std::to_string(o.num_neighbors) + " neighbours of " +
               std::to_string(o.num_candidates) + ", bucket " +
               std::to_string(bucket),
           MedianMs([&] {
             scratch.Reuse();
             Done(tfxclass::QueryForest(
                 on_device.forest, kernel.data(), query_buffer.data(), batch, o,
                 ids.data(), scores.data(), &scratch, nullptr));
           }),
           bytes, 0);
  }
}

}  // namespace
}  // namespace gpu_tests
