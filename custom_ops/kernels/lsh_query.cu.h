// Queries of LSH tables (core/lsh_query.h) on the device: the same candidates
// in the same order.
#ifndef TFXCLASS_KERNELS_LSH_QUERY_CU_H_
#define TFXCLASS_KERNELS_LSH_QUERY_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// Tables of core/lsh_tables.h on the device.
struct GpuLshTables {
  int64_t count = 0;  // of class rows, below 2^31
  int64_t num_tables = 0;
  int code_bits = 0, range_bits = 0;  // as LshTables::range_bits
  int32_t* offsets = nullptr;         // [num_tables, 2^range_bits + 1]
  int64_t most_ids = 0;               // of a table
  int32_t* ids = nullptr;             // [num_tables, most_ids]

  int64_t num_buckets() const { return int64_t{1} << range_bits; }
};

// Votes are counted in 48 KiB of shared memory, 4 bytes for each number of
// them.
constexpr int64_t kMostGpuTables = 48 * 1024 / 4 - 1;

// Queries [samples, per_sample] with their codes [num_tables, queries]; those
// with valid = false are left out.
struct GpuLshQueries {
  const int32_t* codes;
  const bool* valid;
  int64_t samples, per_sample;
};

// What FindLshCandidates found, on the device.
struct GpuLshFound {
  int64_t least_votes;
  int64_t above;       // candidates with more votes
  int64_t with_least;  // with as many
  int64_t num_taken;   // those above and a sample of the others: `room` fit
  int64_t pool;        // classes with any votes
};

// Votes of every table for each class: most [count], the most that a query
// gives, 0 for classes in no bucket and for excluded ids (below 0: padding). A
// vote is found by a search of the other tables' buckets, so the time is that
// of num_tables log2(bucket) reads for each id in a bucket, and two passes over
// 4 bytes a class.
GpuStatus FindLshCandidates(const GpuLshTables& tables,
                            const GpuLshQueries& queries,
                            const int64_t* excluded, int64_t num_excluded,
                            int64_t room, int32_t* most, GpuLshFound* found,
                            Scratch* scratch, GpuStream stream);

// Candidates [found.num_taken], `found` copied to the host. Those with the
// least votes are a uniform sample, drawn from `seed`.
GpuStatus TakeLshCandidates(const int32_t* most, int64_t count,
                            const GpuLshFound& found, uint64_t seed,
                            int64_t* candidates, Scratch* scratch,
                            GpuStream stream);

// mask [samples, num_ids]: whether a sample's query has `least_votes` of the
// tables `probed` for ids[i]. ids are distinct and in [0, count), or left out.
GpuStatus LshMembers(const GpuLshTables& tables, const GpuLshQueries& queries,
                     const int64_t* probed, int64_t num_probed,
                     int64_t least_votes, const int64_t* ids, int64_t num_ids,
                     bool* mask, Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_QUERY_CU_H_
