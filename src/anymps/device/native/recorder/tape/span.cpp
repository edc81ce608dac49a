// What is written of a call: its signature, place and phase, and who made the buffers since the last one.
#include "recorder/tape/span.h"

#include "recorder/lines/autograd.h"
#include "recorder/buffers/ledger.h"
#include "recorder/tape/marks.h"
#include "recorder/copies/overwritten.h"
#include "recorder/lines/places.h"
#include "recorder/tape/thread_tape.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace anymps {

void Span::leave() {
  if (--tape_->spans == 0) {
    tape_->where.call_start = 0;
  }
}

void Span::begin() {
  tape_ = &my_tape();
  on_ = tape_->where.muted == 0;
  if (C10_UNLIKELY(!on_)) {
    return;
  }
  ++tape_->spans;
  tape_->expect_entry();
  tape_->refusal_noted = false;  // one from outside any call is not this call's
  tape_->where.call_start = start_ = now_ns();
  delayed_ = tape_->clock.begins(start_);
  hash_ = mix(0x5bd1e995u, rule_.id + 1);
  fate_ = rule_.fate;
}

void Span::mix_tensor(const c10::TensorImpl* tensor) {
  // Copies of either direction have the same operator, sizes and dtypes.
  const auto dtype = static_cast<uint64_t>(c10::typeMetaToScalarType(tensor->dtype()));
  uint64_t hash = mix(hash_, static_cast<uint64_t>(tensor->is_mps()) << 40 | dtype << 32 | static_cast<uint64_t>(tensor->dim()));
  if (C10_LIKELY(!tensor->is_sparse())) {
    for (const int64_t size : tensor->sizes()) {
      hash = mix(hash, static_cast<uint64_t>(size));
    }
  }
  form_.input(tensor);
  hash_ = hash;
}

bool Span::take_refusal() {
  return std::exchange(tape_->refusal_noted, false);
}

void Span::write(c10::function_ref<Tensors()> inputs, Tensors outputs) {
  const int64_t end = now_ns();
  const bool on_cpu = fate_ == Fate::Fallback || fate_ == Fate::AlwaysFallback;
  ThreadTape& tape = *tape_;
  tape.refresh();
  delayed_ += tape.clock.ends(end, on_cpu);
  progress::Thread& where = tape.where;
  const bool matters = wait_ != Wait::None || fate_ != Fate::Native || direction_ == Direction::CpuToMps || direction_ == Direction::MpsToCpu;
  BackwardNode node;
  const bool in_backward = current_backward(node);
  if (C10_UNLIKELY(overwritten::any.load(std::memory_order_relaxed))) {
    for (const auto& [name, site] : overwritten::read_by(rule_, inputs())) {
      tape::note_hazard(mark_rule(name), site);
    }
  }
  if (progress::is_sparse() && !matters && (flags_ & kRaised) == 0) {
    tape_state().plain.fetch_add(1, std::memory_order_relaxed);
    if (!in_backward || where.call.module != 0) {
      places::remember_forward(tape.torch_thread, at::sequence_number::peek(), where.call.module, current_site);
    }
    return;
  }
  uint64_t hash = mix(hash_, static_cast<uint64_t>(fate_)) | 1;
  if (!form_.plain()) {
    const Tensors first = inputs();
    form_.settle(first.empty() ? 0 : first[0]->dim());
    hash = form_.mixed_into(hash) | 1;
  }
  Entry entry{};
  if (in_backward) {
    entry.phase = static_cast<uint8_t>(Phase::Backward);
    entry.flags = kAutogradThread;
    progress::note_entry_of_backward();
  } else {
    entry.phase = where.phase_of(wait_, direction_);
  }
  // A module that runs inside a backward is a checkpoint's: its operators are forward ones, with a line of their own.
  if (in_backward && where.call.module == 0) {
    places::of_backward(entry, node);
    if (const KnownPositions::Known* found = tape.known.find(hash)) {
      entry.signature = found->signature;
    } else {
      entry.signature = signatures::intern(hash, rule_, fate_, inputs(), outputs, form_);
      if (tape.known.size() < kMaxKnown) {
        tape.known.insert({hash, entry.signature, 0});
      }
    }
    if (c10::GradMode::is_enabled()) {  // create_graph=True: the node it makes will run in a backward of this backward
      places::remember_forward(tape.torch_thread, at::sequence_number::peek(), entry.module, [&] { return entry.site; });
    }
    if (matters && entry.site == 0) {
      entry.site = current_site();
    }
  } else {
    entry.module = where.call.module;
    const uint64_t sequence = at::sequence_number::peek();
    entry.sequence = static_cast<int64_t>(sequence) - 1;
    tape.place(entry, hash, matters, [&] { return signatures::intern(hash, rule_, fate_, inputs(), outputs, form_); });
    places::remember_forward(tape.torch_thread, sequence, entry.module, [&] { return entry.site; });
  }
  entry.start_ns = start_;
  entry.duration_ns = end - start_;
  entry.moved_bytes = moved_bytes_;
  entry.step = progress::current_step();
  entry.thread = tape.index;
  entry.wait = static_cast<uint8_t>(wait_);
  entry.direction = static_cast<uint8_t>(direction_);
  entry.flags |= flags_;
  entry.delayed_us = in_microseconds(delayed_);
  tape.next() = entry;
  tape.publish();
  if (!where.unattributed.empty()) {
    ledger::attribute(entry);
  }
}

void Span::raised() {
  flags_ |= kRaised;
  hash_ = mix(hash_, kRaised);  // a signature of its own, as its results are unknown
  write([] { return Tensors(); }, {});
}

}  // namespace anymps
