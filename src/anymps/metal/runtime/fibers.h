// A group of threads as fibers on one OS thread: barriers and SIMD calls.
//
// Each GPU thread is a fiber with a stack of its own. The fibers of a SIMD group run until each of them waits. Then the SIMD
// call with the lowest place among those waited at is done, with exactly the lanes that wait there: so lanes that took
// different branches meet again. A barrier opens when every thread that still runs is there. A lane that has to wait hands
// over to the next one itself; no scheduler stands between.
//
// The C face serves code that did not come from our C++ headers:
//
//     void entry(void* context, unsigned thread) { ... anymps_rt_barrier(0); ... }
//     anymps_rt_group(256, entry, context);   // returns when all 256 threads have
//
// Within `entry`, on the same OS thread:
// - anymps_rt_barrier(line): waits for all threads of the group that still run.
// - anymps_rt_simd(slot, resolve, site): waits for the lanes of the SIMD group; then `resolve(slots, lanes)` runs once, with
//   slots[lane] = what each lane brought, for those whose bit is set in `lanes`. It writes results where each slot points to.
//   `site` orders calls: the lowest waited at goes first, so it should grow with the place of the call in the code.
// - anymps_rt_chain(): where the calls stand that a thread is in; they come before `site` in that order.
// - anymps_rt_lane(): the lane; anymps_rt_thread(): the thread's index in its group.
// - anymps_rt_shared(): 64 KiB of threadgroup memory. It is not cleared between groups.
//
// Ready-made SIMD calls are those of shim/msl/sync.h: `metal::simd_sum(value, site)` compiled into an `extern "C"` function.
// A fault or an interrupt is caught only inside of a launch: give a `Kernel` of shim/msl/runtime.h to launch.h's functions
// (launch.h), whose `thread` runs as a fiber; it needs no call of anymps_rt_group.
#pragma once

#include <vector>

#include <msl/runtime.h>

#include "stacks.h"

extern "C" {
unsigned anymps_rt_thread();
}

namespace anymps_rt {

constexpr size_t kSharedBytes = 64 << 10;  // twice what Metal gives: what exceeds 32 KiB is refused before a launch
constexpr size_t kThreadStack = 64 << 10;
constexpr size_t kGroupStack = 2 << 20;  // holds what all threads of a group keep
constexpr unsigned kMostTogether = 16;   // groups side by side: a register of floats

// What one OS thread needs to run groups.
class Fibers {
 public:
  // Those of this OS thread, made at the first call: fibers for the threads of a group.
  static Fibers& mine();
  // Fibers for groups, each of which is run by one. They may run threads as fibers in turn.
  static Fibers& of_groups();
  // Leaves all fibers of this OS thread where they are.
  static void drop();
  // Those of this OS thread, to be put back when others have run there.
  struct Aside {
    Fibers *threads, *groups, *running;
  };
  static Aside set_aside();
  static void put_back(const Aside& aside);
  // Where the OS thread's own stack is free while fibers run; null if none do.
  static char* below();

  Fibers(size_t stack, unsigned count, size_t shared_each);
  Fibers(const Fibers&) = delete;
  ~Fibers();

  void run(unsigned threads, anymps_rt_entry entry, void* context);
  // The threads of a group as loops over lanes. Subnormal floats are zero meanwhile.
  void run_lanes(const Group& group, const Lanes& lanes);
  // The lanes that ran last, all from the place `at` on; and one of them again, alone.
  struct Span {
    unsigned at, from, to;
  };
  const Span& last_lanes() const { return span_; }
  void run_lane_again(const Group& group, const Lanes& lanes, unsigned lane);
  void block_at_barrier();
  void block_at_simd(void* slot, Resolve resolve, unsigned long site);
  [[noreturn]] void run_fiber();
  Chain* chain() { return &chains_[current]; }

  unsigned current = 0;
  bool running = false;  // whether a group runs, so that `current` is a thread
  char* shared_of_current() { return shared_ + current * shared_each_; }

 private:
  Fibers* enter();
  void leave(Fibers* before);
  void begin_group(unsigned threads);
  bool open_barrier();
  void reserve_frames(size_t bytes);
  void place_threads(const Group& group);
  void run_ready(unsigned s, const Group& group, const Lanes& lanes);
  void resolve_lanes(unsigned s, const Lanes& lanes);
  void hand_over(unsigned s);
  void resolve(unsigned s);
  int order(unsigned a, unsigned b) const;

  char* shared_;
  const size_t shared_each_;  // 0: one for all
  anymps_rt_entry entry_ = nullptr;
  void* context_ = nullptr;
  unsigned simdgroups_ = 0;
  unsigned ready_ = 0;  // SIMD groups with lanes that can run
  unsigned runnable_[kLanes];
  unsigned at_simd_[kLanes];
  unsigned at_barrier_[kLanes];
  void* slots_[kMaxThreads];
  Resolve resolves_[kMaxThreads];
  Chain chains_[kMaxThreads];
  void* pointers_[kMaxThreads];  // of the stacks of fibers that wait
  void* main_ = nullptr;
  std::vector<Thread> threads_;        // of lanes: where each is in a group of the size `placed_`
  unsigned placed_[3] = {0, 0, 0};
  unsigned char places_[kMaxThreads];  // the same
  Span span_{0, 0, 0};
  char* frames_ = nullptr;
  size_t frames_capacity_ = 0;
  Stacks stacks_;
};

}  // namespace anymps_rt
