// The tape: one fixed-size entry for every operator, copy and wait, written without locks by the thread that runs it.
#pragma once

#include "law/rule.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace anymps {

// The packed form documented in docs/architecture.md.
struct Entry {
  int64_t start_ns;
  int64_t duration_ns;
  int64_t moved_bytes;
  int64_t sequence;  // forward: number of the autograd node being built; backward: that of the node being run; else -1
  uint32_t signature;
  uint32_t module;
  uint32_t site;
  uint32_t step;
  uint32_t thread;
  uint8_t phase;
  uint8_t wait;
  uint8_t direction;
  uint8_t flags;
  uint32_t refusal;
  uint32_t reserved;
};
static_assert(sizeof(Entry) == 64, "the packed entry is part of the recording's documented format");

enum EntryFlag : uint8_t { kNonBlocking = 1, kRaised = 2, kAutogradThread = 4, kViewResult = 8, kHazard = 16, kUnsafeCopy = 32, kPair = 64 };

extern std::atomic<bool> tape_on;
inline bool recording() {
  return tape_on.load(std::memory_order_relaxed);
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

int64_t now_ns();  // since the tape was last started

// One call being recorded. Costs a load and a branch while nothing records.
class Span {
 public:
  explicit Span(const Rule& rule) : rule_(rule), on_(recording() && !muted()) {
    if (on_) {
      begin();
    }
  }
  ~Span() {
    if (on_) {
      leave();
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  bool on() const {
    return on_;
  }
  void input(const c10::TensorImpl* tensor) {
    if (on_) {
      mix_tensor(tensor);
    }
  }
  void wait(Wait kind) {
    wait_ = kind;
  }
  bool waits() const {
    return wait_ != Wait::None;
  }
  void moved(Direction direction, int64_t bytes, bool non_blocking) {
    direction_ = direction;
    moved_bytes_ = bytes;
    flags_ |= non_blocking ? kNonBlocking : 0;
  }
  void fate(Fate fate) {
    fate_ = fate;
  }
  // The call ended with an exception: an entry without results.
  void raised();
  // Writes the entry. `inputs` and `outputs` are only looked at when this signature is new.
  void end(c10::ArrayRef<const c10::TensorImpl*> inputs, c10::ArrayRef<const c10::TensorImpl*> outputs) {
    if (on_) {
      write(inputs, outputs);
    }
  }

 private:
  void begin();
  static void leave();
  void mix_tensor(const c10::TensorImpl* tensor);
  void write(c10::ArrayRef<const c10::TensorImpl*> inputs, c10::ArrayRef<const c10::TensorImpl*> outputs);

  const Rule& rule_;
  bool on_;
  Fate fate_ = Fate::Native;
  Wait wait_ = Wait::None;
  Direction direction_ = Direction::None;
  uint8_t flags_ = 0;
  int64_t start_ = 0;
  int64_t moved_bytes_ = 0;
  uint64_t hash_ = 0;
};

// Where in the user's code the calling thread is. Takes the GIL; answers 0 where there is no Python frame of the user's.
uint32_t current_site();
// Where in the user's own backward, 0 outside of it: the frames between here and the engine that calls it.
uint32_t current_site_in_backward();

struct SignatureText {
  uint32_t id, op;
  uint8_t fate;
  std::string inputs, outputs;  // JSON lists
};
struct Total {
  uint32_t signature, module, site;
  uint8_t phase, wait, direction;
  uint64_t count;
  int64_t duration_ns, moved_bytes;
};
struct StepMark {
  uint32_t step;
  int64_t start_ns, end_ns;
};
// Something that a program's loop does once a round; the numbers of `kind` are those of RoundKind in record/_vocabulary.py.
enum class RoundKind : uint8_t { Optimizer = 1, Backward = 2, Module = 3, Batch = 4 };
struct Round {
  RoundKind kind;
  uint32_t key;  // which optimizer or module, 0 for the others
  uint32_t site;
  int64_t start_ns, end_ns;
};
struct Drained {
  std::string entries;  // packed; empty once the detail limit is reached
  std::vector<SignatureText> signatures;
  std::vector<StepMark> steps;
  std::vector<Round> rounds;
  uint64_t dropped = 0;  // calls without an entry here, since the last drain
};

namespace tape {
void start(uint64_t detail_limit);
// While sparse, a plain call (a native kernel that neither waits nor copies to or from the CPU) writes no entry, and is only
// counted as dropped; modules are not told apart. What a backward runs still gets the line of its forward operator.
void sparse(bool on);
bool is_sparse();
void stop();
void pause(bool paused);
Drained drain();
std::vector<Total> totals();
uint64_t pending();  // entries written and not drained yet

uint8_t current_phase();  // what the calling thread does, as far as hooks and the autograd engine tell
uint32_t current_step();
uint8_t set_phase(uint8_t phase);  // of the calling thread; returns the former one
void enter_module(uint32_t module);
void leave_module();
void enter_backward();  // outside of all modules, until leave_module: what it runs belongs to none
void end_step();
void note_round(RoundKind kind, uint32_t key, int64_t start_ns);  // it ends now, at the line that is running
bool take_refusal_note();  // whether the calling thread has noted a refusal since it last asked
uint32_t note_refusal(const Rule& rule, Fate fate);  // writes a refused entry for the calling thread, returns its number
// Writes a mark for a known fault of MPS that the call about to run would meet, or that a call at `site` has met.
void note_hazard(const Rule& rule, uint32_t site = 0);
// Writes a mark for a copy whose host side was touched too early: where that was, and as related lines the copy and the
// wait that came later (0: none).
void note_unsafe_copy(const Rule& rule, uint32_t site, uint32_t copy, uint32_t wait);
// Writes a mark for something at a line, and another line that belongs to it (0: none).
void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes);
// Says where a tensor was allocated that no operator made (torch.empty); writes no entry.
void note_empty(const Rule& rule, const c10::TensorImpl* tensor);
void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait);
}  // namespace tape

}  // namespace anymps
