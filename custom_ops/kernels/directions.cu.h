// The directions of rows in 8 bits a number, as core/forest_rows.h rounds them.
#ifndef TFXCLASS_KERNELS_DIRECTIONS_CU_H_
#define TFXCLASS_KERNELS_DIRECTIONS_CU_H_

#include "kernels/cuda_launch.h"

namespace tfxclass {

// rows [count, dim]; to [count, padded], 0 past a row's numbers. Equal to the
// processor's: a quotient, products, and no sum. Sets *not_finite to 1, and
// leaves a row out, where its squared norm is not finite.
GpuStatus RoundDirections(const float* rows, int64_t count, int64_t dim,
                          int64_t padded, float levels, int8_t* to,
                          int32_t* not_finite, GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_DIRECTIONS_CU_H_
