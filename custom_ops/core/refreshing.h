// An index that follows the class rows while they are trained.
//
// Every `interval` steps what a build needs of the rows is copied and a new
// index is built from it by a thread of its own, while steps go on with the
// old one; the new one takes its place exactly `lag` steps later, waited for
// if need be. So what a step sees depends on the step number alone, never on
// timing. Memory: two indexes and the copy.
//
// What an index is, an Indexer tells. It has the types
//   Index    what queries use, immutable once built;
//   Options  of a build;
//   Source   what a build reads; kept, for fresh pages cost more than a copy;
// and the static functions
//   bool Take(const ClassRows& rows, const Options& options,
//             const std::shared_ptr<const Index>& latest,
//             const TouchedRows& touched, const ParallelFor& parallel,
//             Source* source)
//     copies, while training waits; false if the rows are not finite. `latest`
//     is the index before this one or null, `touched` what was marked since;
//   Index Build(Source* source, const ParallelFor& parallel);
//   std::string Write(const Index& index) and
//   bool Read(const char* data, size_t size, Index* index), false if the bytes
//     are no index.
//
// An index that could not be built (memory) leaves the old one in place and
// what was touched marked; the next Advance throws what that build threw.
//
// Thread-safe. The one place that starts a thread: a build of seconds must not
// hold a thread of the pool that the steps compute on.
#ifndef TFXCLASS_CORE_REFRESHING_H_
#define TFXCLASS_CORE_REFRESHING_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/sizes.h"
#include "core/touched_rows.h"

namespace tfxclass {

// The class matrix, [count, dim].
struct ClassRows {
  const float* values;
  int64_t count, dim;
};

template <typename Indexer>
class Refreshing {
 public:
  using Index = typename Indexer::Index;
  using Options = typename Indexer::Options;
  using Shared = std::shared_ptr<const Index>;

  // What is saved with a model. Ready and pending are empty where there is no
  // such index.
  struct State {
    std::string ready, pending;
    int64_t swap_at = 0, next_start = 0;
    std::vector<int64_t> touched;
  };

  ~Refreshing() {
    if (worker_.joinable()) worker_.join();
  }

  // The index that queries use; null before the first one is ready.
  Shared ready() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ready_;
  }

  // Rows that the step changes. Ids >= 0.
  void Mark(const int64_t* ids, int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    touched_.Mark(ids, count);
  }

  // Builds from all of these rows now. False if they are not finite.
  bool Build(const ClassRows& rows, const Options& options,
             const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    Drop();
    if (!Take(rows, options, nullptr, parallel)) return false;
    failure_.Run([&] {
      ready_ = std::make_shared<Index>(Indexer::Build(&source_, parallel));
    });
    if (failure_.thrown()) touched_.Merge(taken_);
    failure_.Rethrow();
    return true;
  }

  // Whether Advance reads rows at `step`.
  bool IsDue(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    return step >= next_start_;
  }

  // Swaps and starts what is due at `step`, 1 <= lag <= interval. False if
  // rows are not finite.
  bool Advance(int64_t step, int64_t interval, int64_t lag,
               const ClassRows& rows, const Options& options,
               const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pending_ && step >= swap_at_) {
      Join();
      if (pending_) ready_ = std::move(pending_);
      pending_ = nullptr;
    }
    if (step >= next_start_) Join();
    failure_.Rethrow();
    if (step < next_start_) return true;
    next_start_ = SaturatedAdd(step, interval);
    swap_at_ = SaturatedAdd(step, lag);
    if (!Take(rows, options, ready_, parallel)) return false;
    Start();
    return true;
  }

  State Save() {
    std::lock_guard<std::mutex> lock(mutex_);
    Join();  // a build that failed is not pending
    State state;
    if (ready_) state.ready = Indexer::Write(*ready_);
    if (pending_) state.pending = Indexer::Write(*pending_);
    state.swap_at = swap_at_;
    state.next_start = next_start_;
    state.touched = touched_.Ids();
    return state;
  }

  // False, with nothing changed, if the bytes are no index.
  bool Restore(const State& state) {
    Shared ready, pending;
    if (!ReadShared(state.ready, &ready) ||
        !ReadShared(state.pending, &pending)) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Drop();
    ready_ = std::move(ready);
    pending_ = std::move(pending);
    swap_at_ = state.swap_at;
    next_start_ = state.next_start;
    touched_.Clear();
    touched_.Mark(state.touched.data(), state.touched.size());
    return true;
  }

 private:
  static bool ReadShared(const std::string& bytes, Shared* index) {
    if (bytes.empty()) return true;
    auto read = std::make_shared<Index>();
    if (!Indexer::Read(bytes.data(), bytes.size(), read.get())) return false;
    *index = std::move(read);
    return true;
  }

  bool Take(const ClassRows& rows, const Options& options, const Shared& latest,
            const ParallelFor& parallel) {
    if (!Indexer::Take(rows, options, latest, touched_, parallel, &source_)) {
      return false;
    }
    taken_ = std::move(touched_);
    touched_.Clear();
    return true;
  }

  void Start() {
    const auto next = std::make_shared<Index>();
    const auto build = [this, next] {
      *next = Indexer::Build(&source_, SerialFor);
    };
    // Without a thread it fails as a build does.
    failure_.Run(
        [&] { worker_ = std::thread([this, build] { failure_.Run(build); }); });
    pending_ = next;
  }

  // Waits for the thread; its index is pending no more if it failed.
  void Join() {
    if (worker_.joinable()) worker_.join();
    if (pending_ == nullptr || !failure_.thrown()) return;
    pending_ = nullptr;
    touched_.Merge(taken_);
  }

  // Waits for the thread; what it made, or why not, is of no use any more.
  void Drop() {
    if (worker_.joinable()) worker_.join();
    pending_ = nullptr;
    failure_.Clear();
  }

  std::mutex mutex_;
  std::thread worker_;
  typename Indexer::Source source_;
  Shared ready_, pending_;
  FirstException failure_;  // of the thread
  TouchedRows touched_;
  TouchedRows taken_;  // touched before the last build began
  int64_t swap_at_ = 0, next_start_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_REFRESHING_H_
