// The ledger's rows: living ones by slot, ended ones until they are drained.
#include "recorder/buffers/ledger.h"

#include "locks/locks.h"
#include "recorder/program/progress.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace anymps {
namespace ledger {
namespace {

struct State {
  Mutex mutex;
  std::vector<Row> slots = std::vector<Row>(1);  // slot 0 means none
  std::vector<uint32_t> free;
  std::vector<Row> ended;
  uint64_t ids = 0;
  uint64_t events = 0;
  uint64_t limit = 0;
  uint64_t kept = 0;
  uint64_t dropped = 0;
  uint64_t full_at = 0;  // the event that filled the limit: the rows of what was born until then are kept; 0: not yet
  uint32_t generation = 0;  // in the upper bits of a slot's number, so that buffers of an older recording are told apart
};

State& state() {
  static State* the_state = new State;  // outlives every tensor
  return *the_state;
}

std::atomic<bool> kept_at_all{false};

constexpr uint32_t kSlotBits = 24;
constexpr uint32_t kSlotMask = (uint32_t(1) << kSlotBits) - 1;

Row* find(State& s, uint32_t number) {
  const uint32_t slot = number & kSlotMask;
  return number >> kSlotBits == (s.generation & 0xFF) && slot < s.slots.size() && s.slots[slot].id != 0 ? &s.slots[slot] : nullptr;
}

uint32_t open_row(State& s, const Size& size) {
  uint32_t slot;
  if (s.free.empty()) {
    slot = static_cast<uint32_t>(s.slots.size());
    if (slot > kSlotMask) {
      ++s.dropped;
      return 0;
    }
    s.slots.emplace_back();
  } else {
    slot = s.free.back();
    s.free.pop_back();
  }
  Row& row = s.slots[slot];
  row = Row{};
  row.id = ++s.ids;
  row.bytes = size.charged;
  row.requested = size.requested;
  return ((s.generation & 0xFF) << kSlotBits) | slot;
}

}  // namespace

bool is_kept() {
  return C10_UNLIKELY(recording()) && kept_at_all.load(std::memory_order_relaxed);
}

uint32_t born(const Size& size, uint64_t allocated, uint64_t reserved) {
  if (!is_kept()) {
    return 0;
  }
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const uint32_t number = open_row(s, size);
  if (Row* row = find(s, number)) {
    progress::Thread& thread = progress::mine();
    row->born = ++s.events;
    row->born_ns = thread.call_start != 0 ? thread.call_start : now_ns();
    row->allocated = allocated;
    row->reserved = reserved;
    thread.unattributed.push_back({number, false, 0});
  }
  return number;
}

void died(uint32_t number) noexcept {
  if (C10_LIKELY(number == 0)) {
    return;
  }
  const uint8_t phase = progress::current_phase();
  const uint32_t step = progress::current_step();
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Row* row = find(s, number);
  if (row == nullptr) {
    return;
  }
  row->died = ++s.events;
  row->died_ns = now_ns();
  row->died_phase = phase;
  row->died_step = step;
  if (s.full_at == 0 || row->born <= s.full_at) {
    s.ended.push_back(*row);
    if (++s.kept == s.limit) {
      s.full_at = s.events;
    }
  } else {
    ++s.dropped;
  }
  row->id = 0;
  s.free.push_back(number & kSlotMask);
}

static void write(State& s, uint32_t number, const Entry& entry) {
  if (Row* row = find(s, number)) {
    row->signature = entry.signature;
    row->site = entry.site;
    row->step = entry.step;
    row->phase = entry.phase;
    if (row->role == 0) {
      row->module = entry.module;
    }
  }
}

void attribute(const Entry& entry) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::vector<progress::Unattributed>& mine = progress::mine().unattributed;
  for (const progress::Unattributed& one : mine) {
    if (!one.named || one.site == entry.site) {
      write(s, one.number, entry);
    }
  }
  mine.clear();
}

bool has_unnamed() {
  const std::vector<progress::Unattributed>& mine = progress::mine().unattributed;
  return !mine.empty() && !mine.back().named;
}

void name(const Entry& entry) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (progress::Unattributed& one : progress::mine().unattributed) {
    if (!one.named) {
      one.named = true;
      one.site = entry.site;
      write(s, one.number, entry);
    }
  }
}

uint32_t assign(uint32_t number, const Size& size, Role role, uint32_t module) {
  if (!is_kept()) {
    return number;
  }
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Row* row = find(s, number);
  if (row == nullptr) {
    number = open_row(s, size);
    row = find(s, number);
  }
  if (row != nullptr) {
    row->role = static_cast<uint8_t>(role);
    row->module = module;
  }
  return number;
}

void start(uint64_t limit) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.slots.assign(1, Row{});
  s.free.clear();
  s.ended.clear();
  s.ids = s.events = s.kept = s.dropped = s.full_at = 0;
  s.limit = limit;
  kept_at_all.store(limit > 0, std::memory_order_relaxed);
  s.generation = s.generation % 0xFF + 1;  // never 0: a buffer from before any recording has the number 0
}

std::string drain(bool with_living) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::string packed(reinterpret_cast<const char*>(s.ended.data()), s.ended.size() * sizeof(Row));
  s.ended.clear();
  if (with_living) {
    for (const Row& row : s.slots) {
      if (row.id != 0 && (s.full_at == 0 || row.born <= s.full_at)) {
        packed.append(reinterpret_cast<const char*>(&row), sizeof(Row));
      }
    }
  }
  return packed;
}

uint64_t events() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.events;
}

uint64_t dropped() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.dropped;
}

}  // namespace ledger
}  // namespace anymps
