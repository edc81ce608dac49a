// The tape as one thread writes on it without locks, and what all threads share of it.
#pragma once

#include "locks/locks.h"
#include "recorder/lines/call_sites.h"
#include "recorder/tape/core_clock.h"
#include "recorder/tape/entry.h"
#include "recorder/program/progress.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace anymps {

constexpr uint32_t kChunkEntries = 4096;
constexpr size_t kMaxKnown = size_t(1) << 18;  // beyond this, positions are no longer remembered per module call

struct alignas(sizeof(Entry)) Chunk {  // an entry is one line of the cache
  Entry entries[kChunkEntries];
  std::atomic<uint32_t> count{0};
  std::atomic<bool> owned{true};  // whether a thread may still write to it
  uint32_t generation = 0;        // of the tape that it is of; guarded by its mutex, as the next
  uint32_t drained = 0;
};

struct TapeState {
  Mutex mutex;
  std::vector<Chunk*> chunks;  // owned or not yet drained
  std::vector<Chunk*> spare;
  uint32_t threads = 0;
  std::atomic<uint32_t> refusals{0};
  std::atomic<uint64_t> plain{0};  // calls since the last drain that wrote no entry because of that
  std::atomic<uint32_t> generation{0};  // one more at each start, so that threads drop what they remember of an older tape
};

TapeState& tape_state();

// What is known of an operator by its position in the calls of modules: its signature and its line.
// In the order in which they came first, as a loop comes by them in the same order again: the next one lies beside the last one
// in memory. A table of open addressing finds the others. Grows, never forgets. Keys are already well mixed.
class KnownPositions {
 public:
  struct Known {
    uint64_t key;
    uint32_t signature;
    uint32_t site;
  };
  size_t size() const {
    return known_.size();
  }
  const Known* find(uint64_t key) {  // nullptr: not known
    if (next_ >= known_.size() || known_[next_].key != key) {
      next_ = table_[place(key)];
      if (next_ == 0) {
        return nullptr;
      }
      --next_;
    }
    return &known_[next_++];
  }
  void insert(const Known& position) {
    known_.push_back(position);
    next_ = known_.size();
    if (known_.size() * 2 < table_.size()) {
      table_[place(position.key)] = static_cast<uint32_t>(known_.size());
      return;
    }
    table_.assign(table_.size() * 2, 0);
    for (size_t i = 0; i < known_.size(); ++i) {
      table_[place(known_[i].key)] = static_cast<uint32_t>(i + 1);
    }
  }

 private:
  // Where a key is in the table, or may go.
  size_t place(uint64_t key) const {
    const size_t mask = table_.size() - 1;
    size_t i = key & mask;
    while (table_[i] != 0 && known_[table_[i] - 1].key != key) {
      i = (i + 1) & mask;
    }
    return i;
  }

  std::vector<Known> known_;
  std::vector<uint32_t> table_ = std::vector<uint32_t>(1024);  // places in `known_`, from 1 on; 0: none
  size_t next_ = 0;
};

struct ThreadTape {
  ~ThreadTape() {
    let_go();
  }

  uint32_t index = 0;
  uint32_t generation = 0;
  uint64_t torch_thread = 0;
  Chunk* chunk = nullptr;
  KnownPositions known;
  progress::Thread& where = progress::mine();
  CoreClock clock;
  int spans = 0;               // the calls that the thread is in
  bool refusal_noted = false;  // since the innermost one began

  // Signature and line of an operator by its position; looked up where it is new, and the line always if it `matters`.
  template <class Intern>
  void place(Entry& entry, uint64_t hash, bool matters, const Intern& intern_it) {
    const uint64_t position = mix(mix(hash, where.call.path), where.call.ordinal++) | 1;
    if (const KnownPositions::Known* found = known.find(position)) {
      entry.signature = found->signature;
      entry.site = matters ? current_site() : found->site;
      return;
    }
    entry.signature = intern_it();
    const bool remember = known.size() < kMaxKnown;
    entry.site = matters || remember ? current_site() : 0;
    if (remember) {
      known.insert({position, entry.signature, entry.site});
    }
  }

  Entry& next() {
    if (C10_UNLIKELY(chunk == nullptr)) {
      new_chunk();
    }
    return chunk->entries[chunk->count.load(std::memory_order_relaxed)];
  }
  // A call has begun that will write an entry: its place is fetched meanwhile, as nobody has been there for long.
  void expect_entry() const {
#if defined(__GNUC__)
    if (C10_LIKELY(chunk != nullptr)) {
      __builtin_prefetch(&chunk->entries[chunk->count.load(std::memory_order_relaxed)], 1);
    }
#endif
  }
  void publish() {
    where.wrote = true;
    const uint32_t count = chunk->count.load(std::memory_order_relaxed) + 1;
    chunk->count.store(count, std::memory_order_release);
    if (C10_UNLIKELY(count == kChunkEntries)) {
      let_go();
    }
  }
  void new_chunk();
  // From here on another thread may get it.
  void let_go() {
    if (chunk != nullptr) {
      chunk->owned.store(false, std::memory_order_release);
      chunk = nullptr;
    }
  }
  // Forgets what is of an older tape.
  void refresh() {
    if (C10_UNLIKELY(generation != tape_state().generation.load(std::memory_order_acquire))) {
      start_anew();
    }
  }
  void start_anew();
};

ThreadTape& my_tape();  // the calling thread's, refreshed

uint32_t in_microseconds(int64_t ns);

}  // namespace anymps
