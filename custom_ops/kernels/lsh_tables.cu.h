// LSH tables (core/lsh_tables.h, core/lsh_query.h) on the device.
//
// Tables are those of the processor, bit for bit, from the same codes. A query
// finds the same set of candidates, in another order (rising), and of the last
// table another sample.
#ifndef TFXCLASS_KERNELS_LSH_TABLES_CU_H_
#define TFXCLASS_KERNELS_LSH_TABLES_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

struct GpuLshTables {
  int64_t count = 0;  // of class rows, below 2^31
  int64_t num_tables = 0;
  int code_bits = 0, range_bits = 0;  // as LshTables::range_bits
  int32_t* offsets = nullptr;         // [num_tables, 2^range_bits + 1]
  int32_t* ids = nullptr;             // [num_tables, count]

  int64_t num_buckets() const { return int64_t{1} << range_bits; }
};

// From codes [num_tables, count]. bucket_size 0: all are kept. A sort of
// `count` codes a table (three and a half with a bucket_size); scratch memory
// of one table, about 40 bytes a class.
GpuStatus BuildLshTables(const int32_t* codes, int64_t bucket_size,
                         uint64_t seed, const GpuLshTables& tables,
                         Scratch* scratch, GpuStream stream);

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

#endif  // TFXCLASS_KERNELS_LSH_TABLES_CU_H_
