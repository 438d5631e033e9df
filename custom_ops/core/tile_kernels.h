// Products and exponentials, once for each instruction set: on panels of 32
// columns, the inner loops of the exact softmax (core/exact_softmax.h), and on
// rows of logits (core/softmax_block.h).
//
// A panel [count, kPanel] is contiguous: products read it from the first cache
// line to the last, and softmaxes run along it with a vector of batch rows.
// All functions are reentrant and need no memory beyond their arguments.
#ifndef TFXCLASS_CORE_TILE_KERNELS_H_
#define TFXCLASS_CORE_TILE_KERNELS_H_

#include <cstdint>

namespace tfxclass {

constexpr int64_t kPanel = 32;

inline int64_t PanelsOf(int64_t columns) {
  return (columns + kPanel - 1) / kPanel;
}

// The left side of a product: a(i, k) at
// data[i * row + k % kPanel * step + k / kPanel * block].
struct TileLeft {
  const float* data;
  int64_t row, step, block;
};

struct TileKernels {
  const char* name;

  // c(i, j) (+)= sum_k a(i, k) b(k, j) for i < m, j < kPanel; b is a panel
  // [k, kPanel], c(i, j) lies at c[i * c_row + j].
  void (*multiply)(const TileLeft& a, const float* b, int64_t m, int64_t k,
                   bool adds, float* c, int64_t c_row);

  // panel(c, j) = panel(c, j) * scale[c] + bias[c]; each may be null.
  void (*affine)(float* panel, int64_t count, const float* scale,
                 const float* bias);

  // top[j] = max(top[j], max_c panel(c, j)), NaN left out.
  void (*column_max)(const float* panel, int64_t count, float* top);

  // panel(c, j) = exp(panel(c, j) - shift[j]), at most 1; sums[j] += those of
  // a column, of 16 rows in float, of these in double.
  void (*exponentials)(float* panel, int64_t count, const float* shift,
                       double* sums);

  // to(c, j) = panel(c, j) * scale[j] - lift[j].
  void (*scale)(const float* panel, int64_t count, const float* scale,
                const float* lift, float* to);

  // sum_c exp(logits[c] - top), where no logit is above top. A float sum of 16
  // numbers for each lane and of those a double one, a relative error below
  // 5e-7 however they fall: float alone is off by 3e-4 over millions of
  // classes.
  double (*sum_of_exp)(const float* logits, int64_t count, float top);

  // grad[c] = upstream * exp(logits[c] - logsumexp), at most upstream; grad may
  // be the logits.
  void (*softmax_row)(const float* logits, int64_t count, float logsumexp,
                      float upstream, float* grad);
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TILE_KERNELS_H_
