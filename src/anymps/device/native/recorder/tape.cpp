// The tape's life: start and end, and what is taken off it, with totals.
#include "recorder/tape.h"

#include "recorder/thread_tape.h"

#include <mutex>

namespace anymps::tape {

void start(uint64_t detail_limit, bool by_observer) {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  signatures::forget_all();
  s.totals.clear();
  s.spare.insert(s.spare.end(), s.chunks.begin(), s.chunks.end());
  s.chunks.clear();
  s.detail_limit = detail_limit;
  s.detailed = 0;
  s.threads = 0;
  s.refusals.store(0);
  s.plain.store(0);
  progress::start();
  s.generation.fetch_add(1, std::memory_order_release);
  tape_observed.store(by_observer, std::memory_order_relaxed);
  tape_on.store(true, std::memory_order_release);
}

void stop() {
  tape_on.store(false, std::memory_order_release);
}

void pause(bool paused) {
  tape_on.store(!paused, std::memory_order_release);
}

Drained drain() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Drained result;
  result.dropped = s.plain.exchange(0, std::memory_order_relaxed);
  std::vector<Chunk*> still_open;
  for (Chunk* chunk : s.chunks) {
    const uint32_t count = chunk->count.load(std::memory_order_acquire);
    for (uint32_t i = chunk->drained; i < count; ++i) {
      const Entry& e = chunk->entries[i];
      const TapeState::TotalKey key{
          (uint64_t(e.signature) << 32) | e.module,
          (uint64_t(e.site) << 32) | (uint64_t(e.phase) << 16) | (uint64_t(e.wait) << 8) | e.direction};
      Total& total = s.totals[key];
      if (total.count == 0) {
        total.signature = e.signature;
        total.module = e.module;
        total.site = e.site;
        total.phase = e.phase;
        total.wait = e.wait;
        total.direction = e.direction;
      }
      ++total.count;
      total.duration_ns += e.duration_ns;
      total.moved_bytes += e.moved_bytes;
      const bool matters = e.wait != 0 || e.refusal != 0 || e.direction == 1 || e.direction == 2 || (e.flags & (kHazard | kUnsafeCopy | kPair)) != 0;
      if (s.detailed < s.detail_limit || matters) {
        result.entries.append(reinterpret_cast<const char*>(&e), sizeof(Entry));
        ++s.detailed;
      } else {
        ++result.dropped;
      }
    }
    chunk->drained = count;
    if (count == kChunkEntries) {
      s.spare.push_back(chunk);
    } else {
      still_open.push_back(chunk);
    }
  }
  s.chunks.swap(still_open);
  result.signatures = signatures::take_new();
  result.steps = progress::take_new_steps();
  result.rounds = progress::take_new_rounds();
  return result;
}

std::vector<Total> totals() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::vector<Total> result;
  result.reserve(s.totals.size());
  for (const auto& item : s.totals) {
    result.push_back(item.second);
  }
  return result;
}

uint64_t pending() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  uint64_t count = 0;
  for (const Chunk* chunk : s.chunks) {
    count += chunk->count.load(std::memory_order_relaxed) - chunk->drained;
  }
  return count;
}

}  // namespace anymps::tape
