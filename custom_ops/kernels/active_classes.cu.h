// The classes a training step computes (core/active_classes.h), on the device.
//
// The same law as on the processor, from other random numbers: ids come in the
// same order (targets by first appearance, candidates, fill), but equal scores
// keep the lower id, and another fill is drawn. A function of the seed alone.
//
// Time: sorts of the targets, of the candidates and of 4 num_sampled + 256
// draws; for a fill by a law, or of more than half of the classes, a sort of
// num_classes keys instead: a ring for each class, of which the first are
// taken.
#ifndef TFXCLASS_KERNELS_ACTIVE_CLASSES_CU_H_
#define TFXCLASS_KERNELS_ACTIVE_CLASSES_CU_H_

#include "core/candidate_room.h"
#include "core/fill_law.h"
#include "kernels/cuda_launch.h"

namespace tfxclass {

struct GpuActiveOptions {
  int64_t num_classes = 0, num_sampled = 0;
  float candidate_share = 1.0f;
  FillLaw fill = FillLaw::kUniform;
  const double* cumulative = nullptr;  // on the device
  bool sample_overflow = true;
  uint64_t seed = 0, stream = 0;
};

// Ids below 0 in targets [num_targets] and candidates [num_candidates] are
// padding, and so are those of num_classes or more.
struct GpuActiveInputs {
  const int64_t* targets;
  int64_t num_targets;
  const int64_t* candidates;
  const float* scores;
  int64_t num_candidates;
};

struct GpuActiveOutputs {
  int64_t* ids;                      // [num_sampled]
  float* log_expected_count;         // [num_sampled]
  int64_t* positions;                // [num_targets]
  float* target_log_expected_count;  // [num_targets]
  // Distinct targets, candidates taken, ids in all. The result is no good
  // where the first is above num_sampled: call again with that many. The last
  // is num_sampled elsewhere.
  int64_t* counts;  // [3]
};

GpuStatus SelectActiveClasses(const GpuActiveOptions& options,
                              const GpuActiveInputs& inputs,
                              const GpuActiveOutputs& outputs, Scratch* scratch,
                              GpuStream stream);

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_ACTIVE_CLASSES_CU_H_
