// Class vectors on a GPU, as refreshes of LSH tables read them: the functions
// of core/lsh_indexer.h for DeviceRows.
#ifndef TFXCLASS_KERNELS_LSH_DEVICE_ROWS_H_
#define TFXCLASS_KERNELS_LSH_DEVICE_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/lsh_tables.h"
#include "core/parallel.h"
#include "kernels/device_rows.h"
#include "kernels/hash_codes_gpu.h"

namespace tfxclass {

// The rows `ids`, or all where it is null.
inline GpuStatus VectorsOf(const DeviceRows& rows,
                           const std::vector<int64_t>* ids,
                           HashedVectors* vectors) {
  *vectors = {rows.values, nullptr, rows.count, rows.dim};
  if (ids == nullptr) return nullptr;
  const int64_t count = ids->size();
  int64_t* const on_device = rows.copier.on_device->Get<int64_t>(count);
  if (on_device == nullptr) return kNoScratch;
  vectors->count = count;
  vectors->ids = on_device;
  return CopyToDevice(on_device, ids->data(), count * sizeof(int64_t),
                      rows.copier.stream);
}

inline bool GreatestNorm(const DeviceRows& rows,
                         const std::vector<int64_t>* ids, const ParallelFor&,
                         float* greatest) {
  const RowCopier& copier = rows.copier;
  HashedVectors vectors;
  if (!rows.Succeeded(VectorsOf(rows, ids, &vectors))) return false;
  *greatest = 0;
  bool finite = true;
  const auto compute = [&](int64_t first, int64_t n, char* to) {
    return SquaredNormsOf(vectors.Part(first, n), reinterpret_cast<float*>(to),
                          copier.stream);
  };
  const auto take = [&](int64_t, int64_t n, const char* from) {
    const float* const squared = reinterpret_cast<const float*>(from);
    for (int64_t i = 0; i < n; ++i) {
      finite &= std::isfinite(squared[i]);
      *greatest = std::max(*greatest, squared[i]);
    }
  };
  return rows.Succeeded(
             copier.Copy(vectors.count, sizeof(float), compute, take)) &&
         finite;
}

// Sets the coordinate that makes norms equal, where they are to be.
inline GpuStatus SetExtra(const LshTables& next, const RowCopier& copier,
                          HashedVectors* vectors) {
  if (!next.inner_product) return nullptr;
  float* const extra = copier.on_device->Get<float>(vectors->count);
  if (extra == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(SquaredNormsOf(*vectors, extra, copier.stream));
  vectors->extra = extra;
  return ExtraOfNorms(next.greatest, vectors->count, extra, copier.stream);
}

// codes [tables, vectors].
inline GpuStatus CopyCodes(const LshTables& next, const RowCopier& copier,
                           HashedVectors vectors, const ParallelFor& parallel,
                           std::vector<uint32_t>* codes) {
  TFXCLASS_RETURN_IF_GPU_ERROR(SetExtra(next, copier, &vectors));
  GpuHashFunctions functions;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      functions.Upload(*next.functions, copier.on_device, copier.stream));
  const int64_t num_tables = next.functions->options().num_tables;
  codes->resize(num_tables * vectors.count);
  const auto compute = [&](int64_t first, int64_t n, char* to) {
    return functions.Codes(vectors.Part(first, n),
                           reinterpret_cast<int32_t*>(to), copier.stream);
  };
  const auto take = [&](int64_t first, int64_t n, const char* from) {
    const int64_t bytes = n * sizeof(uint32_t);
    parallel(num_tables, bytes / 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        std::memcpy(codes->data() + t * vectors.count + first, from + t * bytes,
                    bytes);
      }
    });
  };
  return copier.Copy(vectors.count, num_tables * sizeof(uint32_t), compute,
                     take);
}

inline bool HashTouched(const DeviceRows& rows, const std::vector<int64_t>& ids,
                        const ParallelFor& parallel, LshTables* next,
                        std::vector<uint32_t>* codes) {
  HashedVectors vectors;
  return rows.Succeeded(VectorsOf(rows, &ids, &vectors)) &&
         rows.Succeeded(
             CopyCodes(*next, rows.copier, vectors, parallel, codes));
}

inline bool HashAll(const DeviceRows& rows, const ParallelFor& parallel,
                    LshTables* next, std::vector<uint32_t>* codes) {
  HashedVectors vectors;
  return rows.Succeeded(VectorsOf(rows, nullptr, &vectors)) &&
         rows.Succeeded(
             CopyCodes(*next, rows.copier, vectors, parallel, codes));
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_DEVICE_ROWS_H_
