// Steps, phases, modules and rounds.
#include "recorder/program/progress.h"

#include "locks/locks.h"
#include "recorder/lines/autograd.h"
#include "recorder/lines/call_sites.h"

#include <chrono>
#include <mutex>
#include <utility>

namespace anymps {

std::atomic<bool> tape_on{false}, tape_observed{false};

namespace {
std::atomic<int64_t> origin_ns{0};

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

int64_t now_ns() {
  return steady_ns() - origin_ns.load(std::memory_order_relaxed);
}

Muted::Muted() {
  ++progress::mine().muted;
}
Muted::~Muted() {
  --progress::mine().muted;
}
bool muted() {
  return progress::mine().muted > 0;
}

namespace progress {
namespace {

constexpr size_t kMaxRounds = size_t(1) << 20;  // beyond this a run is one last step; 32 MiB

struct State {
  Mutex mutex;
  std::vector<StepMark> new_steps;
  std::vector<Round> new_rounds;
  size_t rounds = 0;
  int64_t step_start = 0;
  std::atomic<uint32_t> step{0};
  std::atomic<uint32_t> backward_step{UINT32_MAX};  // the last step in which a backward ran
  std::atomic<bool> sparse{false};
};

State& state() {
  static State* the_state = new State;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

}  // namespace

Thread& mine() {
  thread_local Thread thread;
  return thread;
}

void start() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.new_steps.clear();
  s.new_rounds.clear();
  s.rounds = 0;
  s.step.store(0);
  s.backward_step.store(UINT32_MAX);
  s.sparse.store(false);
  origin_ns.store(steady_ns());
  s.step_start = 0;
}

void sparse(bool on) {
  state().sparse.store(on, std::memory_order_relaxed);
}

bool is_sparse() {
  return state().sparse.load(std::memory_order_relaxed);
}

// The phase of an operator that no hook has put into one.
uint8_t Thread::natural_phase(Wait wait, Direction direction) const {
  State& s = state();
  if (call.module == 0) {
    if (direction == Direction::CpuToMps) {
      return static_cast<uint8_t>(Phase::Move);
    }
    if (wait == Wait::Item || direction == Direction::MpsToCpu) {
      return static_cast<uint8_t>(Phase::LossRead);
    }
    if (s.backward_step.load(std::memory_order_relaxed) == s.step.load(std::memory_order_relaxed)) {
      return static_cast<uint8_t>(Phase::Other);  // between backward and the optimizer's step: clipping, logging
    }
  }
  return static_cast<uint8_t>(Phase::Forward);
}

uint8_t Thread::phase_of(Wait wait, Direction direction) const {
  return phase != 0 ? phase : natural_phase(wait, direction);
}

void note_entry_of_backward() {
  State& s = state();
  s.backward_step.store(s.step.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::vector<StepMark> take_new_steps() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return std::exchange(s.new_steps, {});
}

std::vector<Round> take_new_rounds() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return std::exchange(s.new_rounds, {});
}

uint8_t current_phase() {
  if (in_backward()) {
    return static_cast<uint8_t>(Phase::Backward);
  }
  const Thread& thread = mine();
  return thread.phase != 0 || thread.call.module == 0 ? thread.phase : static_cast<uint8_t>(Phase::Forward);
}

uint32_t current_step() {
  return state().step.load(std::memory_order_relaxed);
}

uint8_t set_phase(uint8_t phase) {
  Thread& thread = mine();
  const uint8_t former = thread.phase;
  thread.phase = phase;
  return former;
}

static void add_round(const Round& round) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.rounds < kMaxRounds) {
    ++s.rounds;
    s.new_rounds.push_back(round);
  }
}

void note_round(RoundKind kind, uint32_t key, int64_t start_ns) {
  add_round({kind, key, current_site(), start_ns, now_ns()});
}

void enter_module(uint32_t module) {
  Thread& thread = mine();
  const uint64_t within = is_sparse() ? 0 : thread.call.module == 0 ? current_site() : mix(thread.call.path, ++thread.call.calls);
  if (thread.stack.empty() && !is_sparse() && !in_backward()) {
    thread.outermost = module;
    thread.outermost_site = static_cast<uint32_t>(within);
    thread.outermost_start = now_ns();
    thread.wrote = false;
    // A new round has begun: what comes now is not what follows the backward of the one before.
    state().backward_step.store(UINT32_MAX, std::memory_order_relaxed);
  }
  thread.stack.push_back(thread.call);
  thread.call = {module, 0, 0, mix(within, module)};
}

void enter_backward() {
  Thread& thread = mine();
  thread.stack.push_back(thread.call);
  thread.call = {};
}

void leave_module() {
  Thread& thread = mine();
  if (!thread.stack.empty()) {
    thread.call = thread.stack.back();
    thread.stack.pop_back();
  }
  if (thread.stack.empty() && thread.outermost != 0) {
    if (thread.wrote) {
      add_round({RoundKind::Module, thread.outermost, thread.outermost_site, thread.outermost_start, now_ns()});
    }
    thread.outermost = 0;
  }
}

void end_step() {
  State& s = state();
  mine().call.ordinal = 0;
  std::lock_guard<std::mutex> lock(s.mutex);
  const int64_t now = now_ns();
  s.new_steps.push_back({s.step.load(), s.step_start, now});
  s.step_start = now;
  s.step.fetch_add(1);
}

}  // namespace progress
}  // namespace anymps
