// Its check of longjmp knows one stack alone.
#undef _FORTIFY_SOURCE
#include <cuda_runtime.h>
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace cuda_emulator {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr int kWarpBarrier = -1;

enum class State { kReady, kWaiting, kEnded };

// A fiber is made once and runs the thread of one block after the other. It is
// entered by its context, and from then on by its jump: swapcontext would set
// the mask of signals, two system calls a switch.
struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  bool is_entered = false;
  std::unique_ptr<char[]> stack;
  State state = State::kReady;
  int place = 0;  // of the barrier it waits at
  uint64_t slot = 0;
};

// One kernel at a time, whoever launches it: `__shared__` arrays are static.
std::recursive_mutex launches;
std::deque<Fiber> fibers;  // which stay where they are
std::vector<char> shared;
const std::function<void()>* body = nullptr;
jmp_buf scheduler;
int running = 0;
std::mt19937 order_random(1);

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "cuda_emulator: %s (block %u)\n", what, block_index.x);
  std::abort();
}

void LeaveFiber() {
  if (_setjmp(fibers[running].jump) == 0) _longjmp(scheduler, 1);
}

void Start() {
  for (;;) {
    (*body)();
    fibers[running].state = State::kEnded;
    LeaveFiber();
  }
}

void Wait(int place) {
  Fiber& fiber = fibers[running];
  fiber.state = State::kWaiting;
  fiber.place = place;
  LeaveFiber();
}

void Resume(int number) {
  running = number;
  thread_index.x = number;
  Fiber& fiber = fibers[number];
  if (_setjmp(scheduler) != 0) return;
  if (fiber.is_entered) _longjmp(fiber.jump, 1);
  fiber.is_entered = true;
  setcontext(&fiber.context);
}

// Whether all of fibers [begin, end) that have not ended, and there are some,
// wait at one barrier.
bool AreAtBarrier(int begin, int end, bool of_warp) {
  int place = 0;
  bool any = false;
  for (int i = begin; i < end; ++i) {
    const Fiber& fiber = fibers[i];
    if (fiber.state == State::kEnded) continue;
    if (fiber.state == State::kReady) return false;
    if ((fiber.place == kWarpBarrier) != of_warp) return false;
    if (any && fiber.place != place) {
      Fail("threads of a block wait at different barriers");
    }
    any = true;
    place = fiber.place;
  }
  return any;
}

void Free(int begin, int end) {
  for (int i = begin; i < end; ++i) {
    if (fibers[i].state == State::kWaiting) fibers[i].state = State::kReady;
  }
}

void RunBlock(int threads) {
  for (int i = 0; i < threads; ++i) fibers[i].state = State::kReady;
  std::vector<int> order(threads);
  for (int i = 0; i < threads; ++i) order[i] = i;
  for (bool moved = true; moved;) {
    moved = false;
    std::shuffle(order.begin(), order.end(), order_random);
    // Some warps fall behind: only barriers of the block keep them together.
    const unsigned behind = order_random() & order_random();
    for (const int i : order) {
      if (fibers[i].state != State::kReady) continue;
      if (!(behind >> (i / 32) & 1)) Resume(i);
      moved = true;
    }
    for (int begin = 0; begin < threads; begin += 32) {
      const int end = std::min(begin + 32, threads);
      if (!AreAtBarrier(begin, end, true)) continue;
      moved = true;
      Free(begin, end);
    }
    if (moved || !AreAtBarrier(0, threads, false)) continue;
    Free(0, threads);
    moved = true;
  }
  for (int i = 0; i < threads; ++i) {
    if (fibers[i].state != State::kEnded) Fail("threads wait for ever");
  }
}

}  // namespace

void* shared_memory() { return shared.data(); }

const char* Run(int64_t blocks, int threads, size_t shared_bytes,
                const std::function<void()>& thread) {
  if (threads > kMostThreads) return "too many threads for a block";
  if (shared_bytes > kMostDynamicBytes) return "too much shared memory";
  std::lock_guard<std::recursive_mutex> lock(launches);
  if (fibers.size() < static_cast<size_t>(threads)) {
    const size_t before = fibers.size();
    fibers.resize(threads);
    for (size_t i = before; i < fibers.size(); ++i) {
      Fiber& fiber = fibers[i];
      fiber.stack = std::make_unique<char[]>(kStackBytes);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, Start, 0);
    }
  }
  body = &thread;
  grid_size = {static_cast<unsigned>(blocks), 1, 1};
  block_size = {static_cast<unsigned>(threads), 1, 1};
  for (int64_t b = 0; b < blocks; ++b) {
    block_index.x = static_cast<unsigned>(b);
    // Not what an earlier block left there.
    shared.assign(shared_bytes, static_cast<char>(0xff));
    RunBlock(threads);
  }
  return nullptr;
}

void BlockBarrier(int place) { Wait(place); }
void WarpBarrier() { Wait(kWarpBarrier); }

bool BlockVote(int place, bool value) {
  fibers[running].slot = value;
  BlockBarrier(place);
  bool any = false;
  for (unsigned i = 0; i < block_size.x; ++i) {
    any |= fibers[i].state != State::kEnded && fibers[i].slot;
  }
  BlockBarrier(place);
  return any;
}

uint64_t Exchange(uint64_t bits, int lane) {
  fibers[running].slot = bits;
  WarpBarrier();
  const int source = running / 32 * 32 + lane;
  const bool there = lane >= 0 && lane < 32 &&
                     source < static_cast<int>(block_size.x) &&
                     fibers[source].state != State::kEnded;
  const uint64_t found = there ? fibers[source].slot : bits;
  WarpBarrier();
  return found;
}

unsigned Vote(bool value) {
  fibers[running].slot = value;
  WarpBarrier();
  unsigned votes = 0;
  const int first = running / 32 * 32;
  const int end = std::min<int>(first + 32, block_size.x);
  for (int i = first; i < end; ++i) {
    if (fibers[i].state != State::kEnded && fibers[i].slot) {
      votes |= 1u << (i - first);
    }
  }
  WarpBarrier();
  return votes;
}

unsigned Match(uint64_t bits) {
  fibers[running].slot = bits;
  WarpBarrier();
  unsigned same = 0;
  const int first = running / 32 * 32;
  const int end = std::min<int>(first + 32, block_size.x);
  for (int i = first; i < end; ++i) {
    if (fibers[i].state != State::kEnded && fibers[i].slot == bits) {
      same |= 1u << (i - first);
    }
  }
  WarpBarrier();
  return same;
}

}  // namespace cuda_emulator
