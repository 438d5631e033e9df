// A tile of logits of bfloat16 rows, for kernels/exact_softmax.cu.cc.
//
// A block of kTileThreads threads multiplies kOwn rows that it owns and
// kColumns rows of the other side, both in shared memory, kDims of their
// dimensions at a time, by tensor cores:
//   At(i, j)      a logit: of row Row(i) and column Column(j) of the tile;
//                 kLanesOfRow neighbouring lanes have one row's.
//   AddLogits     adds the products of what lies in shared memory.
//   AddProduct    takes what is in At as a matrix [kOwn, kColumns] and adds its
//                 product with the columns' tile to the output.
//   Output        calls write(row, dim, value) for the output.
#ifndef TFXCLASS_KERNELS_MMA_TILE_CU_H_
#define TFXCLASS_KERNELS_MMA_TILE_CU_H_

#include "kernels/cuda_mma.cu.h"
#include "kernels/cuda_utils.cu.h"

namespace tfxclass {

constexpr int kTileThreads = 256;
constexpr int kDims = 128;

// Where a unit of 16 bytes of a row lies in a tile: turned about so that a unit
// of eight rows is read without bank conflicts.
__device__ __forceinline__ int UnitAt(int row, int unit) {
  constexpr int kUnits = kDims * sizeof(Bf16) / 16;
  return row * kUnits + (unit ^ (row & 7));
}

// Dimensions that are loaded for `dims` wanted: the rest of the 16 are zeros.
__device__ __forceinline__ int RoundedDims(int dims) {
  return (dims + 15) / 16 * 16;
}

// A warp has 32 rows and all columns.
struct MmaTile {
  static constexpr int kOwn = 256, kColumns = 64;
  static constexpr int kLanesOfRow = 4, kRows = 4, kColumnsOfThread = 16;

  float logits[2][8][4];
  float output[2][16][4];

  __device__ __forceinline__ static int Warp() { return threadIdx.x / kWarp; }
  __device__ __forceinline__ static int Row(int i) {
    return Warp() * 32 + i * 8 + Lane() / 4;
  }
  __device__ __forceinline__ static int Column(int j) {
    return j / 2 * 8 + Lane() % 4 * 2 + j % 2;
  }
  __device__ __forceinline__ float& At(int i, int j) {
    return logits[i / 2][j / 2][i % 2 * 2 + j % 2];
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kRows * kColumnsOfThread; ++i) {
      At(i / kColumnsOfThread, i % kColumnsOfThread) = 0;
    }
  }

  __device__ __forceinline__ void AddLogits(const uint4* own,
                                            const uint4* columns, int dims,
                                            int rows_left) {
    if (Warp() * 32 >= rows_left) return;
#pragma unroll 2
    for (int unit = 0; unit * 8 < dims; unit += 2) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = Warp() * 32 + m * 16 + Lane() % 16;
        LoadMatrices(a[m], own + UnitAt(row, unit + Lane() / 16));
      }
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        const int column = n * 8 + Lane() % 8 + Lane() / 16 * 8;
        uint32_t b[4];
        LoadMatrices(b, columns + UnitAt(column, unit + Lane() / 8 % 2));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MmaBf16(logits[m][n], a[m], {b[0], b[1]});
          MmaBf16(logits[m][n + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }

  // The registers of a result are those of a left factor, two and two.
  __device__ __forceinline__ void AddProduct(const uint4* columns, int dims,
                                             int rows_left) {
    if (Warp() * 32 >= rows_left) return;
    uint32_t left[4][2][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* pair = &logits[i / 4][2 * k + i % 4 / 2][i % 2 * 2];
        left[k][i / 4][i % 4] = PackBf16(pair[0], pair[1]);
      }
    }
    // A branch for each 32 dimensions: loads can go ahead, but not so far that
    // registers run out. What
    // was not loaded goes to outputs that are not written.
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      if (quarter * 32 < dims) AddQuarter(columns, left, quarter);
    }
  }

  __device__ __forceinline__ void AddQuarter(const uint4* columns,
                                             const uint32_t (&left)[4][2][4],
                                             int quarter) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int d = quarter * 4 + i * 2;
        uint32_t b[4];
        LoadTransposed(b,
                       columns + UnitAt(k * 16 + Lane() % 16, d + Lane() / 16));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MmaBf16(output[m][d], left[k][m], {b[0], b[1]});
          MmaBf16(output[m][d + 1], left[k][m], {b[2], b[3]});
        }
      }
    }
  }

  template <class Write>
  __device__ __forceinline__ void Output(const Write& write) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        write(Row(i), Column(j), output[i / 2][j / 2][i % 2 * 2 + j % 2]);
      }
    }
  }
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_MMA_TILE_CU_H_
