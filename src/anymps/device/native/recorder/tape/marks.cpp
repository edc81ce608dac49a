// Marks are written like calls, on the calling thread's tape.
#include "recorder/tape/marks.h"

#include "recorder/lines/autograd.h"
#include "recorder/lines/call_sites.h"
#include "recorder/buffers/ledger.h"
#include "recorder/lines/places.h"
#include "recorder/program/progress.h"
#include "recorder/tape/signatures.h"
#include "recorder/tape/thread_tape.h"

namespace anymps::tape {
namespace {

// An entry of our own, in the module that runs and of no autograd node.
Entry outside() {
  Entry entry{};
  entry.module = progress::mine().call.module;
  entry.sequence = -1;
  return entry;
}

void put(const Rule& rule, Fate fate, Entry entry) {
  ThreadTape& tape = my_tape();
  const uint64_t hash = mix(mix(mix(0x5bd1e995u, rule.id + 1), static_cast<uint64_t>(fate)), 0x6d61726bu) | 1;
  entry.signature = signatures::intern(hash, rule, fate, {}, {});
  entry.step = progress::current_step();
  entry.thread = tape.index;
  tape.next() = entry;
  tape.publish();
}

}  // namespace

Place here() {
  return recording() ? Place{current_place(), in_backward()} : Place{};
}

uint32_t note_refusal(const Rule& rule, Fate fate, const Place& place) {
  if (!recording()) {
    return 0;
  }
  my_tape().refusal_noted = true;
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.phase = place.backward ? static_cast<uint8_t>(Phase::Backward) : progress::mine().natural_phase(Wait::None, Direction::None);
  entry.site = place.site;
  entry.flags = kRaised;
  entry.refusal = tape_state().refusals.fetch_add(1) + 1;
  put(rule, fate, entry);
  return entry.refusal;
}

void note_hazard(const Rule& rule, uint32_t site) {
  if (!recording() || muted()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kHazard;
  BackwardNode node;
  if (current_backward(node)) {
    entry.phase = static_cast<uint8_t>(Phase::Backward);
    entry.flags |= kAutogradThread;
    if (entry.module == 0) {  // else a checkpoint's recomputation
      places::of_backward(entry, node);
    }
  } else {
    entry.phase = progress::mine().phase_of(Wait::None, Direction::None);
  }
  if (site != 0) {
    entry.site = site;
  } else if (entry.site == 0) {
    entry.site = current_site();
  }
  put(rule, Fate::Mark, entry);
}

void note_unsafe_copy(const Rule& rule, uint32_t site, uint32_t copy, uint32_t wait) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kUnsafeCopy;
  entry.phase = progress::mine().natural_phase(Wait::None, Direction::None);
  entry.site = site;
  entry.sequence = static_cast<int64_t>(uint64_t(wait) << 32 | copy);
  put(rule, Fate::Mark, entry);
}

void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes, int64_t duration_ns) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kPair;
  entry.phase = progress::mine().phase_of(Wait::None, Direction::None);
  entry.site = site;
  entry.sequence = other;
  entry.moved_bytes = moved_bytes;
  entry.duration_ns = duration_ns;
  put(rule, Fate::Mark, entry);
}

void note_empty(const Rule& rule, const c10::TensorImpl* tensor) {
  if (!recording() || muted() || my_tape().spans > 0 || !ledger::has_unnamed()) {
    return;
  }
  ThreadTape& tape = my_tape();
  uint64_t hash = mix(0x656d7074u, rule.id + 1);
  for (const int64_t size : tensor->sizes()) {
    hash = mix(hash, static_cast<uint64_t>(size));
  }
  hash = mix(hash, static_cast<uint64_t>(c10::typeMetaToScalarType(tensor->dtype()))) | 1;
  const auto signature = [&] { return signatures::intern(hash, rule, Fate::Native, {}, {tensor}); };
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && progress::mine().call.module == 0) {
    places::of_backward(entry, node);
    entry.signature = signature();
  } else {
    entry.module = progress::mine().call.module;
    entry.phase = progress::current_phase();
    if (entry.phase == 0) {
      entry.phase = progress::mine().natural_phase(Wait::None, Direction::None);
    }
    tape.place(entry, hash, false, signature);
  }
  entry.step = progress::current_step();
  ledger::name(entry);
}

void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = start_ns;
  entry.duration_ns = end_ns - start_ns;
  entry.phase = phase != 0 ? phase : progress::mine().natural_phase(wait, Direction::None);
  entry.wait = static_cast<uint8_t>(wait);
  entry.site = current_site();
  entry.delayed_us = in_microseconds(my_tape().clock.ends(end_ns, true));
  put(rule, wait == Wait::None ? Fate::Mark : Fate::Wait, entry);
}

}  // namespace anymps::tape
