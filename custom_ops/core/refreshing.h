// An index that follows the class rows while they are trained.
//
// The first step builds an index from the rows as they are. Every `interval`
// steps, or where it has drifted, what a build needs of the rows is copied and
// a new index is built from it by a thread of its own, while steps go on with
// the old one; the new one takes its place exactly `lag` steps later, waited
// for if need be. Where an index has parts (the trees of a forest), they are
// replaced one by one as they are built: of n parts the first i are there i lag
// / n steps after the begin. (An index of rows of another shape is swapped in
// whole.) So what a step sees depends on the step number alone, never on
// timing. Memory: two indexes and the copy; of an index with parts one and
// kPartsAhead parts and the copy, for the thread waits for what it has built to
// be swapped in. (A state that is saved has all of them, until the last is
// swapped in.)
//
// What an index is, an Indexer tells. It has the types
//   Index    what queries use, immutable once built;
//   Options  of a build;
//   Source   what a build reads; kept, for fresh pages cost more than a copy;
// and the static functions
//   bool Take(const Rows& rows, const Options& options,
//             const std::shared_ptr<const Index>& latest,
//             const TouchedRows& touched, const ParallelFor& parallel,
//             Source* source)
//     copies, while training waits; false if the rows are not finite, or could
//     not be read. `latest` is the index before this one or null, `touched`
//     what was marked since. Rows are ClassRows, or, where Take is a template,
//     those of a device (kernels/device_rows.h); both have a `count`;
//   Index Build(Source* source, const ParallelFor& parallel);
//   and, if it has parts that are built one after the other, InParts(source),
//   Begin(source), BuildPart(&source, part, parallel, &index),
//   NumParts(index), IsOfShape(latest, next), whether parts of one fit in the
//   other, and Replace(latest, next, n), `latest` with the first n parts of
//   `next`. In the background `parallel` can be cancelled, and a build should
//   not go on for more than some milliseconds without it;
//   int64_t NumRows(const Index& index);
//   std::string Write(const Index& index) and
//   bool Read(const char* data, size_t size, Index* index), false if the bytes
//     are no index.
//
// An index that could not be built (memory) leaves the old one in place and
// what was touched marked; the next Advance throws what that build threw.
//
// Thread-safe. To save takes the lock no longer than a copy of pointers and
// marks, whatever it waits for and writes. The one place that starts a thread:
// a build of seconds must not hold a thread of the pool that the steps compute
// on.
#ifndef TFXCLASS_CORE_REFRESHING_H_
#define TFXCLASS_CORE_REFRESHING_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/class_rows.h"
#include "core/parallel.h"
#include "core/sizes.h"
#include "core/touched_rows.h"

namespace tfxclass {

// When refreshes begin, 1 <= lag <= interval.
struct RefreshSteps {
  int64_t step, interval, lag;
  bool drifted = false;  // begin one now, unless one is under way
};

// Whether an Indexer has parts.
template <typename Indexer, typename = void>
struct HasParts : std::false_type {};
template <typename Indexer>
struct HasParts<Indexer, std::void_t<decltype(&Indexer::BuildPart)>>
    : std::true_type {};

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
    int64_t swap_at = 0, next_start = 0, begun = 0;
    std::vector<int64_t> touched;
  };

  // How many indexes were built, and the seconds that the last one took, what
  // it waited for left out.
  struct Times {
    int64_t count = 0;
    double seconds = 0;
  };

  // Parts that are built before those in front are swapped in.
  static constexpr int64_t kPartsAhead = 2;

  ~Refreshing() { Drop(); }

  // The index that queries use; null before the first one is ready.
  Shared ready() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ready_;
  }

  Times times() {
    std::lock_guard<std::mutex> lock(parts_mutex_);
    return times_;
  }

  // Class rows of the index; 0 without one.
  int64_t num_rows() {
    std::lock_guard<std::mutex> lock(mutex_);
    return HasIndex() ? num_rows_ : 0;
  }

  // Rows that the step changes, 0 <= ids < num_rows(). The first index reads
  // all rows: without one nothing is kept.
  void Mark(const int64_t* ids, int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (HasIndex()) touched_.Mark(ids, count);
  }

  // Builds from all of these rows now. False if Take is.
  template <class Rows = ClassRows>
  bool Build(const Rows& rows, const Options& options,
             const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    Drop();
    return BuildNow(rows, options, parallel);
  }

  // Swaps and starts what is due. Rows that are not finite start nothing: the
  // index stays as it is, and training goes on. False if there is no index yet
  // and rows are not finite. (It reads rows under the lock, and only where a
  // refresh begins: others may swap an index at any time, and with that make
  // one due.)
  template <class Rows = ClassRows>
  bool Advance(const RefreshSteps& steps, const Rows& rows,
               const Options& options, const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool begins = Begins(steps);
    Swap(steps.step);
    if (begins || !worker_.joinable()) {
      Join();
      failure_.Rethrow();
    }
    if (!begins) return true;
    next_start_ = SaturatedAdd(steps.step, steps.interval);
    if (!HasIndex()) return BuildNow(rows, options, parallel);
    begun_ = steps.step;
    swap_at_ = SaturatedAdd(steps.step, steps.lag);
    if (Take(rows, options, ready_, parallel)) Start();
    return true;
  }

  // The state as it is now, with the pending index as it will be: steps go on
  // while this waits for that.
  State Save() {
    State state;
    Shared ready;
    std::shared_ptr<Pending> pending;
    TouchedRows touched, taken;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!worker_.joinable()) Join();  // a build that failed is not pending
      ready = ready_;
      pending = pending_;
      state.swap_at = swap_at_;
      state.next_start = next_start_;
      // Where it is swapped in at once, no part is due before.
      state.begun = in_parts_ ? begun_ : swap_at_;
      touched = touched_;
      taken = taken_;
      if (pending) AllowParts(-1);
    }
    if (pending && !WaitFor(*pending)) {
      pending = nullptr;
      touched.Absorb(&taken);
    }
    if (ready) state.ready = Indexer::Write(*ready);
    if (pending) state.pending = Indexer::Write(pending->index);
    state.touched = touched.Ids();
    return state;
  }

  // False, with nothing changed, if the bytes are no index. Marks of rows that
  // the index does not have are left out. Without `in_parts` a pending index
  // that was saved amid its swap comes as a whole.
  bool Restore(const State& state, bool in_parts = true) {
    auto ready = std::make_shared<Index>();
    auto pending = std::make_shared<Pending>();
    if (!ReadIndex(state.ready, ready.get()) ||
        !ReadIndex(state.pending, &pending->index)) {
      return false;
    }
    pending->is_over = pending->is_built = true;
    std::lock_guard<std::mutex> lock(mutex_);
    Drop();
    num_rows_ = 0;
    ready_ = nullptr;
    if (!state.ready.empty()) {
      num_rows_ = Indexer::NumRows(*ready);
      ready_ = std::move(ready);
    }
    if (!state.pending.empty()) {
      num_rows_ = std::max(num_rows_, Indexer::NumRows(pending->index));
      pending_ = std::move(pending);
    }
    swap_at_ = state.swap_at;
    next_start_ = state.next_start;
    begun_ = state.begun;
    in_parts_ = in_parts;
    num_swapped_ = 0;  // what has been is replaced again by the same
    touched_.Clear();
    for (const int64_t id : state.touched) {
      if (id < num_rows_) touched_.Mark(&id, 1);
    }
    return true;
  }

 private:
  // The index that a thread builds.
  struct Pending {
    Index index;
    bool is_over = false, is_built = false;  // of parts_mutex_
  };

  static bool ReadIndex(const std::string& bytes, Index* index) {
    return bytes.empty() || Indexer::Read(bytes.data(), bytes.size(), index);
  }

  bool HasIndex() const { return ready_ != nullptr || pending_ != nullptr; }

  template <class Rows>
  bool Take(const Rows& rows, const Options& options, const Shared& latest,
            const ParallelFor& parallel) {
    if (!Indexer::Take(rows, options, latest, touched_, parallel, &source_)) {
      return false;
    }
    taken_.Absorb(&touched_);
    num_rows_ = rows.count;
    return true;
  }

  template <class Rows>
  bool BuildNow(const Rows& rows, const Options& options,
                const ParallelFor& parallel) {
    if (!Take(rows, options, nullptr, parallel)) return false;
    failure_.Run([&] {
      Record(SecondsOf([&] {
        ready_ = std::make_shared<Index>(Indexer::Build(&source_, parallel));
      }));
    });
    Join();
    failure_.Rethrow();
    taken_.Clear();
    return true;
  }

  bool Begins(const RefreshSteps& steps) const {
    const bool is_free = pending_ == nullptr || steps.step >= swap_at_;
    return !HasIndex() || steps.step >= next_start_ ||
           (steps.drifted && is_free);
  }

  // Parts of the pending index that are there at `step`.
  int64_t PartsDue(int64_t step, int64_t num_parts) const {
    if (step >= swap_at_) return num_parts;
    if (ready_ == nullptr || step <= begun_ || num_parts <= 1) return 0;
    const double done = static_cast<double>(step - begun_) /
                        (static_cast<double>(swap_at_) - begun_);
    return std::min<int64_t>(num_parts * done, num_parts - 1);
  }

  void Swap(int64_t step) {
    if (pending_ == nullptr) return;
    const int64_t num_parts = NumParts();
    const int64_t due = PartsDue(step, num_parts);
    if (due == num_parts) {
      Join();
      if (pending_ == nullptr) return;
      ready_ = Shared(pending_, &pending_->index);
      pending_ = nullptr;
      taken_.Clear();
    } else if (due > num_swapped_) {
      WaitForParts(due);
      if (failure_.thrown()) return Join();
      ReplaceParts(due);
      num_swapped_ = due;
    }
  }

  int64_t NumParts() const {
    if constexpr (HasParts<Indexer>::value) {
      if (in_parts_ && ready_ && Indexer::IsOfShape(*ready_, pending_->index)) {
        return Indexer::NumParts(pending_->index);
      }
    }
    return 1;
  }

  void ReplaceParts(int64_t num_parts) {
    if constexpr (HasParts<Indexer>::value) {
      ready_ = std::make_shared<Index>(
          Indexer::Replace(*ready_, pending_->index, num_parts));
    }
  }

  // Until the thread has built so many, or has failed.
  void WaitForParts(int64_t num_parts) {
    if (!worker_.joinable()) return;  // restored: all are there
    AllowParts(num_parts);
    std::unique_lock<std::mutex> lock(parts_mutex_);
    part_changed_.wait(
        lock, [&] { return num_built_ >= num_parts || failure_.thrown(); });
  }

  // Lets the thread build so many, and some ahead; without end if negative.
  // What was allowed stays so: Save may wait for it.
  void AllowParts(int64_t num_parts) {
    std::lock_guard<std::mutex> lock(parts_mutex_);
    num_allowed_ = std::max(
        num_allowed_, num_parts < 0 ? INT64_MAX : num_parts + kPartsAhead);
    part_changed_.notify_all();
  }

  // Until the thread is done with it. False if it could not be built.
  bool WaitFor(const Pending& pending) {
    std::unique_lock<std::mutex> lock(parts_mutex_);
    part_changed_.wait(lock, [&] { return pending.is_over; });
    return pending.is_built;
  }

  // What it throws, for want of memory or of a thread, fails as a build does.
  void Start() {
    num_swapped_ = num_built_ = 0;
    num_allowed_ = kPartsAhead;
    dropped_ = in_parts_ = false;
    failure_.Run([&] {
      const auto next = std::make_shared<Pending>();
      pending_ = next;
      const ParallelFor parallel = ParallelFor(SerialFor).Until(&dropped_);
      std::function<void()> build = [this, next, parallel] {
        Record(SecondsOf(
            [&] { next->index = Indexer::Build(&source_, parallel); }));
      };
      if constexpr (HasParts<Indexer>::value) {
        if (Indexer::InParts(source_)) {
          next->index = Indexer::Begin(source_);
          build = [this, next, parallel] {
            BuildParts(parallel, &next->index);
          };
          in_parts_ = true;
        }
      }
      worker_ = std::thread([this, next, build] {
        failure_.Run(build);
        std::lock_guard<std::mutex> lock(parts_mutex_);
        next->is_over = true;
        next->is_built = !failure_.thrown();
        part_changed_.notify_all();
      });
    });
  }

  void BuildParts(const ParallelFor& parallel, Index* next) {
    if constexpr (HasParts<Indexer>::value) {
      const int64_t num_parts = Indexer::NumParts(*next);
      double seconds = 0;
      for (int64_t part = 0; part < num_parts; ++part) {
        WaitToBuild(part);
        seconds += SecondsOf(
            [&] { Indexer::BuildPart(&source_, part, parallel, next); });
        std::lock_guard<std::mutex> lock(parts_mutex_);
        num_built_ = part + 1;
        part_changed_.notify_all();
      }
      Record(seconds);
    }
  }

  template <class Work>
  static double SecondsOf(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - begin;
    return taken.count();
  }

  void Record(double seconds) {
    std::lock_guard<std::mutex> lock(parts_mutex_);
    ++times_.count;
    times_.seconds = seconds;
  }

  // Waits for the parts before to be swapped in. Throws Cancelled if nobody
  // wants it.
  void WaitToBuild(int64_t part) {
    std::unique_lock<std::mutex> lock(parts_mutex_);
    part_changed_.wait(lock, [&] { return part < num_allowed_ || dropped_; });
    if (dropped_) throw Cancelled();
  }

  // Waits for the thread; its index is pending no more if it failed.
  void Join() {
    if (worker_.joinable()) {
      AllowParts(-1);
      worker_.join();
    }
    if (!failure_.thrown()) return;
    pending_ = nullptr;
    touched_.Absorb(&taken_);
  }

  // Cancels the thread; what it made, or why not, is of no use any more.
  void Drop() {
    if (worker_.joinable()) {
      {
        std::lock_guard<std::mutex> lock(parts_mutex_);
        dropped_ = true;
        part_changed_.notify_all();
      }
      worker_.join();
    }
    pending_ = nullptr;
    touched_.Absorb(&taken_);
    failure_.Clear();
  }

  std::mutex mutex_;
  std::thread worker_;
  typename Indexer::Source source_;
  Shared ready_;
  std::shared_ptr<Pending> pending_;
  int64_t num_rows_ = 0;    // that were taken last, or were restored
  FirstException failure_;  // of the thread
  TouchedRows touched_;
  TouchedRows taken_;  // that the pending index was built with
  int64_t swap_at_ = 0, next_start_ = 0, begun_ = 0;
  bool in_parts_ = true;     // the pending index is swapped in part by part
  int64_t num_swapped_ = 0;  // parts of it
  std::mutex parts_mutex_;   // of the rest
  std::condition_variable part_changed_;
  int64_t num_built_ = 0, num_allowed_ = 0;
  std::atomic<bool> dropped_{false};
  Times times_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_REFRESHING_H_
