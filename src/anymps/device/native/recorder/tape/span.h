// One call being recorded, from its beginning to its entry on the tape.
#pragma once

#include "rules/rules.h"
#include "recorder/tape/signatures.h"
#include "recorder/program/progress.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace anymps {

struct ThreadTape;

// Costs a load and a branch while nothing records.
class Span {
 public:
  enum class Source : uint8_t { Device, Observer };  // who tells; the other one's are silent
  explicit Span(const Rule& rule, Source source = Source::Device)
      : rule_(rule), on_(source == Source::Device ? told_by_device() : observed()) {
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
  // What the signature says beside the tensors' sizes, for whoever knows the other arguments.
  Form& form() {
    return form_;
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
  using Tensors = c10::ArrayRef<const c10::TensorImpl*>;

  // Whether the call has refused something, once: that has written an entry already.
  bool take_refusal();
  // The call ended with an exception: an entry without results.
  void raised();
  // Writes the entry. `inputs` and `outputs` are only looked at when this signature is new.
  void end(Tensors inputs, Tensors outputs) {
    end_with([&] { return inputs; }, outputs);
  }
  // The same with inputs that are gathered only then.
  void end_with(c10::function_ref<Tensors()> inputs, Tensors outputs) {
    if (on_) {
      write(inputs, outputs);
    }
  }

 private:
  Span(const Span&) = default;
  void begin();
  void leave();
  void mix_tensor(const c10::TensorImpl* tensor);
  void write(c10::function_ref<Tensors()> inputs, Tensors outputs);

  const Rule& rule_;
  ThreadTape* tape_ = nullptr;  // of the thread, while it is on
  bool on_;
  Fate fate_ = Fate::Native;
  Wait wait_ = Wait::None;
  Direction direction_ = Direction::None;
  uint8_t flags_ = 0;
  Form form_;
  int64_t start_ = 0;
  int64_t delayed_ = 0;  // ns for which the thread was kept from a core
  int64_t moved_bytes_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace anymps
