#include "kernels/row_runs.cu.h"

#include "kernels/cuda_sort.cu.h"

namespace tfxclass {
namespace {

// A thread for each sorted id.
__global__ void FlagRunsKernel(const int64_t* sorted, int64_t n,
                               int32_t* flags) {
  const int64_t i = ThreadNumber();
  if (i >= n) return;
  flags[i] = sorted[i] >= 0 && (i == 0 || sorted[i - 1] != sorted[i]);
}

}  // namespace

GpuStatus FindRuns(const int64_t* ids, int64_t n, int64_t bound, Runs* runs,
                   Scratch* scratch, GpuStream stream) {
  runs->sorted = scratch->Get<int64_t>(n);
  runs->order = scratch->Get<int32_t>(n);
  if (runs->sorted == nullptr || runs->order == nullptr) return kNoScratch;
  return SortRows(ids, n, bound, runs->sorted, runs->order, scratch, stream);
}

GpuStatus NumberRuns(const Runs& runs, int64_t n, int64_t** places,
                     int64_t* num_runs, Scratch* scratch, GpuStream stream) {
  int32_t* flags = scratch->Get<int32_t>(n);
  *places = scratch->Get<int64_t>(n + 1);
  if (flags == nullptr || *places == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      LaunchEach(FlagRunsKernel, n, stream, runs.sorted, n, flags));
  TFXCLASS_RETURN_IF_GPU_ERROR(RunningSums(flags, n, *places, scratch, stream));
  return CopyOnDevice(num_runs, *places + n, sizeof(*num_runs), stream);
}

}  // namespace tfxclass
