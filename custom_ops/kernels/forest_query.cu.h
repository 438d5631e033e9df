// The classes nearest to queries, through a hashing forest on the device: the
// twin of core/forest_query.h.
//
// Walks are those of the processor, bit for bit, and so are the pooled rows.
// Rows that tie at the num_candidates-th number of votes are kept by lower id;
// the processor keeps those it met first. Scores differ in the last bits. The
// same results every time.
//
// 8 lanes a walk, all queries in a tree before the next tree, so that its
// planes are read from device memory once. Then a block a query: votes in a
// hash table in shared memory, the most voted by a radix search for the last
// that is kept, their scores by a warp for four rows at once, and the same
// search for the best. The table is as large as the GPU's shared memory lets
// it be. A query that pools more distinct rows than it holds is done by one of
// a few blocks with tables of `count` in scratch memory: exact, slower.
//
// Floor for 4,096 queries, 1M x 128 rows, 50 trees of leaves of 100 rows,
// bucket 100, 400 candidates: 256 MB of planes, 4,096 x 50 x about 150 ids =
// 120 MB, 4,096 x 400 x 512 bytes of rows = 840 MB; 1.2 GB, 0.3 ms at 4 TB/s.
#ifndef TFXCLASS_KERNELS_FOREST_QUERY_CU_H_
#define TFXCLASS_KERNELS_FOREST_QUERY_CU_H_

#include "core/flat_forest.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

// A FlatForest whose arrays lie on the device, aligned to 16 bytes.
struct GpuForest {
  int64_t count = 0, dim = 0, padded = 0, num_trees = 0;
  float levels = 0, least_scale = 0;
  int64_t largest_leaf = 0;
  const ForestNode* nodes = nullptr;
  const int16_t* planes = nullptr;
  const float* scales = nullptr;
  const int32_t* ids = nullptr;
  const int64_t *first_node = nullptr, *first_plane = nullptr;
};

constexpr int64_t kMostNeighbors = 4096;

// As QueryOptions of core/forest_query.h.
struct ForestQueryOptions {
  int64_t num_neighbors = 1;   // at most kMostNeighbors
  int64_t num_candidates = 0;  // 0: all pooled rows are scored
  bool normalize = false;      // scores are over the norm of the row
  int64_t bucket = 0;          // rows a walk pools at least; 0: num_neighbors
  // 8 bytes of shared memory each, and no more than fit; 0: by the forest.
  int64_t table_slots = 0;
};

// kernel [count, dim], the live rows; queries [batch, dim], finite. Writes ids
// and scores [batch, num_neighbors], best score first, then lower id, padded
// with -1 and 0.
//
// Scratch: a query 2 padded + 8 + 8 num_trees bytes; and, unless any pool fits
// the table, 12 bytes a class for at most 132 blocks, of which as many as fit
// in 256 MiB, one at least.
GpuStatus QueryForest(const GpuForest& forest, const float* kernel,
                      const float* queries, int64_t batch,
                      const ForestQueryOptions& options, int64_t* ids,
                      float* scores, Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_FOREST_QUERY_CU_H_
