// What the parts of a selection of active classes (active_classes.cu.h) share.
#ifndef TFXCLASS_KERNELS_ACTIVE_STEP_CU_H_
#define TFXCLASS_KERNELS_ACTIVE_STEP_CU_H_

#include "core/philox.h"
#include "kernels/active_classes.cu.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"

namespace tfxclass {

// Where the random numbers of each part begin: none is used twice. Draws begin
// at 0.
constexpr uint64_t kOfCandidates = uint64_t{1} << 62;
constexpr uint64_t kOfRings = uint64_t{1} << 61;

__device__ inline Philox RandomOf(const GpuActiveOptions& options,
                                  uint64_t block) {
  Philox random(options.seed, options.stream);
  random.Seek(block);
  return random;
}

// Ids, rising: those that are none (-1) come last.
struct SortedIds {
  const int64_t* ids;
  const int32_t* order;  // where each was
  int64_t count;

  __device__ bool IsFirst(int64_t i) const {
    return ids[i] >= 0 && (i == 0 || ids[i - 1] != ids[i]);
  }
  __device__ int64_t Place(int64_t id) const {
    // As unsigned, -1 is the greatest.
    return LowerBound(reinterpret_cast<const uint64_t*>(ids), count,
                      static_cast<uint64_t>(id));
  }
  __device__ bool Contains(int64_t id) const {
    const int64_t place = Place(id);
    return place < count && ids[place] == id;
  }
};

// One selection: what its parts read and write.
struct ActiveStep {
  GpuActiveOptions options;
  GpuActiveOutputs out;
  Scratch* scratch;
  GpuStream stream;

  // At least one block: each kernel's thread 0 has something to say.
  template <class... Params, class... Args>
  GpuStatus Over(int64_t count, void (*kernel)(Params...),
                 const Args&... args) const {
    return LaunchEach(kernel, count < 1 ? 1 : count, stream, args...);
  }

  GpuStatus Sort(const int64_t* ids, int64_t count, SortedIds* sorted) const {
    int64_t* const values = scratch->Get<int64_t>(count);
    int32_t* const order = scratch->Get<int32_t>(count);
    if (values == nullptr || order == nullptr) return kNoScratch;
    *sorted = {values, order, count};
    return SortRows(ids, count, options.num_classes, values, order, scratch,
                    stream);
  }

  GpuStatus Sums(const int32_t* flags, int64_t count, int64_t** sums) const {
    *sums = scratch->Get<int64_t>(count + 1);
    if (*sums == nullptr) return kNoScratch;
    return RunningSums(flags, count, *sums, scratch, stream);
  }
};

// Fills `out.ids` behind the targets and candidates that are there, and writes
// the expected counts of all.
GpuStatus FillActiveClasses(const ActiveStep& step, const SortedIds& targets);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ACTIVE_STEP_CU_H_
