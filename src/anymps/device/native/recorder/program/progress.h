// Where the program is: whether it is recorded, since when, in which step, phase and module; per thread where that differs.
#pragma once

#include "recorder/tape/entry.h"
#include "rules/rules.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace anymps {

extern std::atomic<bool> tape_on, tape_observed;
inline bool recording() {
  return tape_on.load(std::memory_order_relaxed);
}
// Who tells of calls: an observer of all operators, on whatever device they run, or the device's own kernels.
inline bool observed() {
  return recording() && tape_observed.load(std::memory_order_relaxed);
}
inline bool told_by_device() {
  return recording() && !tape_observed.load(std::memory_order_relaxed);
}

// While one lives on a thread, calls of that thread write no entries: they are part of one that does.
class Muted {
 public:
  Muted();
  ~Muted();
  Muted(const Muted&) = delete;
  Muted& operator=(const Muted&) = delete;
};
bool muted();

int64_t now_ns();  // since the recording was last started

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  return hash * 0xD6E8FEB86659FD93ull;
}

struct StepMark {
  uint32_t step;
  int64_t start_ns, end_ns;
};
// Something that a program's loop does once a round.
struct Round {
  RoundKind kind;
  uint32_t key;  // which optimizer or module, 0 for the others
  uint32_t site;
  int64_t start_ns, end_ns;
};
namespace progress {

// Where the thread is in the modules' calls. An operator's position is its place among those of one call, and a call is
// known by the line of the outermost one and the places of those within: one module, called twice, has two positions.
struct Call {
  uint32_t module = 0;
  uint32_t ordinal = 0;  // operators so far
  uint32_t calls = 0;    // of modules in it so far
  uint64_t path = 0;
};

// A buffer that no entry has claimed yet; `named` once an allocation of its own has.
struct Unattributed {
  uint32_t number;
  bool named;
  uint32_t site;
};

// What a thread does, as far as hooks tell.
struct Thread {
  uint8_t phase = 0;
  bool wrote = false;  // anything of the outermost call of a module has reached the tape
  int muted = 0;
  int64_t call_start = 0;  // of the recorded call that began last, 0 outside of calls
  Call call;
  std::vector<Call> stack;
  std::vector<Unattributed> unattributed;
  // The module call that is no other's part and runs now.
  uint32_t outermost = 0, outermost_site = 0;
  int64_t outermost_start = 0;

  uint8_t phase_of(Wait wait, Direction direction) const;  // of an entry outside of backwards: what a hook has said, else by its kind
  uint8_t natural_phase(Wait wait, Direction direction) const;  // by its kind alone
};
Thread& mine();  // the calling one

void start();
// While sparse, a plain call (a native kernel that neither waits nor copies to or from the CPU) writes no entry, and is only
// counted as dropped; modules are not told apart. What a backward runs still gets the line of its forward operator.
void sparse(bool on);
bool is_sparse();

uint8_t current_phase();  // what the calling thread does, as far as hooks and the autograd engine tell
uint32_t current_step();
uint8_t set_phase(uint8_t phase);  // of the calling thread; returns the former one
void enter_module(uint32_t module);
void leave_module();
void enter_backward();  // outside of all modules, until leave_module: what it runs belongs to none
void end_step();
void note_round(RoundKind kind, uint32_t key, int64_t start_ns);  // it ends now, at the line that is running
void note_entry_of_backward();

std::vector<StepMark> take_new_steps();
std::vector<Round> take_new_rounds();

}  // namespace progress
}  // namespace anymps
