// Which classes fill up a selection, and the expected counts of all.
#include "kernels/active_step.cu.h"

namespace tfxclass {
namespace {

// Kernels have a thread for each id, unless they say otherwise.

__global__ void DrawKernel(GpuActiveOptions options, int64_t count,
                           int64_t* draws) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  Philox random = RandomOf(options, i);
  draws[i] = random.Below(options.num_classes);
}

__global__ void FlagNewKernel(SortedIds draws, SortedIds active,
                              int32_t* flags) {
  const int64_t i = ThreadNumber();
  if (i >= draws.count) return;
  flags[draws.order[i]] = draws.IsFirst(i) && !active.Contains(draws.ids[i]);
}

// places: new draws before each.
__global__ void PlaceDrawsKernel(const int64_t* draws, const int32_t* flags,
                                 const int64_t* places, int64_t count,
                                 GpuActiveOptions options,
                                 GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  const int64_t chosen = out.counts[0] + out.counts[1];
  if (i == 0) out.counts[2] = min(chosen + places[count], options.num_sampled);
  if (i >= count || !flags[i]) return;
  const int64_t place = chosen + places[i];
  if (place < options.num_sampled) out.ids[place] = draws[i];
}

__device__ double Probability(const GpuActiveOptions& options, int64_t id) {
  switch (options.fill) {
    case FillLaw::kUniform:
      return 0;  // rings after all others, at random
    case FillLaw::kLogUniform:
      return LogUniformLaw(options.num_classes).Probability(id);
    case FillLaw::kFrequency:
      break;
  }
  return FrequencyLaw(options.cumulative, options.num_classes).Probability(id);
}

constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint64_t kLastRing = 0x7ff0000000000000u;  // the bits of infinity

// When each class rings, as bits that rise; classes without probability ring
// after infinity, in a random order, and active ones never. A thread a class.
__global__ void RingKernel(GpuActiveOptions options, SortedIds active,
                           uint64_t* keys) {
  const int64_t id = ThreadNumber();
  if (id >= options.num_classes) return;
  Philox random = RandomOf(options, kOfRings + id);
  const double p = Probability(options, id);
  uint64_t bits = kLastRing | random.Next64() >> 13;
  if (p > 0) {
    const double at = RingAfter(p, &random);
    memcpy(&bits, &at, sizeof(bits));
  }
  keys[id] = active.Contains(id) ? kNever : bits;
}

// What the fill did, for the counts.
struct Filled {
  double time;        // when the next class rang; infinity if none was left
  double log_rest;    // log count of what was filled without probability
  double log_target;  // of a target without probability
};

// One thread. keys: sorted, or null where the fill was drawn.
__global__ void FilledKernel(GpuActiveOptions options, const uint64_t* keys,
                             GpuActiveOutputs out, Filled* filled) {
  const int64_t chosen = out.counts[0] + out.counts[1];
  const int64_t wanted = max(int64_t{0}, options.num_sampled - chosen);
  int64_t rings = 0;
  double time = 0;
  if (keys != nullptr) {
    rings = LowerBound(keys, options.num_classes, kLastRing);
    const uint64_t next = wanted < options.num_classes ? keys[wanted] : kNever;
    const uint64_t bits = next < kLastRing ? next : kLastRing;
    memcpy(&time, &bits, sizeof(time));
    out.counts[2] = options.num_sampled;
  }
  const int64_t by_law = min(wanted, rings);
  const double others = wanted - by_law;
  const double rest = options.num_classes - chosen - by_law;
  filled->time = time;
  filled->log_rest = LogFilled(others, rest);
  filled->log_target = LogFilledOneMore(others, rest);
}

__global__ void PlaceRingsKernel(const int32_t* order, GpuActiveOptions options,
                                 GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  const int64_t place = out.counts[0] + out.counts[1] + i;
  if (place < options.num_sampled) out.ids[place] = order[i];
}

__device__ float LogCount(const GpuActiveOptions& options, const Filled& filled,
                          int64_t id, double without) {
  const double p = Probability(options, id);
  return p > 0 ? LogRung(p, filled.time) : without;
}

// A thread for each active class.
__global__ void ClassCountsKernel(GpuActiveOptions options, Filled* filled,
                                  GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  if (i >= options.num_sampled) return;
  const bool is_filled = i >= out.counts[0] + out.counts[1];
  out.log_expected_count[i] =
      is_filled && i < out.counts[2]
          ? LogCount(options, *filled, out.ids[i], filled->log_rest)
          : 0.0f;
}

// A thread for each target; 0 for those that occur twice and for padding.
__global__ void TargetCountsKernel(GpuActiveOptions options, Filled* filled,
                                   SortedIds targets, GpuActiveOutputs out) {
  const int64_t i = ThreadNumber();
  if (i >= targets.count) return;
  const int64_t id = targets.ids[i];
  const bool once = id >= 0 && targets.IsFirst(i) &&
                    (i + 1 == targets.count || targets.ids[i + 1] != id);
  out.target_log_expected_count[targets.order[i]] =
      once ? LogCount(options, *filled, id, filled->log_target) : 0.0f;
}

// Each draw is new with probability 1/2 or more: that fewer than num_sampled
// of these are has a probability below 1e-30.
GpuStatus FillByDraws(const ActiveStep& step, const SortedIds& active,
                      Filled* filled) {
  const int64_t count = 4 * step.options.num_sampled + 256;
  int64_t* const draws = step.scratch->Get<int64_t>(count);
  int32_t* const flags = step.scratch->Get<int32_t>(count);
  int64_t* places;
  SortedIds sorted;
  if (draws == nullptr || flags == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      step.Over(count, DrawKernel, step.options, count, draws));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sort(draws, count, &sorted));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      step.Over(count, FlagNewKernel, sorted, active, flags));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Sums(flags, count, &places));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Over(count, PlaceDrawsKernel, draws, flags,
                                         places, count, step.options,
                                         step.out));
  const uint64_t* const no_keys = nullptr;
  return Launch(FilledKernel, 1, 1, 0, step.stream, step.options, no_keys,
                step.out, filled);
}

GpuStatus FillByRings(const ActiveStep& step, const SortedIds& active,
                      Filled* filled) {
  const int64_t count = step.options.num_classes;
  uint64_t* const keys = step.scratch->Get<uint64_t>(count);
  uint64_t* const sorted = step.scratch->Get<uint64_t>(count);
  int32_t* const order = step.scratch->Get<int32_t>(count);
  if (keys == nullptr || sorted == nullptr || order == nullptr) {
    return kNoScratch;
  }
  TFXCLASS_RETURN_IF_GPU_ERROR(
      step.Over(count, RingKernel, step.options, active, keys));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      SortKeys(keys, count, 64, sorted, order, step.scratch, step.stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Over(step.options.num_sampled,
                                         PlaceRingsKernel, order, step.options,
                                         step.out));
  return Launch(FilledKernel, 1, 1, 0, step.stream, step.options, sorted,
                step.out, filled);
}

}  // namespace

GpuStatus FillActiveClasses(const ActiveStep& step, const SortedIds& targets) {
  const GpuActiveOptions& options = step.options;
  SortedIds active;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      step.Sort(step.out.ids, options.num_sampled, &active));
  Filled* const filled = step.scratch->Get<Filled>(1);
  if (filled == nullptr) return kNoScratch;
  const bool is_sparse = options.fill == FillLaw::kUniform &&
                         options.num_sampled <= options.num_classes / 2;
  TFXCLASS_RETURN_IF_GPU_ERROR(is_sparse ? FillByDraws(step, active, filled)
                                         : FillByRings(step, active, filled));
  TFXCLASS_RETURN_IF_GPU_ERROR(step.Over(options.num_sampled, ClassCountsKernel,
                                         options, filled, step.out));
  return step.Over(targets.count, TargetCountsKernel, options, filled, targets,
                   step.out);
}

}  // namespace tfxclass
