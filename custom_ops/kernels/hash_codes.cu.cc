#include "kernels/hash_codes.cu.h"

#include <algorithm>

#include "core/philox.h"
#include "kernels/cuda_utils.cu.h"

namespace tfxclass {
namespace {

constexpr int kRows = 128;   // of a block of SimHashKernel, one a thread
constexpr int kPlanes = 32;  // products of a thread at once
constexpr int kDepth = 32;   // coordinates in shared memory

__device__ __forceinline__ float Coordinate(const HashedVectors& x, int64_t row,
                                            int64_t d) {
  if (d == x.dim) return x.extra[row];
  return x.values[(x.ids == nullptr ? row : x.ids[row]) * x.dim + d];
}

// Coordinates [start, start + kDepth) of the block's vectors, 0 where there are
// none. Consecutive threads read consecutive coordinates.
__device__ __forceinline__ void ReadRows(const HashedVectors& x,
                                         int64_t first_row, int64_t start,
                                         int64_t width,
                                         float (&rows)[kDepth][kRows + 1]) {
  for (int i = threadIdx.x; i < kRows * kDepth; i += kRows) {
    const int64_t row = first_row + i / kDepth, d = start + i % kDepth;
    const bool is_there = row < x.count && d < width;
    rows[i % kDepth][i / kDepth] = is_there ? Coordinate(x, row, d) : 0.0f;
  }
}

// A block for 128 vectors, one a thread.
__global__ void __launch_bounds__(kRows)
    SquaredNormsKernel(HashedVectors x, float* squared) {
  __shared__ float rows[kDepth][kRows + 1];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRows;
  float sum = 0;
  for (int64_t start = 0; start < x.dim; start += kDepth) {
    ReadRows(x, first_row, start, x.dim, rows);
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      sum += rows[d][threadIdx.x] * rows[d][threadIdx.x];
    }
    __syncthreads();
  }
  const int64_t row = first_row + threadIdx.x;
  if (row < x.count) squared[row] = sum;
}

__global__ void ExtraOfNormsKernel(float greatest, int64_t count,
                                   float* squared) {
  const int64_t i = ThreadNumber();
  if (i < count) squared[i] = sqrtf(max(greatest - squared[i], 0.0f));
}

// A block for 128 vectors and the tables [first, first + tables), whose planes
// are at most 32. blockIdx: tables fastest, so that the vectors stay in the
// second-level cache.
__global__ void __launch_bounds__(kRows)
    SimHashKernel(HashedVectors x, const float* planes, int64_t width,
                  int num_hashes, int64_t num_tables, int tables_together,
                  int64_t groups, int32_t* codes) {
  __shared__ float rows[kDepth][kRows + 1];
  __shared__ __align__(16) float normals[kDepth][kPlanes];
  const int64_t group = blockIdx.x % groups;
  const int64_t first_row = blockIdx.x / groups * kRows;
  const int64_t first_table = group * tables_together;
  const int64_t tables =
      min(static_cast<int64_t>(tables_together), num_tables - first_table);
  const int num_planes = static_cast<int>(tables) * num_hashes;
  const float* of_group = planes + first_table * num_hashes * width;
  float products[kPlanes] = {};
  for (int64_t start = 0; start < width; start += kDepth) {
    ReadRows(x, first_row, start, width, rows);
    for (int i = threadIdx.x; i < kPlanes * kDepth; i += kRows) {
      const int plane = i / kDepth;
      const int64_t d = start + i % kDepth;
      const bool is_there = plane < num_planes && d < width;
      normals[i % kDepth][plane] =
          is_there ? of_group[plane * width + d] : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      const float value = rows[d][threadIdx.x];
#pragma unroll
      for (int p = 0; p < kPlanes; p += 4) {
        const float4 normal = *reinterpret_cast<float4*>(&normals[d][p]);
        products[p] += normal.x * value;
        products[p + 1] += normal.y * value;
        products[p + 2] += normal.z * value;
        products[p + 3] += normal.w * value;
      }
    }
    __syncthreads();
  }
  unsigned signs = 0;
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    signs |= static_cast<unsigned>(products[p] > 0) << p;
  }
  const int64_t row = first_row + threadIdx.x;
  if (row >= x.count) return;
  for (int t = 0; t < tables; ++t) {
    unsigned code = 0;
    for (int h = 0; h < num_hashes; ++h) {
      code = code << 1 | (signs >> (t * num_hashes + h) & 1);
    }
    codes[(first_table + t) * x.count + row] = static_cast<int32_t>(code);
  }
}

struct Bins {
  const int32_t* coordinates;
  int64_t count, bin_size;
  uint64_t seed;
};

// The coordinates of one vector, from shared memory or from where it lies.
struct TiledVector {
  const float* tile;  // [width, 33], of 32 vectors
  int lane;

  __device__ float operator[](int64_t d) const { return tile[d * 33 + lane]; }
};

struct GlobalVector {
  HashedVectors vectors;
  int64_t row;

  __device__ float operator[](int64_t d) const {
    return Coordinate(vectors, row, d);
  }
};

// The slot of the greatest value that is not 0, the first of equal ones; -1 if
// all are 0.
template <class Vector>
__device__ int Slot(const Bins& bins, const Vector& x, int64_t bin) {
  const int32_t* coordinates = bins.coordinates + bin * bins.bin_size;
  int slot = -1;
  float best = 0;
  for (int s = 0; s < bins.bin_size; ++s) {
    const float value = x[coordinates[s]];
    if (value == 0 || (slot >= 0 && value <= best)) continue;
    best = value;
    slot = s;
  }
  return slot;
}

// As DwtaBins::Borrow.
template <class Vector>
__device__ int BorrowedSlot(const Bins& bins, const Vector& x, int64_t bin) {
  Philox random(bins.seed ^ 0xB0440Full, bin);
  for (int draw = 0; draw < 128; ++draw) {
    const int slot = Slot(bins, x, random.Below(bins.count));
    if (slot >= 0) return slot;
  }
  return 0;
}

template <class Vector>
__device__ uint32_t DwtaCode(const Bins& bins, const Vector& x, bool is_zero,
                             int64_t table, int64_t num_hashes, int bits) {
  uint32_t code = 0;
  for (int64_t i = table * num_hashes; i < (table + 1) * num_hashes; ++i) {
    int slot = is_zero ? 0 : Slot(bins, x, i);
    if (slot < 0) slot = BorrowedSlot(bins, x, i);
    code = code << bits | static_cast<uint32_t>(slot);
  }
  return code;
}

template <class Vector>
__device__ bool IsZero(const Vector& x, int64_t width) {
  for (int64_t d = 0; d < width; ++d) {
    if (x[d] != 0) return false;
  }
  return true;
}

constexpr int kDwtaThreads = 256;

// A block for 32 vectors, one a lane; warps share out the tables. With kTiled
// the vectors lie in shared memory, coordinate by coordinate: then the lanes'
// reads of one coordinate meet no bank twice.
template <bool kTiled>
__global__ void __launch_bounds__(kDwtaThreads)
    DwtaKernel(HashedVectors x, Bins bins, int64_t width, int bits,
               int64_t num_hashes, int64_t num_tables, int32_t* codes) {
  TFXCLASS_DYNAMIC_SHARED(float, tile);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kWarp;
  if (kTiled) {
    for (int64_t i = threadIdx.x; i < kWarp * width; i += kDwtaThreads) {
      const int64_t row = first_row + i / width, d = i % width;
      tile[d * 33 + i / width] = row < x.count ? Coordinate(x, row, d) : 0.0f;
    }
    __syncthreads();
  }
  const int64_t row = first_row + Lane();
  if (row >= x.count) return;
  const TiledVector tiled = {tile, Lane()};
  const GlobalVector in_place = {x, row};
  const bool is_zero = kTiled ? IsZero(tiled, width) : IsZero(in_place, width);
  for (int64_t t = threadIdx.x / kWarp; t < num_tables;
       t += kDwtaThreads / kWarp) {
    codes[t * x.count + row] = static_cast<int32_t>(
        kTiled ? DwtaCode(bins, tiled, is_zero, t, num_hashes, bits)
               : DwtaCode(bins, in_place, is_zero, t, num_hashes, bits));
  }
}

}  // namespace

GpuStatus SimHashCodes(const HashedVectors& vectors, const float* planes,
                       int64_t num_hashes, int64_t num_tables, int32_t* codes,
                       GpuStream stream) {
  if (num_hashes < 1 || num_hashes > 30) return "num_hashes must be 1 to 30";
  const int together = kPlanes / static_cast<int>(num_hashes);
  const int64_t groups = CeilDiv(num_tables, together);
  return Launch(SimHashKernel, CeilDiv(vectors.count, kRows) * groups, kRows, 0,
                stream, vectors, planes, vectors.width(), num_hashes,
                num_tables, together, groups, codes);
}

GpuStatus DwtaCodes(const HashedVectors& vectors, const int32_t* coordinates,
                    int64_t bin_size, int bits, uint64_t seed,
                    int64_t num_hashes, int64_t num_tables, int32_t* codes,
                    GpuStream stream) {
  // So much that two blocks fit on a multiprocessor.
  constexpr int64_t kMostShared = 80 << 10;
  int64_t most;
  TFXCLASS_RETURN_IF_GPU_ERROR(MostSharedBytes(DwtaKernel<true>, &most));
  const Bins bins = {coordinates, num_tables * num_hashes, bin_size, seed};
  const int64_t shared = vectors.width() * 33 * sizeof(float);
  const bool tiled = shared <= (most < kMostShared ? most : kMostShared);
  return Launch(tiled ? DwtaKernel<true> : DwtaKernel<false>,
                CeilDiv(vectors.count, kWarp), kDwtaThreads, tiled ? shared : 0,
                stream, vectors, bins, vectors.width(), bits, num_hashes,
                num_tables, codes);
}

GpuStatus SquaredNormsOf(const HashedVectors& vectors, float* squared,
                         GpuStream stream) {
  return Launch(SquaredNormsKernel, CeilDiv(vectors.count, kRows), kRows, 0,
                stream, vectors, squared);
}

GpuStatus ExtraOfNorms(float greatest, int64_t count, float* squared,
                       GpuStream stream) {
  return LaunchEach(ExtraOfNormsKernel, count, stream, greatest, count,
                    squared);
}

}  // namespace tfxclass
