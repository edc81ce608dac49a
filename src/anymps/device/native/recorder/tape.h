// The tape: one fixed-size entry for every operator, copy and wait, written without locks by the thread that runs it.
#pragma once

#include "law/law.h"
#include "recorder/entry.h"
#include "recorder/progress.h"
#include "recorder/signatures.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace anymps {

// One call being recorded. Costs a load and a branch while nothing records.
class Span {
 public:
  enum class By : uint8_t { Device, Observer };  // who tells; the other one's are silent
  explicit Span(const Rule& rule, By by = By::Device)
      : rule_(rule), on_((by == By::Device ? told_by_device() : observed()) && !muted()) {
    if (on_) {
      begin();
    }
  }
  ~Span() {
    if (on_) {
      leave();
    }
  }
  Span(Span&& other) noexcept : Span(static_cast<const Span&>(other)) {
    other.on_ = false;
  }
  Span& operator=(Span&&) = delete;
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
  Span(const Span&) = default;
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

struct Total {
  uint32_t signature, module, site;
  uint8_t phase, wait, direction;
  uint64_t count;
  int64_t duration_ns, moved_bytes;
};
struct Drained {
  std::string entries;  // packed; empty once the detail limit is reached
  std::vector<SignatureText> signatures;
  std::vector<StepMark> steps;
  std::vector<Round> rounds;
  uint64_t dropped = 0;  // calls without an entry here, since the last drain
};

namespace tape {
void start(uint64_t detail_limit, bool by_observer);
void stop();
void pause(bool paused);
Drained drain();
std::vector<Total> totals();
uint64_t pending();  // entries written and not drained yet

bool take_refusal_note();  // whether the calling thread has noted a refusal since it last asked
// Where a refused call was, if it is not the line that runs.
struct Place {
  uint32_t site = 0;
  bool backward = false;
};
Place here();
// Writes a refused entry for the calling thread, returns its number.
uint32_t note_refusal(const Rule& rule, Fate fate, const Place& place = here());
// Writes a mark for a known fault of MPS that the call about to run would meet, or that a call at `site` has met.
void note_hazard(const Rule& rule, uint32_t site = 0);
// Writes a mark for a copy whose host side was touched too early: where that was, and as related lines the copy and the
// wait that came later (0: none).
void note_unsafe_copy(const Rule& rule, uint32_t site, uint32_t copy, uint32_t wait);
// Writes a mark for something at a line, and another line that belongs to it (0: none).
void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes, int64_t duration_ns = 0);
// Says where a tensor was allocated that no operator made (torch.empty); writes no entry.
void note_empty(const Rule& rule, const c10::TensorImpl* tensor);
void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait);
}  // namespace tape

// The place in the user's code that runs; in a backward that of the forward operator, or of the user's own backward.
uint32_t current_place();

}  // namespace anymps
