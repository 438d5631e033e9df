// Queries of LSH tables (core/lsh_query.h) on the device: the same candidates
// in another order (rising), and of the last table another sample.
#ifndef TFXCLASS_KERNELS_LSH_QUERY_CU_H_
#define TFXCLASS_KERNELS_LSH_QUERY_CU_H_

#include "kernels/lsh_tables.cu.h"

namespace tfxclass {

// Queries [samples, per_sample] with their codes [num_tables, queries]; those
// with valid = false are left out.
struct GpuLshQueries {
  const int32_t* codes;
  const bool* valid;
  int64_t samples, per_sample;
};

// What FindLshCandidates found, on the device.
struct GpuLshFound {
  int64_t num_probed;  // tables, of the order given
  int64_t before;      // candidates of all of these but the last
  int64_t added;       // by the last
  int64_t num_taken;   // before and a sample of the added, or all: `room` fit
};

// For each class the place, in `order` [num_tables], of the first table that
// has it in a bucket of a query: first [count]. Excluded ids (below 0: padding)
// get -1, classes in no bucket a large number. Tables are probed until more
// than `room` candidates are found. One visit of each id in a bucket, and two
// passes over 4 bytes a class.
GpuStatus FindLshCandidates(const GpuLshTables& tables,
                            const GpuLshQueries& queries, const int64_t* order,
                            const int64_t* excluded, int64_t num_excluded,
                            int64_t room, int32_t* first, GpuLshFound* found,
                            Scratch* scratch, GpuStream stream);

// Candidates [found.num_taken], `found` copied to the host. Those of the last
// table are a uniform sample, drawn from `seed`.
GpuStatus TakeLshCandidates(const int32_t* first, int64_t count,
                            const GpuLshFound& found, uint64_t seed,
                            int64_t* candidates, Scratch* scratch,
                            GpuStream stream);

// mask [samples, num_ids]: whether ids[i] is in a bucket of a sample's queries,
// in the tables `probed`. ids are distinct and in [0, count), or left out.
GpuStatus LshMembers(const GpuLshTables& tables, const GpuLshQueries& queries,
                     const int64_t* probed, int64_t num_probed,
                     const int64_t* ids, int64_t num_ids, bool* mask,
                     Scratch* scratch, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_QUERY_CU_H_
