// Lines by the frames of Python, and by the autograd node: in tables, one a thread.
#include "recorder/lines/places.h"

#include "recorder/lines/call_sites.h"
#include "recorder/program/progress.h"

#include <c10/macros/Macros.h>

#include <atomic>
#include <cstddef>

namespace anymps {
namespace {

constexpr size_t kForwardSlots = size_t(1) << 17;

// By the sequence number of the node. A table for each thread, as each counts for itself: the graphs of recomputed
// checkpoints are built on the thread of the backward, and have numbers that those of the program's own thread have too.
struct ForwardSlot {
  std::atomic<uint64_t> key{0};
  std::atomic<uint32_t> module{0};
  std::atomic<uint32_t> site{0};
};
constexpr size_t kForwardTables = 64;  // threads beyond that share
std::atomic<ForwardSlot*>* forward_tables() {
  static auto* tables = new std::atomic<ForwardSlot*>[kForwardTables]();  // never destroyed, nor are the tables
  return tables;
}
uint64_t forward_key(uint64_t thread, uint64_t sequence) {
  return ((thread + 1) << 44) ^ (sequence + 1);
}
ForwardSlot* forward_slot(uint64_t thread, uint64_t sequence) {  // null: the thread has built no graph
  ForwardSlot* table = forward_tables()[thread % kForwardTables].load(std::memory_order_acquire);
  return table == nullptr ? nullptr : &table[sequence % kForwardSlots];
}
ForwardSlot& forward_slot_to_write(uint64_t thread, uint64_t sequence) {
  if (C10_UNLIKELY(forward_slot(thread, sequence) == nullptr)) {
    auto* made = new ForwardSlot[kForwardSlots];
    ForwardSlot* none = nullptr;
    if (!forward_tables()[thread % kForwardTables].compare_exchange_strong(none, made, std::memory_order_acq_rel)) {
      delete[] made;  // of a thread that shares it, at the same moment
    }
  }
  return *forward_slot(thread, sequence);
}

}  // namespace

namespace places {

void of_backward(Entry& entry, const BackwardNode& node) {
  entry.sequence = static_cast<int64_t>(node.sequence);
  entry.phase = static_cast<uint8_t>(Phase::Backward);
  entry.flags |= kAutogradThread;
  const ForwardSlot* slot = forward_slot(node.thread, node.sequence);
  const bool known = slot != nullptr && slot->key.load(std::memory_order_acquire) == forward_key(node.thread, node.sequence);
  entry.module = known ? slot->module.load(std::memory_order_relaxed) : 0;
  entry.site = known ? slot->site.load(std::memory_order_relaxed) : 0;
  if (node.python) {
    if (const uint32_t own = current_site_in_backward()) {
      entry.site = own;
    }
  }
}

bool knows_forward(uint64_t thread, uint64_t sequence) {
  const ForwardSlot* slot = forward_slot(thread, sequence);
  return slot != nullptr && slot->key.load(std::memory_order_relaxed) == forward_key(thread, sequence);
}

void keep_forward(uint64_t thread, uint64_t sequence, uint32_t module, uint32_t site) {
  ForwardSlot& slot = forward_slot_to_write(thread, sequence);
  slot.module.store(module, std::memory_order_relaxed);
  slot.site.store(site, std::memory_order_relaxed);
  slot.key.store(forward_key(thread, sequence), std::memory_order_release);
}

}  // namespace places

uint32_t current_place() {
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && progress::mine().call.module == 0) {
    places::of_backward(entry, node);
  }
  return entry.site != 0 ? entry.site : current_site();
}

}  // namespace anymps
