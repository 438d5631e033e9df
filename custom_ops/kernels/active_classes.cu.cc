#include "kernels/active_classes.cu.h"

#include "core/philox.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/key_bits.cu.h"

namespace tfxclass {
namespace {

// Where the random numbers of each part begin: none is used twice.
constexpr uint64_t kOfCandidates = uint64_t{1} << 62;
constexpr uint64_t kOfRings = uint64_t{1} << 61;

__device__ Philox RandomOf(const GpuActiveOptions& options, uint64_t block) {
  Philox random(options.seed, options.stream);
  random.Seek(block);
  return random;
}

// Sorted rows: those that are none (-1) come last.
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
  const int64_t room = max(int64_t{0}, min(options.num_sampled - num_targets,
                                           options.max_candidates));
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
      return log1p(1.0 / (id + 1.0)) / log(options.num_classes + 1.0);
    case FillLaw::kFrequency:
      break;
  }
  const double before = id > 0 ? options.cumulative[id - 1] : 0.0;
  return (options.cumulative[id] - before) /
         options.cumulative[options.num_classes - 1];
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
    const double at = -log(random.UniformDouble()) / p;
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
  filled->log_rest = others > 0 ? log(others / rest) : 0.0;
  filled->log_target = log((others + 1) / (rest + 1));
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
  return p > 0 ? log(-expm1(-p * filled.time)) : without;
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

class Selection {
 public:
  Selection(const GpuActiveOptions& options, const GpuActiveInputs& inputs,
            const GpuActiveOutputs& outputs, Scratch* scratch, GpuStream stream)
      : options_(options),
        in_(inputs),
        out_(outputs),
        scratch_(scratch),
        stream_(stream) {}

  GpuStatus Run() {
    TFXCLASS_RETURN_IF_GPU_ERROR(
        FillBytes(out_.ids, 0xff, options_.num_sampled * 8, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        FillBytes(out_.counts, 0, 3 * sizeof(int64_t), stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(PlaceTargets());
    TFXCLASS_RETURN_IF_GPU_ERROR(PlaceCandidates());
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Sort(out_.ids, options_.num_sampled, &active_));
    filled_ = scratch_->Get<Filled>(1);
    if (filled_ == nullptr) return kNoScratch;
    const bool is_sparse = options_.fill == FillLaw::kUniform &&
                           options_.num_sampled <= options_.num_classes / 2;
    TFXCLASS_RETURN_IF_GPU_ERROR(is_sparse ? FillByDraws() : FillByRings());
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(options_.num_sampled, ClassCountsKernel, options_, filled_, out_));
    return Over(in_.num_targets, TargetCountsKernel, options_, filled_,
                targets_, out_);
  }

 private:
  // At least one block: each kernel's thread 0 has something to say.
  template <class... Params, class... Args>
  GpuStatus Over(int64_t count, void (*kernel)(Params...),
                 const Args&... args) {
    return LaunchEach(kernel, count < 1 ? 1 : count, stream_, args...);
  }

  GpuStatus Sort(const int64_t* ids, int64_t count, SortedIds* sorted) {
    int64_t* const values = scratch_->Get<int64_t>(count);
    int32_t* const order = scratch_->Get<int32_t>(count);
    if (values == nullptr || order == nullptr) return kNoScratch;
    *sorted = {values, order, count};
    return SortRows(ids, count, options_.num_classes, values, order, scratch_,
                    stream_);
  }

  GpuStatus Sums(const int32_t* flags, int64_t count, int64_t** sums) {
    *sums = scratch_->Get<int64_t>(count + 1);
    if (*sums == nullptr) return kNoScratch;
    return RunningSums(flags, count, *sums, scratch_, stream_);
  }

  GpuStatus PlaceTargets() {
    const int64_t count = in_.num_targets;
    int32_t* const flags = scratch_->Get<int32_t>(count);
    int64_t* places;
    if (flags == nullptr) return kNoScratch;
    TFXCLASS_RETURN_IF_GPU_ERROR(Sort(in_.targets, count, &targets_));
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, FlagFirstKernel, targets_, flags));
    TFXCLASS_RETURN_IF_GPU_ERROR(Sums(flags, count, &places));
    return Over(count, PlaceTargetsKernel, targets_, places, options_, out_);
  }

  GpuStatus PlaceCandidates() {
    const int64_t count = in_.num_candidates;
    if (count == 0) return nullptr;
    SortedIds sorted;
    TFXCLASS_RETURN_IF_GPU_ERROR(Sort(in_.candidates, count, &sorted));
    int32_t* const flags = scratch_->Get<int32_t>(count);
    int32_t* const best = scratch_->Get<int32_t>(count);
    float* const scores = scratch_->Get<float>(count);
    uint64_t* const keys = scratch_->Get<uint64_t>(count);
    uint64_t* const sorted_keys = scratch_->Get<uint64_t>(count);
    int64_t* num_new;
    if (flags == nullptr || best == nullptr || scores == nullptr ||
        keys == nullptr || sorted_keys == nullptr) {
      return kNoScratch;
    }
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, FlagCandidatesKernel, sorted,
                                      targets_, in_.scores, flags, scores));
    TFXCLASS_RETURN_IF_GPU_ERROR(Sums(flags, count, &num_new));
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, CandidateKeysKernel, sorted, flags,
                                      scores, options_, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        SortKeys(keys, count, 33, sorted_keys, best, scratch_, stream_));
    return Over(count, PlaceCandidatesKernel, sorted, flags, num_new, best,
                options_, out_);
  }

  // Each draw is new with probability 1/2 or more: that fewer than num_sampled
  // of these are has a probability below 1e-30.
  GpuStatus FillByDraws() {
    const int64_t count = 4 * options_.num_sampled + 256;
    int64_t* const draws = scratch_->Get<int64_t>(count);
    int32_t* const flags = scratch_->Get<int32_t>(count);
    int64_t* places;
    SortedIds sorted;
    if (draws == nullptr || flags == nullptr) return kNoScratch;
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, DrawKernel, options_, count, draws));
    TFXCLASS_RETURN_IF_GPU_ERROR(Sort(draws, count, &sorted));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, FlagNewKernel, sorted, active_, flags));
    TFXCLASS_RETURN_IF_GPU_ERROR(Sums(flags, count, &places));
    TFXCLASS_RETURN_IF_GPU_ERROR(Over(count, PlaceDrawsKernel, draws, flags,
                                      places, count, options_, out_));
    const uint64_t* const no_keys = nullptr;
    return Launch(FilledKernel, 1, 1, 0, stream_, options_, no_keys, out_,
                  filled_);
  }

  GpuStatus FillByRings() {
    const int64_t count = options_.num_classes;
    uint64_t* const keys = scratch_->Get<uint64_t>(count);
    uint64_t* const sorted = scratch_->Get<uint64_t>(count);
    int32_t* const order = scratch_->Get<int32_t>(count);
    if (keys == nullptr || sorted == nullptr || order == nullptr) {
      return kNoScratch;
    }
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(count, RingKernel, options_, active_, keys));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        SortKeys(keys, count, 64, sorted, order, scratch_, stream_));
    TFXCLASS_RETURN_IF_GPU_ERROR(
        Over(options_.num_sampled, PlaceRingsKernel, order, options_, out_));
    return Launch(FilledKernel, 1, 1, 0, stream_, options_, sorted, out_,
                  filled_);
  }

  const GpuActiveOptions options_;
  const GpuActiveInputs in_;
  const GpuActiveOutputs out_;
  Scratch* const scratch_;
  const GpuStream stream_;
  SortedIds targets_ = {}, active_ = {};
  Filled* filled_ = nullptr;
};

}  // namespace

GpuStatus SelectActiveClasses(const GpuActiveOptions& options,
                              const GpuActiveInputs& inputs,
                              const GpuActiveOutputs& outputs, Scratch* scratch,
                              GpuStream stream) {
  return Selection(options, inputs, outputs, scratch, stream).Run();
}

}  // namespace tfxclass
