// LSH tables (core/lsh_tables.h) on the device: those of the processor, bit for
// bit, from the same codes.
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

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_TABLES_CU_H_
