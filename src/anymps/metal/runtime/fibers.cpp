// A group of threads as fibers: who runs, who waits, and what opens.
#include "fibers.h"

#include <cstdlib>
#include <initializer_list>

#include "guard.h"

namespace anymps_rt {
namespace {

// Initial-exec: read at every SIMD call. The pointer is all that lies there.
__attribute__((tls_model("initial-exec"))) thread_local Fibers* the_fibers = nullptr;
struct Owner {
  Fibers* threads = nullptr;
  Fibers* groups = nullptr;
  ~Owner() {
    the_fibers = nullptr;
    delete threads;
    delete groups;
  }
};
thread_local Owner owner;

void start_fiber() {
  the_fibers->run_fiber();
}

}  // namespace

Fibers& Fibers::mine() {
  if (owner.threads == nullptr) {
    owner.threads = new Fibers(kThreadStack, kMaxThreads, 0);
    the_fibers = owner.threads;
  }
  return *owner.threads;
}

Fibers& Fibers::of_groups() {
  if (owner.groups == nullptr) {
    owner.groups = new Fibers(kGroupStack, kMostTogether, kSharedBytes / 2 + 64);
  }
  return *owner.groups;
}

void Fibers::drop() {
  the_fibers = owner.threads;
  for (Fibers* fibers : {owner.threads, owner.groups}) {
    if (fibers != nullptr) fibers->running = false;
  }
}

Fibers::Aside Fibers::set_aside() {
  const Aside aside{owner.threads, owner.groups, the_fibers};
  owner.threads = owner.groups = the_fibers = nullptr;
  return aside;
}

void Fibers::put_back(const Aside& aside) {
  delete owner.threads;
  delete owner.groups;
  owner.threads = aside.threads;
  owner.groups = aside.groups;
  the_fibers = aside.running;
}

char* Fibers::below() {
  constexpr size_t kRed = 512;  // what a function may use below its stack's pointer
  for (const Fibers* const fibers : {owner.groups, owner.threads}) {  // the outer ones first
    if (fibers != nullptr && fibers->running) return static_cast<char*>(fibers->main_) - kRed;
  }
  return nullptr;
}

Fibers::Fibers(size_t stack, unsigned count, size_t shared_each) : shared_each_(shared_each), stacks_(stack, count) {
  shared_ = static_cast<char*>(std::aligned_alloc(64, shared_each == 0 ? kSharedBytes : count * shared_each));
  if (shared_ == nullptr) {
    std::abort();
  }
}

Fibers::~Fibers() {
  std::free(frames_);
  std::free(shared_);
}

void Fibers::run_fiber() {
  entry_(context_, current);
  hand_over(current / kLanes);
  __builtin_unreachable();
}

void Fibers::block_at_barrier() {
  const unsigned s = current / kLanes;
  at_barrier_[s] |= 1u << (current % kLanes);
  hand_over(s);
}

void Fibers::block_at_simd(void* slot, Resolve resolve, unsigned long site) {
  const unsigned s = current / kLanes;
  slots_[current] = slot;
  resolves_[current] = resolve;
  Chain& chain = chains_[current];
  chain.place[chain.depth < Chain::most ? chain.depth : Chain::most - 1] = site;
  at_simd_[s] |= 1u << (current % kLanes);
  hand_over(s);
}

// Which of two fibers waits at the earlier place: negative for the first one, 0 where it is the same.
int Fibers::order(unsigned a, unsigned b) const {
  const Chain &one = chains_[a], &other = chains_[b];
  const unsigned depth = one.depth < other.depth ? one.depth : other.depth;
  const unsigned last = depth < Chain::most ? depth : Chain::most - 1;
  for (unsigned i = 0; i < last; ++i) {
    if (one.place[i] != other.place[i]) return one.place[i] < other.place[i] ? -1 : 1;
  }
  if (one.place[last] != other.place[last]) return one.place[last] < other.place[last] ? -1 : 1;
  return one.depth == other.depth ? 0 : one.depth < other.depth ? -1 : 1;
}

void Fibers::resolve(unsigned s) {
  unsigned lowest = s * kLanes + static_cast<unsigned>(__builtin_ctz(at_simd_[s]));
  for (unsigned rest = at_simd_[s] & (at_simd_[s] - 1); rest != 0; rest &= rest - 1) {
    const unsigned fiber = s * kLanes + static_cast<unsigned>(__builtin_ctz(rest));
    if (order(fiber, lowest) < 0) lowest = fiber;
  }
  unsigned lanes = 0;
  Resolve first = nullptr;
  for (unsigned rest = at_simd_[s]; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(rest));
    const unsigned fiber = s * kLanes + lane;
    if (order(fiber, lowest) == 0 && (first == nullptr || first == resolves_[fiber])) {
      first = resolves_[fiber];
      lanes |= 1u << lane;
    }
  }
  if (first != nullptr) {
    first(slots_ + s * kLanes, lanes);
  }
  at_simd_[s] &= ~lanes;
  runnable_[s] |= lanes;
}

// The running fiber waits, or is done: the next one runs. Returns when this one may go on.
void Fibers::hand_over(unsigned s) {
  const unsigned self = current;
  for (;;) {
    if (runnable_[s] != 0) {
      const auto lane = static_cast<unsigned>(__builtin_ctz(runnable_[s]));
      runnable_[s] &= runnable_[s] - 1;
      current = s * kLanes + lane;
      if (current != self) {
        anymps_rt_switch(&pointers_[self], pointers_[current]);
      }
      return;
    }
    if (at_simd_[s] != 0) {
      resolve(s);
      continue;
    }
    ready_ &= ~(1u << s);
    if (ready_ == 0 && !open_barrier()) {
      anymps_rt_switch(&pointers_[self], main_);  // all are done
    }
    s = static_cast<unsigned>(__builtin_ctz(ready_));
  }
}

// Lets those go on that wait at a barrier. False if there is none.
bool Fibers::open_barrier() {
  for (unsigned s = 0; s < simdgroups_; ++s) {
    runnable_[s] = at_barrier_[s];
    at_barrier_[s] = 0;
    ready_ |= static_cast<unsigned>(runnable_[s] != 0) << s;
  }
  return ready_ != 0;
}

// A group of this begins to run; those that ran before on this OS thread.
Fibers* Fibers::enter() {
  Fibers* const before = the_fibers;
  the_fibers = this;
  running = true;
  return before;
}

void Fibers::leave(Fibers* before) {
  the_fibers = before;
  running = false;
}

void Fibers::begin_group(unsigned threads) {
  simdgroups_ = (threads + kLanes - 1) / kLanes;
  for (unsigned s = 0; s < simdgroups_; ++s) {
    const unsigned left = threads - s * kLanes;
    runnable_[s] = left >= kLanes ? ~0u : (1u << left) - 1;
    at_simd_[s] = at_barrier_[s] = 0;
  }
  ready_ = simdgroups_ == kLanes ? ~0u : (1u << simdgroups_) - 1;
}

void Fibers::run(unsigned threads, anymps_rt_entry entry, void* context) {
  entry_ = entry;
  context_ = context;
  begin_group(threads);
  for (unsigned i = 0; i < threads; ++i) {
    char* const top = stacks_.top(i);
    if (top == nullptr) give_up(kNoStacks);
    pointers_[i] = first_frame(top, start_fiber);
    chains_[i].depth = chains_[i].calls = 0;
  }
  current = 0;
  runnable_[0] &= ~1u;
  Fibers* const before = enter();
  anymps_rt_switch(&main_, pointers_[0]);
  leave(before);
}

void Fibers::reserve_frames(size_t bytes) {
  constexpr size_t kLine = 64;
  if (bytes <= frames_capacity_) {
    return;
  }
  std::free(frames_);
  frames_capacity_ = (bytes + kLine - 1) / kLine * kLine;
  frames_ = static_cast<char*>(std::aligned_alloc(kLine, frames_capacity_));
  if (frames_ == nullptr) {
    std::abort();
  }
}

}  // namespace anymps_rt

using anymps_rt::Fibers;

extern "C" {

void anymps_rt_group(unsigned threads, anymps_rt_entry entry, void* context) {
  Fibers::mine().run(threads, entry, context);
}

void anymps_rt_barrier(int) {
  anymps_rt::the_fibers->block_at_barrier();
}

void anymps_rt_simd(void* slot, anymps_rt::Resolve resolve, unsigned long site) {
  anymps_rt::the_fibers->block_at_simd(slot, resolve, site);
}

unsigned anymps_rt_lane() {
  return anymps_rt::the_fibers->current % anymps_rt::kLanes;
}

unsigned anymps_rt_thread() {
  return anymps_rt::the_fibers->current;
}

anymps_rt::Chain* anymps_rt_chain() {
  return anymps_rt::the_fibers->chain();
}

char* anymps_rt_shared() {
  return anymps_rt::the_fibers->shared_of_current();
}
}
