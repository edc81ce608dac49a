// Chunks from the tape, and what a thread forgets when a new tape starts.
#include "recorder/tape/thread_tape.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <limits>

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
