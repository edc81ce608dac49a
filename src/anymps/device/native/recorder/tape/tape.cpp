// The tape's life: start and end, and what is taken off it, with totals; chunks from it, and what a thread forgets when a new one
// starts.
#include "recorder/tape/tape.h"

#include "recorder/tape/thread_tape.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

namespace anymps::tape {
namespace {

// What was taken off the tape so far; guarded by its mutex.
struct Taken {
  struct TotalKey {
    uint64_t a, b;
    bool operator==(const TotalKey& other) const {
      return a == other.a && b == other.b;
    }
  };
  struct TotalHash {
    size_t operator()(const TotalKey& key) const {
      return mix(key.a, key.b);
    }
  };
  std::unordered_map<TotalKey, Total, TotalHash> totals;
  uint64_t detail_limit = 0;
  uint64_t detailed = 0;
};

Taken& taken() {
  static Taken* the_taken = new Taken;  // as long as the tape
  return *the_taken;
}

}  // namespace

void start(uint64_t detail_limit, bool by_observer) {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Taken& t = taken();
  signatures::forget_all();
  t.totals.clear();
  t.detail_limit = detail_limit;
  t.detailed = 0;
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
  Taken& t = taken();
  Drained result;
  result.dropped = s.plain.exchange(0, std::memory_order_relaxed);
  const uint32_t generation = s.generation.load(std::memory_order_relaxed);
  std::vector<Chunk*> still_open;
  for (Chunk* chunk : s.chunks) {
    const bool owned = chunk->owned.load(std::memory_order_acquire);  // before it is counted: all that was written counts
    const uint32_t count = chunk->count.load(std::memory_order_acquire);
    for (uint32_t i = chunk->generation == generation ? chunk->drained : count; i < count; ++i) {
      const Entry& e = chunk->entries[i];
      const Taken::TotalKey key{
          (uint64_t(e.signature) << 32) | e.module,
          (uint64_t(e.site) << 32) | (uint64_t(e.phase) << 16) | (uint64_t(e.wait) << 8) | e.direction};
      Total& total = t.totals[key];
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
      if (t.detailed < t.detail_limit || matters) {
        result.entries.append(reinterpret_cast<const char*>(&e), sizeof(Entry));
        ++t.detailed;
      } else {
        ++result.dropped;
      }
    }
    chunk->drained = count;
    (owned ? still_open : s.spare).push_back(chunk);
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
  Taken& t = taken();
  std::vector<Total> result;
  result.reserve(t.totals.size());
  for (const auto& item : t.totals) {
    result.push_back(item.second);
  }
  return result;
}

uint64_t pending() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  uint64_t count = 0;
  const uint32_t generation = s.generation.load(std::memory_order_relaxed);
  for (const Chunk* chunk : s.chunks) {
    count += chunk->generation != generation ? 0 : chunk->count.load(std::memory_order_relaxed) - chunk->drained;
  }
  return count;
}

}  // namespace anymps::tape

namespace anymps {

TapeState& tape_state() {
  static TapeState* the_state = new TapeState;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

// What has a destructor is looked up several times at each use, a pointer once.
static thread_local ThreadTape* the_tape = nullptr;

static ThreadTape* make_tape() {
  thread_local ThreadTape tape;
  return the_tape = &tape;
}

ThreadTape& my_tape() {
  ThreadTape& tape = *(C10_LIKELY(the_tape != nullptr) ? the_tape : make_tape());
  tape.refresh();
  return tape;
}

uint32_t in_microseconds(int64_t ns) {
  return static_cast<uint32_t>(std::min<int64_t>(ns / 1000, std::numeric_limits<uint32_t>::max()));
}

void ThreadTape::new_chunk() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.spare.empty()) {
    chunk = new Chunk;
  } else {
    chunk = s.spare.back();
    s.spare.pop_back();
    chunk->count.store(0, std::memory_order_relaxed);
    chunk->owned.store(true, std::memory_order_relaxed);
    chunk->drained = 0;
  }
  chunk->generation = generation;
  s.chunks.push_back(chunk);
}

void ThreadTape::start_anew() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  generation = s.generation.load(std::memory_order_acquire);
  index = s.threads++;
  torch_thread = at::RecordFunction::currentThreadId();
  let_go();
  known = KnownPositions();
  clock = CoreClock();
}

}  // namespace anymps
