// When an index is refreshed, from which rows, and what is marked meanwhile.
#include "core/refreshing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

// A row of which no index can be built.
constexpr float kTooLarge = 13;

// An "index" that notes what its build was given.
struct NotesIndexer {
  struct Index {
    double first = 0;
    int64_t option = 0;
    bool has_latest = false;
    std::vector<int64_t> touched;
  };
  using Options = int64_t;
  using Source = Index;

  static bool Take(const ClassRows& rows, const Options& options,
                   const std::shared_ptr<const Index>& latest,
                   const TouchedRows& touched, const ParallelFor&,
                   Source* source) {
    *source = {rows.values[0], options, latest != nullptr, touched.Ids()};
    return rows.values[0] >= 0;
  }
  static Index Build(Source* source, const ParallelFor&) {
    if (source->first == kTooLarge) throw std::bad_alloc();
    return *source;
  }
  static int64_t NumRows(const Index&) { return 1000; }
  static std::string Write(const Index& index) {
    return std::string(1, static_cast<char>(index.option));
  }
  static bool Read(const char* data, size_t size, Index* index) {
    index->option = data[0];
    return size == 1;
  }
};

struct Steps {
  Refreshing<NotesIndexer> index;
  float row = 0;

  bool Advance(int64_t step, int64_t interval, int64_t lag) {
    return index.Advance({step, interval, lag}, {&row, 1, 1}, step, SerialFor);
  }
};

// The first is there at once; one begun at 5, 10, ... two steps later.
void SwapsAfterTheLag() {
  Steps steps;
  for (int64_t step = 0; step < 20; ++step) {
    steps.row = step;
    CHECK(steps.Advance(step, 5, 2));
    const auto ready = steps.index.ready();
    const int64_t begun = step < 7 ? 0 : (step - 2) / 5 * 5;
    CHECK(ready->option == begun && ready->first == begun);
    CHECK(ready->has_latest == (begun > 0));
  }
}

bool Throws(Steps* steps, int64_t step) {
  try {
    steps->Advance(step, 4, 2);
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

// It is told where it would have been swapped in, once; the rows that it was
// to take are touched still.
void AFailedBuildLeavesTheOldIndex() {
  Steps steps;
  const std::vector<int64_t> before = {3}, after = {5}, both = {3, 5};
  CHECK(!Throws(&steps, 0) && !Throws(&steps, 2));
  steps.index.Mark(before.data(), 1);
  steps.row = kTooLarge;
  CHECK(!Throws(&steps, 4));
  steps.index.Mark(after.data(), 1);
  steps.row = 1;
  CHECK(Throws(&steps, 6) && !Throws(&steps, 7));
  CHECK(steps.index.ready()->option == 0);
  const auto state = steps.index.Save();
  CHECK(state.pending.empty() && state.touched == both);
  CHECK(!Throws(&steps, 8) && !Throws(&steps, 10));
  CHECK(steps.index.ready()->option == 8);
  CHECK(steps.index.ready()->touched == both);
}

void ABuildOfNowThatFailsLeavesTheOldIndex() {
  Steps steps;
  const float too_large = kTooLarge;
  const int64_t id = 9;
  CHECK(steps.index.Build({&steps.row, 1, 1}, 7, SerialFor));
  steps.index.Mark(&id, 1);
  bool thrown = false;
  try {
    steps.index.Build({&too_large, 1, 1}, 8, SerialFor);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown && steps.index.ready()->option == 7);
  CHECK(steps.index.Save().touched == std::vector<int64_t>{9});
}

void MarksGoToTheNextBuildAndAreSaved() {
  Steps steps;
  const std::vector<int64_t> ids = {200, 3, 64, 3, 0};
  const std::vector<int64_t> rising = {0, 3, 64, 200};
  CHECK(steps.Advance(0, 4, 4));
  steps.index.Mark(ids.data(), ids.size());
  const auto state = steps.index.Save();
  CHECK(state.touched == rising);
  Steps other;
  CHECK(other.index.Restore(state));
  for (Steps* each : {&steps, &other}) {
    CHECK(each->Advance(4, 4, 4));
    CHECK(each->index.Save().touched.empty());
    CHECK(each->Advance(8, 4, 4));
    CHECK(each->index.ready()->touched == rising);
  }
}

// Rows that are not finite make no index; what was marked stays marked.
void ARefusedBuildChangesNothing() {
  Steps steps;
  CHECK(steps.index.Build({&steps.row, 1, 1}, 7, SerialFor));
  const int64_t id = 9;
  steps.index.Mark(&id, 1);
  steps.row = -1;
  CHECK(steps.Advance(0, 4, 4));
  CHECK(!steps.index.Build({&steps.row, 1, 1}, 8, SerialFor));
  CHECK(steps.index.ready()->option == 7);
  CHECK(steps.index.Save().touched == std::vector<int64_t>{9});
  CHECK(!steps.index.Restore({"too long", "", 0, 0, 0, {}}));
  CHECK(steps.index.ready()->option == 7);
}

// Rows that count how often they are read, and cannot be where `fail`.
struct CountedRows {
  int64_t count = 1;
  bool fail = false;
  mutable int times = 0;
};

struct CountingIndexer : NotesIndexer {
  static bool Take(const CountedRows& rows, const Options& options,
                   const std::shared_ptr<const Index>& /*latest*/,
                   const TouchedRows& touched, const ParallelFor&,
                   Source* source) {
    ++rows.times;
    *source = {3, options, true, touched.Ids()};
    return !rows.fail;
  }
};

// A later step, of another worker, has swapped the index that stood in the way
// of a drift's: whether rows are read is decided when the refresh begins.
void RowsAreReadWhereARefreshBegins() {
  Refreshing<CountingIndexer> index;
  const auto advance = [&](int64_t step, bool drifted, bool fail) {
    const CountedRows rows = {1, fail};
    CHECK(index.Advance({step, 100, 2, drifted}, rows, step, SerialFor));
    return rows.times;
  };
  CHECK(!index.Advance({0, 100, 2}, CountedRows{1, true}, 0, SerialFor));
  CHECK(advance(0, false, false) == 1);
  CHECK(advance(1, true, false) == 1);
  CHECK(advance(2, true, false) == 0);
  CHECK(advance(3, false, false) == 0 && index.ready()->option == 1);
  const std::vector<int64_t> marked = {9};
  index.Mark(marked.data(), 1);
  CHECK(advance(2, true, true) == 1);  // asked for again, of no effect
  CHECK(index.Save().pending.empty() && index.ready()->option == 1);
  CHECK(index.Save().touched == marked);
  CHECK(advance(2, true, false) == 1);
  CHECK(advance(4, false, false) == 0 && index.ready()->option == 2);
  CHECK(index.ready()->touched == marked);
}

// Its index cannot be made where `no_memory`, before a thread has begun.
struct FussyIndexer : NotesIndexer {
  static bool no_memory;
  struct Index : NotesIndexer::Index {
    Index() {
      if (no_memory) throw std::bad_alloc();
    }
    explicit Index(const NotesIndexer::Index& notes)
        : NotesIndexer::Index(notes) {}
  };
  static Index Build(Source* source, const ParallelFor& parallel) {
    return Index(NotesIndexer::Build(source, parallel));
  }
};
bool FussyIndexer::no_memory = false;

// What cannot begin fails as a build does; its marks go to the next one.
void ABeginThatFailsKeepsItsMarks() {
  Refreshing<FussyIndexer> index;
  const float row = 0;
  const std::vector<int64_t> marked = {9};
  const auto advance = [&](int64_t step) {
    return index.Advance({step, 4, 2}, {&row, 1, 1}, step, SerialFor);
  };
  CHECK(advance(0));
  index.Mark(marked.data(), 1);
  FussyIndexer::no_memory = true;
  CHECK(advance(4));
  FussyIndexer::no_memory = false;
  bool thrown = false;
  try {
    advance(5);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown && index.Save().touched == marked);
  CHECK(index.Save().pending.empty() && index.ready()->option == 0);
  CHECK(advance(8) && advance(10) && index.ready()->touched == marked);
}

// Nothing is built from the rows that the dropped one was to take.
void ABuildThatIsRefusedKeepsTheMarksOfADroppedOne() {
  Steps steps;
  const std::vector<int64_t> marked = {9};
  CHECK(steps.Advance(0, 4, 2));
  steps.index.Mark(marked.data(), 1);
  CHECK(steps.Advance(4, 4, 2));
  CHECK(steps.index.Save().touched.empty());
  const float refused = -1;
  CHECK(!steps.index.Build({&refused, 1, 1}, 8, SerialFor));
  CHECK(steps.index.Save().touched == marked);
}

// Training goes on with the index that there is; without one it is told.
void RowsThatAreNotFiniteStartNothing() {
  Steps steps;
  const std::vector<int64_t> marked = {9};
  steps.row = -1;
  CHECK(!steps.Advance(0, 4, 2));
  steps.row = 1;
  CHECK(steps.Advance(1, 4, 2));
  steps.index.Mark(marked.data(), 1);
  steps.row = -1;
  for (int64_t step = 5; step < 9; ++step) {
    CHECK(steps.Advance(step, 4, 2));
    CHECK(steps.index.ready()->option == 1);
  }
  CHECK(steps.index.Save().pending.empty());
  CHECK(steps.index.Save().touched == marked);
  steps.row = 2;
  CHECK(steps.Advance(9, 4, 2) && steps.Advance(11, 4, 2));
  CHECK(steps.index.ready()->option == 9);
  CHECK(steps.index.ready()->touched == marked);
}

void TouchedRowsAreASet() {
  TouchedRows touched;
  CHECK(!touched.Contains(5) && touched.Ids().empty());
  const std::vector<int64_t> ids = {5, 63, 64, 1000};
  touched.Mark(ids.data(), ids.size());
  touched.Mark(ids.data(), 2);
  for (const int64_t id : ids) CHECK(touched.Contains(id));
  CHECK(!touched.Contains(6) && !touched.Contains(100000));
  CHECK(touched.Ids() == ids);
  CHECK(touched.Ids(64) == std::vector<int64_t>({5, 63}));
  CHECK(touched.Ids(5).empty());
  TouchedRows other, more;
  const int64_t few[] = {6}, many[] = {2000};
  other.Mark(few, 1);
  more.Mark(many, 1);
  touched.Absorb(&other);
  touched.Absorb(&more);
  CHECK(touched.Ids() == std::vector<int64_t>({5, 6, 63, 64, 1000, 2000}));
  CHECK(other.Ids().empty() && more.Ids().empty());
  touched.Clear();
  CHECK(touched.Ids().empty());
}

// Marks of rows that the restored index does not have would take their memory.
void MarksWithoutARowAreLeftOut() {
  Steps steps;
  const std::vector<int64_t> ids = {3, 999, 1000, int64_t{1} << 30};
  CHECK(steps.index.num_rows() == 0);
  steps.index.Mark(ids.data(), ids.size());
  CHECK(steps.index.Save().touched.empty());
  CHECK(steps.Advance(0, 4, 4) && steps.index.num_rows() == 1);
  CHECK(steps.index.Restore({"", "", 0, 0, 0, ids}));
  CHECK(steps.index.num_rows() == 0 && steps.index.Save().touched.empty());
  CHECK(steps.index.Restore({"a", "", 0, 0, 0, ids}));
  CHECK(steps.index.num_rows() == 1000);
  CHECK(steps.index.Save().touched == std::vector<int64_t>({3, 999}));
}

// Closed, it keeps those who pass it waiting, for some seconds at most.
class Gate {
 public:
  void Close() { open_ = false; }
  void Open() { open_ = true; }
  bool reached() const { return reached_; }
  bool timed_out() const { return timed_out_; }

  // check() may throw.
  template <class Check>
  void Pass(const Check& check) {
    reached_ = true;
    for (int i = 0; !open_ && i < 5000; ++i) {
      check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!open_) timed_out_ = true;
  }
  void Pass() {
    Pass([] {});
  }
  void Await() const {
    while (!reached_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> open_{true}, reached_{false}, timed_out_{false};
};

// It passes a gate where it is built in the background, and where written.
struct GatedIndexer : NotesIndexer {
  struct Gates {
    Gate build, write;
  };
  struct Index {
    Gates* gates = nullptr;
  };
  using Options = Gates*;
  using Source = Index;

  static bool Take(const ClassRows&, const Options& gates,
                   const std::shared_ptr<const Index>&, const TouchedRows&,
                   const ParallelFor&, Source* source) {
    *source = {gates};
    return true;
  }
  static Index Build(Source* source, const ParallelFor& parallel) {
    source->gates->build.Pass([&] { parallel.Check(); });
    return *source;
  }
  static int64_t NumRows(const Index&) { return 1; }
  static std::string Write(const Index& index) {
    index.gates->write.Pass();
    return "x";
  }
  static bool Read(const char*, size_t, Index*) { return true; }
};

// Steps go on while another thread saves: while it waits for a build, and while
// it writes.
void NobodyWaitsForASave() {
  for (const bool is_building : {false, true}) {
    GatedIndexer::Gates gates;
    Gate* const gate = is_building ? &gates.build : &gates.write;
    Refreshing<GatedIndexer> index;
    const float row = 0;
    const auto advance = [&](int64_t step) {
      return index.Advance({step, 8, 8}, {&row, 1, 1}, &gates, SerialFor);
    };
    const int64_t id = 0;
    CHECK(advance(0));
    gate->Close();
    CHECK(advance(8));
    Refreshing<GatedIndexer>::State state;
    std::thread saver([&] { state = index.Save(); });
    gate->Await();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int64_t step = 9; step < 16; ++step) {
      CHECK(advance(step) && index.ready() != nullptr);
      index.Mark(&id, 1);
    }
    CHECK(!gate->timed_out());
    gate->Open();
    saver.join();
    CHECK(state.ready == "x" && state.pending == "x" && state.swap_at == 16);
    CHECK(advance(16));
  }
}

// Nothing waits for a build that nobody wants any more.
void ABuildIsCancelled() {
  GatedIndexer::Gates gates;
  const float row = 0;
  Refreshing<GatedIndexer>::State state;
  std::thread saver;
  {
    Refreshing<GatedIndexer> index;
    for (const int64_t step : {0, 8}) {
      CHECK(index.Advance({step, 8, 8}, {&row, 1, 1}, &gates, SerialFor));
      gates.build.Close();
    }
    saver = std::thread([&] { state = index.Save(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // The dropped index is not saved.
    CHECK(index.Restore({"x", "", 0, 0, 0, {}}));
    saver.join();
    CHECK(state.ready == "x" && state.pending.empty());
  }
  CHECK(!gates.build.timed_out());
}

// An index of ten parts that counts those built and those alive.
struct PartsIndexer {
  struct Part {
    explicit Part(std::atomic<int64_t>* alive) : alive(alive) { ++*alive; }
    ~Part() { --*alive; }
    std::atomic<int64_t>* alive;
  };
  struct Index {
    std::vector<std::shared_ptr<const Part>> parts;
  };
  using Options = std::atomic<int64_t>*;
  using Source = Options;
  static constexpr int64_t kParts = 10;

  static bool Take(const ClassRows&, const Options& alive,
                   const std::shared_ptr<const Index>&, const TouchedRows&,
                   const ParallelFor&, Source* source) {
    *source = alive;
    return true;
  }
  static bool IsOfShape(const Index&, const Index&) { return true; }
  static Index Build(Source* source, const ParallelFor&) {
    Index index = Begin(*source);
    for (auto& part : index.parts) part = std::make_shared<Part>(*source);
    return index;
  }
  static bool InParts(const Source&) { return true; }
  static Index Begin(const Source&) { return {{kParts, nullptr}}; }
  static int64_t NumRows(const Index&) { return 1; }
  static void BuildPart(Source* source, int64_t part, const ParallelFor&,
                        Index* index) {
    index->parts[part] = std::make_shared<Part>(*source);
  }
  static int64_t NumParts(const Index& index) { return index.parts.size(); }
  static Index Replace(const Index& latest, const Index& next, int64_t num) {
    Index index = latest;
    std::copy_n(next.parts.begin(), num, index.parts.begin());
    return index;
  }
  static std::string Write(const Index& index) {
    return std::string(index.parts.size(), 'x');
  }
  static bool Read(const char*, size_t size, Index* index) {
    index->parts.resize(size);
    return size > 0;
  }
};

// A GPU copies an index as a whole, also one that was saved on a CPU.
void ARestoredIndexComesInPartsOrAsAWhole() {
  for (const bool in_parts : {false, true}) {
    Refreshing<PartsIndexer> index;
    CHECK(index.Restore({"xx", "xx", 20, 40, 0, {}}, in_parts));
    const auto restored = index.ready();
    const auto advance = [&](int64_t step) {
      CHECK(index.Advance({step, 20, 20}, {nullptr, 1, 1}, nullptr, SerialFor));
    };
    advance(15);
    CHECK((index.ready() != restored) == in_parts);
    advance(20);
    CHECK(index.ready() != restored);
  }
}

// However slow the steps are: two parts at most wait to be swapped in.
void PartsAreBuiltLittleAheadOfTheirSwap() {
  std::atomic<int64_t> alive{0};
  {
    Refreshing<PartsIndexer> index;
    const auto advance = [&](int64_t step) {
      CHECK(index.Advance({step, 20, 20}, {nullptr, 1, 1}, &alive, SerialFor));
    };
    int64_t most = 0;
    for (int64_t step = 0; step < 45; ++step) {
      advance(step);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      most = std::max<int64_t>(most, alive);
    }
    CHECK(most > PartsIndexer::kParts && most <= PartsIndexer::kParts + 2);
    CHECK(index.Save().pending.size() == PartsIndexer::kParts);
    CHECK(alive > PartsIndexer::kParts + 2);  // all, to be saved
    for (int64_t step = 45; step < 62; ++step) advance(step);
  }
  CHECK(alive == 0);  // and nobody waits for the last one
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::SwapsAfterTheLag();
  tfxclass::AFailedBuildLeavesTheOldIndex();
  tfxclass::ABuildOfNowThatFailsLeavesTheOldIndex();
  tfxclass::MarksGoToTheNextBuildAndAreSaved();
  tfxclass::ARefusedBuildChangesNothing();
  tfxclass::RowsAreReadWhereARefreshBegins();
  tfxclass::ABeginThatFailsKeepsItsMarks();
  tfxclass::ABuildThatIsRefusedKeepsTheMarksOfADroppedOne();
  tfxclass::RowsThatAreNotFiniteStartNothing();
  tfxclass::TouchedRowsAreASet();
  tfxclass::MarksWithoutARowAreLeftOut();
  tfxclass::NobodyWaitsForASave();
  tfxclass::ABuildIsCancelled();
  tfxclass::ARestoredIndexComesInPartsOrAsAWhole();
  tfxclass::PartsAreBuiltLittleAheadOfTheirSwap();
}
