#include "kernels/active_classes.cu.h"

#include "kernels/active_step.cu.h"

namespace tfxclass {
namespace {

// Kernels have a thread for each id, unless they say otherwise.

// flags: the first occurrence of each distinct id, where it was.
__global__ void FlagFirstKernel(SortedIds sorted, int32_t* flags) {
  const int64_t i = ThreadNumber();
  if (i < sorted.count) flags[sorted.order[i]] = sorted.IsFirst(i);
}

// places: distinct targets before each, where it was.
__global__ void PlaceTargetsKernel(SortedIds sorted, const int64_t* places,
                                   GpuActiveOptions options,
                                   GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  if (i == 0) out.counts[0] = places[sorted.count];
  if (i >= sorted.count) return;
  const int64_t id = sorted.ids[i];
  const int32_t at = sorted.order[i];
  if (id < 0) {
    out.positions[at] = -1;
    return;
  }
  const int64_t place = places[sorted.order[sorted.Place(id)]];
  out.positions[at] = place;
  if (place < options.num_sampled) out.ids[place] = id;
}

// flags: candidates that are no targets, once each, by rising id; scores: the
// greatest of their occurrences.
__global__ void FlagCandidatesKernel(SortedIds sorted, SortedIds targets,
                                     const float* scores, int32_t* flags,
                                     float* greatest) {
  const int64_t i = ThreadNumber();
  if (i >= sorted.count) return;
  const bool is_new = sorted.IsFirst(i) && !targets.Contains(sorted.ids[i]);
  flags[sorted.order[i]] = is_new;
  float score = scores[sorted.order[i]];
  for (int64_t j = i + 1;
       is_new && j < sorted.count && sorted.ids[j] == sorted.ids[i]; ++j) {
    score = max(score, scores[sorted.order[j]]);
  }
  greatest[i] = score;
}

// keys that rise as (score + Gumbel noise) falls; those not new come last.
__global__ void CandidateKeysKernel(SortedIds sorted, const int32_t* flags,
                                    const float* scores,
                                    GpuActiveOptions options, uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i >= sorted.count) return;
  if (!flags[sorted.order[i]]) {
    keys[i] = uint64_t{1} << 32;
    return;
  }
  float score = scores[i];
  if (options.sample_overflow) {
    Philox random = RandomOf(options, kOfCandidates + i);
    score -= static_cast<float>(log(-log(random.Uniform())));
  }
  keys[i] = static_cast<uint32_t>(~OrderedBits(score));
}

// Candidates in the order they came where all fit, else the best ones, best
// first. num_new: distinct candidates before each, where it was.
__global__ void PlaceCandidatesKernel(SortedIds sorted, const int32_t* flags,
                                      const int64_t* num_new,
                                      const int32_t* best,
                                      GpuActiveOptions options,
                                      GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  const int64_t num_targets = out.counts[0];
  const int64_t room =
      CandidateRoom(options.num_sampled - num_targets, options.candidate_share);
  const int64_t found = num_new[sorted.count];
  if (i == 0) out.counts[1] = min(found, room);
  if (i >= sorted.count) return;
  if (found <= room) {
    const int32_t at = sorted.order[i];
    if (flags[at]) out.ids[num_targets + num_new[at]] = sorted.ids[i];
  } else if (i < room) {
    out.ids[num_targets + i] = sorted.ids[best[i]];
  }
}

GpuStatus PlaceTargets(const ActiveStep& step, const GpuActiveInputs& in,
                       SortedIds* targets) {
  const int64_t count = in.num_targets;
  int32_t* const flags = step.scratch->Get<int32_t>(count);
  int64_t* places;
  if (flags == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sort(in.targets, count, targets));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      step.Over(count, FlagFirstKernel, *targets, flags));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sums(flags, count, &places));
  return step.Over(count, PlaceTargetsKernel, *targets, places, step.options,
                   step.out);
}

GpuStatus PlaceCandidates(const ActiveStep& step, const GpuActiveInputs& in,
                          const SortedIds& targets) {
  const int64_t count = in.num_candidates;
  if (count == 0) return nullptr;
  SortedIds sorted;
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sort(in.candidates, count, &sorted));
  int32_t* const flags = step.scratch->Get<int32_t>(count);
  int32_t* const best = step.scratch->Get<int32_t>(count);
  float* const scores = step.scratch->Get<float>(count);
  uint64_t* const keys = step.scratch->Get<uint64_t>(count);
  uint64_t* const sorted_keys = step.scratch->Get<uint64_t>(count);
  int64_t* num_new;
  if (flags == nullptr || best == nullptr || scores == nullptr ||
      keys == nullptr || sorted_keys == nullptr) {
    return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Over(count, FlagCandidatesKernel, sorted,
                                         targets, in.scores, flags, scores));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sums(flags, count, &num_new));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Over(count, CandidateKeysKernel, sorted,
                                         flags, scores, step.options, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      SortKeys(keys, count, 33, sorted_keys, best, step.scratch, step.stream));
  return step.Over(count, PlaceCandidatesKernel, sorted, flags, num_new, best,
                   step.options, step.out);
}

}  // namespace

GpuStatus SelectActiveClasses(const GpuActiveOptions& options,
                              const GpuActiveInputs& inputs,
                              const GpuActiveOutputs& outputs, Scratch* scratch,
                              GpuStream stream) {
  const ActiveStep step = {options, outputs, scratch, stream};
  SortedIds targets;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(outputs.ids, 0xff, options.num_sampled * 8, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(outputs.counts, 0, 3 * sizeof(int64_t), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(PlaceTargets(step, inputs, &targets));
  TFXCLASS_RETURN_IF_GPU_ERROR(PlaceCandidates(step, inputs, targets));
  return FillActiveClasses(step, targets);
}

}  // namespace tfxclass
